"""A client's connection: what it costs when its client is slow, gone or late, and how it ends when the server stops."""

import asyncio
from collections.abc import Sequence

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.asgi import DIRECT, STOPPING
from gateway.server.direct import DirectAnswer, HeadWithBody
from gateway.server.strict import StrictProtocol
from gateway.server.unchunked import UnchunkedAnswer

LINGER_S = 1.0
"""How long a connection that is idle, or becomes so, is still listened to when the server stops: a request may be on
its way, and is answered with ``connection: close``. Closing at once would lose it."""

STALLED_S = 300
"""A client that sends nothing more of its request, or takes nothing more of its answer, for that long is dropped:
nothing else would ever end either."""


class ClientConnection(StrictProtocol):
    """It offers the application a short way to the client; ``app_state`` says whether the server is being stopped."""

    transport: HeadWithBody
    _stalled: asyncio.TimerHandle | None = None
    """Runs while the client takes nothing."""
    _silent: asyncio.TimerHandle | None = None
    """Runs while the rest of a request is awaited."""
    _earlier: Sequence[RequestResponseCycle] = ()
    """Requests that were not answered when the next one came behind them."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.transport = HeadWithBody(self.loop, transport)
        # uvicorn does so after an answer; who never asks anything must not stay for ever either.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        if STOPPING in self.app_state:  # it was accepted in the same moment
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        for cycle in self._earlier:  # uvicorn tells the last request only
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._is_taken()
        self._is_heard()

    # A client that is slow to ask

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._silent is not None:
            self._is_heard()
        if self._is_idle() or self.cycle.more_body:
            self._silent = self.loop.call_later(STALLED_S, self.transport.abort)

    def _is_heard(self) -> None:
        if self._silent is not None:
            self._silent.cancel()
            self._silent = None

    # A client that is slow to take

    def pause_writing(self) -> None:
        super().pause_writing()
        self._drop_unless_taken(self.transport.get_write_buffer_size() + 1)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_taken()

    def _drop_unless_taken(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._stalled = self.loop.call_later(STALLED_S, self._drop_unless_taken, left)
        else:
            self.transport.abort()

    def _is_taken(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    # A server that stops

    def shutdown(self) -> None:
        self.app_state[STOPPING] = True
        if self._is_idle():
            self.loop.call_later(LINGER_S, self._close_if_idle)
        elif not self.cycle.response_started:
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if STOPPING in self.app_state and self._is_idle():  # its head had gone before, and promised another request
            self.loop.call_later(LINGER_S, self._close_if_idle)

    def on_headers_complete(self) -> None:
        before = self.cycle
        super().on_headers_complete()
        cycle = self.cycle
        if cycle is before:
            return  # the head is read again, without a wish that it had
        direct = DirectAnswer(cycle, self.transport)
        cycle.scope["extensions"] = {DIRECT: direct}  # type: ignore[dict-item]  # ASGI has dicts there
        if cycle.scope["http_version"] == "1.0":
            cycle.send = UnchunkedAnswer(cycle).send  # type: ignore[method-assign]
        if before is not None and not before.response_complete:
            self._earlier = [*(one for one in self._earlier if not one.response_complete), before]
        if STOPPING in self.app_state:
            cycle.keep_alive = False

    def _is_idle(self) -> bool:
        """Whether no request is being answered; one may be coming."""
        return self.cycle is None or self.cycle.response_complete

    def _close_if_idle(self) -> None:
        if self._is_idle():
            self.transport.close()
