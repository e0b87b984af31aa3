"""How an answer reaches the client: the head in one write with its body, a streamed piece in the instant it comes.

uvicorn writes head and body one after the other, and ASGI's ``send`` needs a task to be woken for each piece. Both are
most of what a request or an event costs.
"""

import asyncio
import os
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.asgi import Write
from gateway.wire.headers import Headers, header


class DirectAnswer:
    """:class:`gateway.asgi.Direct` for the answer to one request: writes what uvicorn's ``send`` would."""

    __slots__ = ("_cycle", "_transport")

    def __init__(self, cycle: RequestResponseCycle, transport: "HeadWithBody") -> None:
        self._cycle = cycle
        self._transport = transport

    def write_whole(self, status: int, headers: Headers, body: bytes) -> bool:
        """Write the whole answer, unless something waits on the way, or only ``send`` knows how to write it."""
        cycle = self._cycle
        if cycle.disconnected or cycle.flow.write_paused:
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
        self._transport.beneath.write(b"%b%b\r\n\r\n%b" % (STATUS_LINE[status], head, body))
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.message_event.set()
        cycle.on_response()
        return True

    def writer(self) -> Write | None:
        """Write pieces as chunks, each at once unless something waits on the way.

        uvloop would write them when all that can be read has been read: where the events of a hundred streams come
        together, the first would wait for the hundredth. While the connection is not lost its socket stays open, and
        what goes wrong is the transport's to find out.
        """
        cycle = self._cycle
        if not cycle.chunked_encoding:
            return None
        flow, transport = cycle.flow, self._transport.beneath
        waiting, descriptor = transport.get_write_buffer_size, transport.get_extra_info("socket").fileno()

        def write(data: bytes) -> bool:
            if flow.write_paused or cycle.disconnected or transport.is_closing():
                return False
            piece = b"%x\r\n%b\r\n" % (len(data), data)
            if not waiting():
                try:
                    written = os.write(descriptor, piece)
                except OSError:  # the socket is full, or broken
                    written = 0
                if written == len(piece):
                    return True
                piece = piece[written:]
            transport.write(piece)
            return True

        return write


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
