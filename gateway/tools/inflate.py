"""A body read within a bound: what a server outside sends may be a thousand times what crosses the wire.

One coding, gzip (RFC 9110, section 8.4.1.3): none has a use for two, and each multiplies what the one below it made.
"""

import zlib

from gateway.errors import MessagesGatewayError

ACCEPT_ENCODING = "gzip"
"""The ``accept-encoding`` of a request whose answer is read here."""

_CODINGS = {"": False, "identity": False, "gzip": True, "x-gzip": True}
_GZIP_HEADER = 16 + zlib.MAX_WBITS


class Undecodable(MessagesGatewayError):
    """A body is not what its ``content-encoding`` says, or that names a coding that is not read, or more than one."""


class TooLong(MessagesGatewayError):
    """A body is longer than it may be."""


class BoundedBody:
    """A body that comes in pieces: ``feed`` each, then ask for the ``whole``.

    Neither what comes nor what is made of it may be more than ``max_bytes``, and no more than that is ever inflated.
    """

    def __init__(self, content_encoding: str, max_bytes: int) -> None:
        """Raises :class:`Undecodable` for a ``content_encoding`` that is not read here; "" is none."""
        packed = _CODINGS.get(content_encoding.strip().lower())
        if packed is None:
            raise Undecodable("the body has more than one coding, or one that was not asked for")
        self._unpacking = zlib.decompressobj(_GZIP_HEADER) if packed else None
        self._max_bytes = max_bytes
        self._came = 0
        self._body = bytearray()

    def feed(self, data: bytes) -> None:
        """One more piece. Raises :class:`Undecodable` and :class:`TooLong`."""
        self._came += len(data)
        if self._unpacking is not None:
            try:
                data = self._unpacking.decompress(data, self._max_bytes + 1 - len(self._body))
            except zlib.error as error:
                raise Undecodable("the body is not gzip") from error
        if max(self._came, len(self._body) + len(data)) > self._max_bytes:
            raise TooLong(f"the body has more than {self._max_bytes} bytes")
        self._body += data

    def whole(self) -> bytes:
        """The body. Raises :class:`Undecodable` where its coding has not come to an end."""
        if self._unpacking is not None and self._came and not self._unpacking.eof:
            raise Undecodable("the body ends before its coding does")
        return bytes(self._body)
