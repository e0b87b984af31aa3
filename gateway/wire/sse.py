"""Server-sent events: bytes to frames and back.

The reader follows the WHATWG rules (line ends LF, CRLF or lone CR, comments, several ``data`` lines joined by LF, a
leading byte order mark, an unfinished event at the end dropped) and keeps each event's own bytes, so that one that
needs no change can leave as it came.
"""

import re
from dataclasses import dataclass

from gateway.errors import UpstreamBroken

MAX_EVENT_BYTES = 16 * 1024 * 1024
_USUAL = re.compile(rb"event: ([a-z_]+)\ndata: ([^\n]*)\n\n").fullmatch
"""An event as it is usually written: a name, one line of data, nothing else."""


@dataclass(slots=True)
class Frame:
    """One event. ``raw`` is ``event: NAME\\ndata: DATA\\n\\n`` where the event was written just so, else None."""

    event: str
    data: bytes
    raw: bytes | None


class SSEReader:
    """Splits a byte stream, however it is cut, into events.

    Raises :class:`UpstreamBroken` when one event exceeds ``max_event_bytes``.
    """

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._after_cr = False
        self._at_start = True
        self._max = max_event_bytes

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that ``chunk`` completes, in order."""
        return [frame for event in self.split(chunk) if (frame := read_frame(event)) is not None]

    def split(self, chunk: bytes) -> list[bytes]:
        """The events that ``chunk`` completes, in order: each its lines, LF between them, and the empty line after.

        One that came whole and by itself, as most do, is ``chunk``.
        """
        if self._at_start or self._after_cr or b"\r" in chunk:
            chunk = self._normalised(chunk)
        if not self._buffer and chunk.endswith(b"\n\n"):
            if chunk.find(b"\n\n") == len(chunk) - 2 and len(chunk) <= self._max:
                return [chunk]
            blocks = chunk[:-2].split(b"\n\n")
        else:
            blocks = self._blocks(chunk)
        if any(len(block) > self._max for block in blocks):
            raise self._too_large()
        return [block + b"\n\n" for block in blocks]

    def _blocks(self, chunk: bytes) -> list[bytes]:
        buffer = self._buffer
        buffer += chunk
        end = buffer.rfind(b"\n\n", self._scanned)
        if end < 0:
            if len(buffer) > self._max:
                raise self._too_large()
            self._scanned = max(0, len(buffer) - 1)
            return []
        blocks = bytes(buffer[:end]).split(b"\n\n")
        del buffer[: end + 2]
        self._scanned = max(0, len(buffer) - 1)
        return blocks

    def _normalised(self, chunk: bytes) -> bytes:
        """The chunk with every line end LF; a CR at its end counts at once, and a LF that follows it later does not."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if chunk:
            self._after_cr = chunk.endswith(b"\r")
        chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._at_start and chunk:
            # A mark cut across chunks is left in place: the first line is then no field, and is passed over.
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
            self._at_start = False
        return chunk

    def _too_large(self) -> UpstreamBroken:
        return UpstreamBroken(f"Upstream sent an event of more than {self._max} bytes.")


def read_frame(event: bytes) -> Frame | None:
    """What is written in an event, as :meth:`SSEReader.split` gives it; None where it has no data."""
    usual = _USUAL(event)
    if usual is None:
        return _any_frame(event)
    name, data = usual.groups()
    return Frame(name.decode("ascii"), data, event)


def _any_frame(written: bytes) -> Frame | None:
    """The same, in whatever way it is written."""
    event, data = "", []
    for line in written.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            event = value.decode("utf-8", "replace")
    if not data:
        return None
    return Frame(event, b"\n".join(data), None)


def write_event(event: str, data: bytes) -> bytes:
    """One event's bytes; ``data`` holds no line end (JSON never needs one)."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), data)
