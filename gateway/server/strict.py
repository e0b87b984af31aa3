"""The client's side of HTTP/1.1, read so that no proxy before the gateway can take a request for another than it is.

uvicorn's protocol over httptools, whose parser is strict about line ends, lengths and folded headers (RFC 9112). What
it leaves open is closed here: how long a head may be, the request line's form, the host, transfer codings, trailers,
and requests to upgrade.
"""

import re

import httptools
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.books.record import new_request_id
from gateway.errors import HeadTooLarge, InvalidRequest, RequestError

MAX_HEAD_BYTES = 64 * 1024
"""Bytes taken for a request's head, and for what frames a body's chunks between two of them; one read more may be."""

_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
"""A host and a port (RFC 3986, 3.2.2)."""
_BLANKS = b" \t"


class StrictProtocol(HttpToolsProtocol):
    """A client's connection. What is not HTTP is answered in the gateway's envelope."""

    _overhead = 0
    """Bytes since the last ones that were a whole head or a body."""
    _in_head = False
    _in_body = False
    _upgrading = False
    _deaf = False
    """Nothing that comes is read any more."""

    # Until a head is whole, its bytes are kept: the parser does not tell whether the request line is as it should be.
    _seen = b""
    _seen_up_to = 0
    """Where in ``_seen`` the next request line is to be."""
    _behind = False
    """It comes somewhere behind another request's body."""

    _hosts = 0
    """Host fields in this head."""
    _host: bytes | None = None
    """The connection's latest host that was found to be one."""

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        self._overhead += len(data)
        if self._in_head:
            self._seen = self._seen[-MAX_HEAD_BYTES:] + data
        else:
            self._seen, self._behind = data, self._in_body
        self._seen_up_to = 0
        try:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._read_on(data, upgrade.args[0])
        except httptools.HttpParserError:
            self.send_400_response("")
        else:
            if self._overhead > MAX_HEAD_BYTES:
                self._refuse(HeadTooLarge(f"the request's head is larger than {MAX_HEAD_BYTES} bytes"))
        if not self._in_head:
            self._seen = b""

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidRequest("this is not a valid HTTP request"))

    # What the parser calls. A ValueError makes what it reads no HTTP.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._in_body = True, False
        self._hosts = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # a trailer: never one of the head's fields
        name = name.lower()
        if name == b"host":
            self._hosts += 1
            if value != self._host:
                if not _HOST.fullmatch(value.rstrip(_BLANKS)):
                    raise ValueError("a host that is none")
                self._host = value
        elif name == b"expect":
            self.expect_100_continue = value.rstrip(_BLANKS).lower() == b"100-continue"
        elif name == b"transfer-encoding" and (value.lower() != b"chunked" or self.parser.get_http_version() != "1.1"):
            raise ValueError("a transfer coding whose end others may see elsewhere")
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._overhead = 0
        self._in_head, self._in_body = False, True
        self._check_head()
        self._upgrading = self.parser.should_upgrade()
        if not self._upgrading:
            super().on_headers_complete()
        elif self.parser.get_method() == b"CONNECT":
            raise ValueError("the gateway is no forward proxy")

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        if not self._upgrading:
            super().on_message_complete()

    def _check_head(self) -> None:
        """See to the request line and the host, and to blanks behind a value.

        Those are no part of it (RFC 9112, 5.1), and the parser leaves them there.
        """
        seen, at = self._seen, self._seen_up_to
        line = b"%b %b HTTP/1.1\r\n" % (self.parser.get_method(), self.url)
        if self._hosts != 1 or self._behind or not seen.startswith(line, at):
            line, at = self._find_line()
        at += len(line)
        end = seen.find(b"\r\n\r\n", at - 2) + 2
        if seen.find(b" \r\n", at, end) >= 0 or seen.find(b"\t\r\n", at, end) >= 0:
            self.headers[:] = [(name, value.rstrip(_BLANKS)) for name, value in self.headers]
        self._seen_up_to = at
        self._behind = True

    def _find_line(self) -> tuple[bytes, int]:
        """The request line where it is not the usual one at the usual place, and where it is.

        One space between its words, a version that is spoken here, and one host, which HTTP/1.0 can do without.
        """
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise ValueError("another version of HTTP")
        if self._hosts != 1 and (self._hosts or version == "1.1"):
            raise ValueError("not one host")
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version.encode())
        seen, at = self._seen, self._seen_up_to
        if self._behind:
            at = seen.find(line, at)
        while seen.startswith(b"\r\n", at) and at >= 0:  # empty lines before it (RFC 9112, 2.2)
            at += 2
        if at < 0 or not seen.startswith(line, at):
            raise ValueError("a request line that others may read otherwise")
        return line, at

    # What is left

    def _read_on(self, data: bytes, at: int) -> None:
        """Read what is behind a head that wishes to upgrade, and pass over the wish, as a server may (RFC 9110, 7.8).

        The parser takes what follows such a head for the other protocol, so that a body would be lost, or be read as
        the next request: the same head is read again without the wish.
        """
        while True:
            lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
            for name, value in self.headers:
                if name == b"connection":
                    value = b",".join(token for token in value.split(b",") if token.strip().lower() != b"upgrade")
                if name != b"upgrade":
                    lines.append(name + b": " + value)
            self.parser = httptools.HttpRequestParser(self)
            self._seen, self._seen_up_to, self._behind = b"\r\n".join([*lines, b"", b""]), 0, False
            self.parser.feed_data(self._seen)
            self._seen, self._seen_up_to, self._behind = data, at, self._in_body
            try:
                self.parser.feed_data(memoryview(data)[at:])
            except httptools.HttpParserUpgrade as upgrade:
                at += upgrade.args[0]
            else:
                return

    def _refuse(self, error: RequestError) -> None:
        """Answer what is not HTTP, if it is its turn to be answered, and end the connection."""
        request_id = new_request_id()
        log = structlog.get_logger()
        log.warning("a client sent what is not HTTP", status=error.status, request_id=request_id)
        waiting = self.cycle if self.cycle is not None and not self.cycle.response_complete else None
        if self.pipeline or (waiting is not None and waiting.response_started):
            self.transport.close()  # an answer is on its way: a second head would stand in its body
        elif waiting is not None and not waiting.more_body:
            waiting.keep_alive = False  # what came behind it is not its fault: it is answered, and nothing after it
        else:
            body = error.body(request_id)
            fields = [*error.fields(request_id), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
            head = b"\r\n".join([*map(b": ".join, fields), b"", b""])
            self.transport.write(STATUS_LINE[error.status] + head + body)
            self.transport.close()
        self._deaf = True
