"""The client's side of HTTP/1.1, read so that no proxy before the gateway can take a request for another than it is.

uvicorn's protocol over httptools, whose parser is strict about line ends, lengths and folded headers (RFC 9112). What
it leaves open is closed here: how long a head may be, transfer codings, trailers, and requests to upgrade.
"""

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.errors import HeadTooLarge, InvalidRequest, RequestError

MAX_HEAD_BYTES = 64 * 1024
"""Bytes taken for a request's head, and for what is no body between two pieces of body; one read more may be."""


class StrictProtocol(HttpToolsProtocol):
    """A client's connection. What is not HTTP is answered in the gateway's envelope."""

    _overhead = 0
    """Bytes since the last ones that were a whole head or a body."""
    _in_body = False
    _upgrading = False

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._overhead += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.logger.warning("a client sent what is not HTTP")
            self.send_400_response("")
        except httptools.HttpParserUpgrade as upgrade:
            self._stay(data[upgrade.args[0] :])
        else:
            if self._overhead > MAX_HEAD_BYTES:
                self._refuse(HeadTooLarge(f"the request's head is larger than {MAX_HEAD_BYTES} bytes"))

    def send_400_response(self, msg: str) -> None:
        self._refuse(InvalidRequest("this is not a valid HTTP request"))

    # What the parser calls

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_body = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # a trailer: never one of the head's fields
        name = name.lower()
        if name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
        elif name == b"transfer-encoding" and (value.lower() != b"chunked" or self.parser.get_http_version() != "1.1"):
            raise ValueError("a transfer coding whose end others may see elsewhere")
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._overhead = 0
        self._in_body = True
        self._upgrading = self.parser.should_upgrade()
        if not self._upgrading:
            super().on_headers_complete()
        elif self.parser.get_method() == b"CONNECT":
            raise ValueError("the gateway is no forward proxy")

    def on_body(self, body: bytes) -> None:
        self._overhead = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._upgrading:
            super().on_message_complete()

    # What is left

    def _stay(self, rest: bytes) -> None:
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
        self.data_received(b"\r\n".join([*lines, b"", rest]))

    def _refuse(self, error: RequestError) -> None:
        started = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if started or self.pipeline:
            self.transport.close()  # an answer is on its way: a second head would stand in its body
            return
        body = error.body()
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[error.status] + head + body)
        self.transport.close()
