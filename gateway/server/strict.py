"""The client's side of HTTP/1.1, read so that no proxy before the gateway can take a request for another than it is.

uvicorn's protocol over httptools, whose parser is strict about line ends, lengths and folded headers (RFC 9112). What
it leaves open is closed here: how long a head may be, the request line's form, the host, transfer codings, trailers,
and requests to upgrade.
"""

import re
from typing import Literal

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.errors import HeadTooLarge, InvalidRequest, RequestError

MAX_HEAD_BYTES = 64 * 1024
"""Bytes taken for a request's head, and for what frames a body's chunks between two of them; one read more may be."""

_HOST = re.compile(rb"(?:[A-Za-z0-9._~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
"""A host and a port (RFC 3986, 3.2.2)."""


class StrictProtocol(HttpToolsProtocol):
    """A client's connection. What is not HTTP is answered in the gateway's envelope."""

    _overhead = 0
    """Bytes since the last ones that were a whole head or a body."""
    _place: Literal["between", "head", "body"] = "between"
    """Where in a request, or between two, the parser is."""
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
        self._unset_keepalive_if_required()
        at = 0
        while at < len(data) and not self._deaf:
            at += self._read(data, at)
        if self._overhead > MAX_HEAD_BYTES and not self._deaf:
            self._refuse(HeadTooLarge(f"the request's head is larger than {MAX_HEAD_BYTES} bytes"))

    def _read(self, data: bytes, at: int) -> int:
        """Read on from there; the number of bytes that were read."""
        taken = len(data) - at
        self._overhead += taken
        if self._place == "head":
            self._seen, self._seen_up_to = self._seen[-MAX_HEAD_BYTES:] + data, 0
        else:
            self._seen, self._seen_up_to, self._behind = data, at, self._place == "body"
        try:
            try:
                self.parser.feed_data(memoryview(data)[at:] if at else data)
            except httptools.HttpParserUpgrade as upgrade:
                taken = upgrade.args[0]
                self._read_without_the_wish()
        except httptools.HttpParserError:
            self.logger.warning("a client sent what is not HTTP")
            self.send_400_response("")
        if self._place != "head":
            self._seen = b""
        return taken

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidRequest("this is not a valid HTTP request"))

    # What the parser calls. A ValueError makes what it reads no HTTP.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._place = "head"
        self._hosts = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._place == "body":
            return  # a trailer: never one of the head's fields
        name = name.lower()
        if name == b"transfer-encoding" and (value.lower() != b"chunked" or self.parser.get_http_version() != "1.1"):
            raise ValueError("a transfer coding whose end others may see elsewhere")
        value = value.rstrip(b" \t")
        if name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
        elif name == b"host":
            self._hosts += 1
            if value != self._host:
                if not _HOST.fullmatch(value):
                    raise ValueError("a host that is none")
                self._host = value
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._overhead = 0
        self._place = "body"
        self._check_beginning()
        self._upgrading = self.parser.should_upgrade()
        if not self._upgrading:
            super().on_headers_complete()
        elif self.parser.get_method() == b"CONNECT":
            raise ValueError("the gateway is no forward proxy")

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._place = "between"
        if not self._upgrading:
            super().on_message_complete()

    def _check_beginning(self) -> None:
        """One space between the request line's words, a version that is spoken here, and one host."""
        version = self.parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise ValueError("another version of HTTP")
        if self._hosts != 1 and (self._hosts or version == "1.1"):
            raise ValueError("not one host")
        line = b"%b %b HTTP/%b\r\n" % (self.parser.get_method(), self.url, version.encode())
        at = self._seen_up_to
        if self._behind:
            at = self._seen.find(line, at)
        elif not self._seen.startswith(line, at):
            while self._seen.startswith(b"\r\n", at):  # empty lines before it (RFC 9112, 2.2)
                at += 2
            at = at if self._seen.startswith(line, at) else -1
        if at < 0:
            raise ValueError("a request line that others may read otherwise")
        self._seen_up_to = at + len(line)
        self._behind = True

    # What is left

    def _read_without_the_wish(self) -> None:
        """Pass over a wish to upgrade, as a server may (RFC 9110, 7.8).

        The parser takes what follows such a head for the other protocol, so that a body would be lost, or be read as
        the next request: the same head is read again without the wish.
        """
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                value = b",".join(token for token in value.split(b",") if token.strip().lower() != b"upgrade")
            if name != b"upgrade":
                lines.append(name + b": " + value)
        self.parser = httptools.HttpRequestParser(self)
        self._seen, self._seen_up_to, self._behind = b"\r\n".join([*lines, b"", b""]), 0, False
        self.parser.feed_data(self._seen)

    def _refuse(self, error: RequestError) -> None:
        """Answer what is not HTTP, if it is its turn to be answered, and end the connection."""
        waiting = self.cycle if self.cycle is not None and not self.cycle.response_complete else None
        if self.pipeline or (waiting is not None and waiting.response_started):
            self.transport.close()  # an answer is on its way: a second head would stand in its body
        elif waiting is not None and not waiting.more_body:
            waiting.keep_alive = False  # what came behind it is not its fault: it is answered, and nothing after it
        else:
            body = error.body()
            advice = b"".join(b"%b: %b\r\n" % field for field in error.advice)
            head = b"content-type: application/json\r\n%bcontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(STATUS_LINE[error.status] + head % (advice, len(body)) + body)
            self.transport.close()
        self._deaf = True
