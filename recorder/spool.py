"""Bytes of a response, kept compressed in memory.

A stream being recorded waits here for its end, not in a temporary file: it may hold a credential that is not yet
redacted. Event streams shrink to a tenth and less, so that one of 50 MB costs a few.
"""

import zlib
from collections.abc import Iterator

_CHUNK = 1 << 16


class Spool:
    """Append-only bytes. ``size`` is their uncompressed number."""

    def __init__(self, data: bytes = b"") -> None:
        self.size = 0
        self._compressor = zlib.compressobj(1)
        self._pieces: list[bytes] = []
        if data:
            self.write(data)

    def write(self, data: bytes) -> None:
        """Append ``data``."""
        self.size += len(data)
        if piece := self._compressor.compress(data):
            self._pieces.append(piece)

    def chunks(self) -> Iterator[bytes]:
        """The bytes from the beginning, in chunks of at most 64 KiB."""
        decompressor = zlib.decompressobj()
        for piece in [*self._pieces, self._compressor.copy().flush()]:
            rest = piece
            while rest:
                if chunk := decompressor.decompress(rest, _CHUNK):
                    yield chunk
                rest = decompressor.unconsumed_tail
        while chunk := decompressor.decompress(b"", _CHUNK):
            yield chunk

    def lines(self) -> Iterator[bytes]:
        """The lines, each with its ``\\n``; the last without where it has none."""
        rest = b""
        for chunk in self.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line + b"\n"
        if rest:
            yield rest

    def read(self) -> bytes:
        """All of it."""
        return b"".join(self.chunks())
