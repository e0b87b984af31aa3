"""Requests to upstream: the head on the wire, a connection for it, and one more try where a kept one had gone stale."""

import ssl

from gateway.errors import InvalidRequest, UpstreamBroken
from gateway.upstream.connection import Response
from gateway.upstream.origin import parse_origin
from gateway.upstream.pool import Pool
from gateway.wire.headers import Headers

_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_END = (b"", b"")  # joined by line breaks, the empty line
_field = b": ".join


class Upstream:
    """An HTTP/1.1 client for one origin.

    ``origin``: ``http://host[:port]`` or ``https://…``. ``connect_timeout_s`` covers name, TCP and TLS;
    ``first_byte_timeout_s`` runs from the request until the response head is in; ``idle_timeout_s`` is between two
    bytes of a body somebody is waiting for. ``max_idle_connections`` are kept for reuse, each for ``keep_alive_s``,
    which should be shorter than what upstream keeps them for (uvicorn, and so vLLM: 5 s). ``ssl_context`` replaces the
    default one, which verifies against the system's authorities.

    Raises SettingsError for an origin that is none.
    """

    def __init__(
        self,
        origin: str,
        *,
        connect_timeout_s: float = 10,
        first_byte_timeout_s: float = 600,
        idle_timeout_s: float = 300,
        keep_alive_s: float = 4,
        max_idle_connections: int = 256,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        parsed = parse_origin(origin)
        self._host_line = b" HTTP/1.1\r\nhost: " + parsed.authority
        self._pool = Pool(
            parsed,
            connect_timeout_s=connect_timeout_s,
            first_byte_timeout_s=first_byte_timeout_s,
            idle_timeout_s=idle_timeout_s,
            keep_alive_s=keep_alive_s,
            max_idle=max_idle_connections,
            ssl_context=ssl_context,
        )

    async def request(self, method: str, target: str, headers: Headers, body: bytes = b"") -> Response:
        """Send a request and return when the head of its answer is in, be its body sent or not.

        ``target`` is in origin-form, query included. ``headers`` are end-to-end ones; ``host`` and, for a body or a
        method that calls for one, ``content-length`` are added, so they and ``transfer-encoding`` must not be there.

        A connection kept from an earlier request may have been closed by upstream in the meantime: if it ends before
        a byte of an answer, the request is sent once more, on a new one.

        Raises UpstreamUnreachable, UpstreamTimeout (``connect``, ``first byte``), UpstreamBroken, and InvalidRequest
        where a header, method or target holds what would end its line. Cancelling closes the connection.
        """
        head = self._head(method, target, headers, len(body))
        head_only = method == "HEAD"
        connection = self._pool.take()
        if connection is not None:
            try:
                return await connection.exchange(head, body, head_only=head_only)
            except UpstreamBroken:
                if not connection.unanswered():
                    raise
        connection = await self._pool.connect()
        return await connection.exchange(head, body, head_only=head_only)

    async def aclose(self) -> None:
        """End every connection. A request under way fails with UpstreamBroken, a later one with UpstreamUnreachable."""
        await self._pool.aclose()

    def _head(self, method: str, target: str, headers: Headers, length: int) -> bytes:
        try:
            lines = [f"{method} {target}".encode("latin-1") + self._host_line, *map(_field, headers)]
        except UnicodeEncodeError as error:
            raise InvalidRequest("the path holds a character that HTTP does not allow there") from error
        if length or method in _METHODS_WITH_BODY:
            lines.append(b"content-length: %d" % length)
        lines += _END
        head = b"\r\n".join(lines)
        breaks = len(lines)  # one less between them, and one before Host
        if head.count(b"\n") != breaks or head.count(b"\r") != breaks or " " in target:
            raise InvalidRequest("the path or a header holds a line break or a space where HTTP allows none")
        return head
