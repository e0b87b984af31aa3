"""How an answer reaches the client: the head in one write with its body, a streamed piece in the instant it comes.

uvicorn writes head and body one after the other, and ASGI's ``send`` needs a task to be woken for each piece. Both are
most of what a request or an event costs.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.wire.headers import Headers, header


def write_whole(send: Send, status: int, headers: Headers, body: bytes) -> bool:
    """Write an answer that is here whole past ``send``, which would write the same bytes; False where it is for that.

    ``headers`` are those that upstream's parser let through, without the hop's own: they hold nothing that could end
    a line. Only uvicorn's ``send`` can be gone past, while nothing waits on the way to the client.
    """
    cycle = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle) or cycle.disconnected or cycle.flow.write_paused:
        return False
    if not cycle.keep_alive or cycle.default_headers or cycle.access_log:
        return False
    if cycle.scope["method"] == "HEAD" or status in (204, 304):
        return False
    lines = [*map(b": ".join, headers)]
    length = header(headers, b"content-length")
    if length is None:
        lines.append(b"transfer-encoding: chunked")
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    elif length != b"%d" % len(body):
        return False
    head = b"\r\n".join(lines)
    _beneath(cycle).write(b"%b%b\r\n\r\n%b" % (STATUS_LINE[status], head, body))
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.message_event.set()
    cycle.on_response()
    return True


def sink_of(send: Send | None, takes: Callable[[bytes], bool]) -> Callable[[bytes], bool] | None:
    """What writes a piece of the body past ``send``, which would write the same bytes, and says whether it did.

    It does where nothing waits on the way to the client, and ``takes`` says yes to the piece; else it is for ``send``.
    The answer's head has been sent, the last of its body has not. None but for uvicorn's ``send`` and a chunked body.
    """
    cycle = getattr(send, "__self__", None)
    if not isinstance(cycle, RequestResponseCycle) or not cycle.chunked_encoding:
        return None
    flow, write = cycle.flow, _beneath(cycle).write

    def sink(data: bytes) -> bool:
        if flow.write_paused or cycle.disconnected or not takes(data):
            return False
        write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    return sink


def _beneath(cycle: RequestResponseCycle) -> asyncio.Transport:
    transport = cycle.transport
    return transport.beneath if isinstance(transport, HeadWithBody) else transport


class HeadWithBody(asyncio.Transport):
    """Holds an answer's head back until its body is written, or the event loop comes round.

    uvicorn writes them one after the other; a write is the dearest thing there is on a small request's way.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        super().__init__()
        self._loop = loop
        self._transport = transport
        self._head = b""

    @property
    def beneath(self) -> asyncio.Transport:
        """The transport itself, for what comes after a head that has gone; writing to it is cheaper."""
        self._flush()
        return self._transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif data[:9] == b"HTTP/1.1 ":  # a body that begins like that is only held for as long
            self._head = bytes(data)
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._transport.write(head)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)
