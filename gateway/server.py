"""The server under the application: uvicorn, in one process or several that share the port."""

import asyncio
import math
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import structlog
import uvicorn
from pydantic import SecretStr
from uvicorn.server import ServerState

from gateway.app import STOPPING, Gateway, make_search
from gateway.errors import SettingsError
from gateway.log import configure_logging
from gateway.metrics import MULTIPROCESS_DIR
from gateway.reach import listens
from gateway.settings import Settings, unknown_variables
from gateway.strict import StrictProtocol
from gateway.workers import Workers, end_with_supervisor

KEEP_ALIVE_S = 75
"""How long an idle client connection is kept: longer than what balancers keep theirs, so that they close first."""


LINGER_S = 1.0
"""How long an idle connection is still listened to when the server stops: a request may be on its way, and is answered
with ``connection: close``. Closing at once would lose it."""

STALLED_S = 300
"""A client that takes nothing of its answer for that long is dropped: nothing else would ever end its request."""


def serve(
    settings: Settings,
    beside: AbstractContextManager[None] | None = None,
    reread: Callable[[], Settings] | None = None,
) -> None:
    """Serve until a signal ends it. Raises :class:`gateway.errors.SettingsError` for what shows only at the start.

    ``beside`` is entered once the port is taken, before the first request is read, and left at the end. ``reread``
    gives the settings that workers have after SIGHUP; the port, the address and the number of workers stay.
    """
    configure_logging(settings.log_level, settings.log_format)
    log = structlog.get_logger()
    for name in unknown_variables():
        log.warning("there is no such setting", variable=name)
    if beside is None and not listens(settings.upstream):
        log.warning(
            "nothing answers at upstream: is the model server up, and is --upstream its address? "
            "messages-gateway doctor looks closer",
            upstream=settings.upstream,
        )
    make_search(settings)  # a key that is missing stops the start here, not the first search
    if not settings.seal_keys:
        # One key for all the workers; another process, or this one started anew, cannot open what it sealed.
        settings = settings.model_copy(update={"seal_keys": (SecretStr(secrets.token_urlsafe(32)),)})
        log.info("GATEWAY_SEAL_KEYS is not set: a random key seals search results; replicas need one in common")
    with _listening(settings.host, settings.port) as listener, beside or nullcontext():
        host, port = listener.getsockname()[:2]
        log.info("listening", url=f"http://{f'[{host}]' if ':' in host else host}:{port}", upstream=settings.upstream)
        if settings.workers == 1:
            uvicorn.Server(_config_of(settings)).run([listener])
        else:

            def anew() -> uvicorn.Config:
                read = reread() if reread else settings
                return _config_of(read.model_copy(update={"seal_keys": read.seal_keys or settings.seal_keys}))

            with _shared_metrics():
                Workers(_config_of(settings), [listener], anew).run()


@asynccontextmanager
async def loopback(app: Any, *, drain_s: float = 1) -> AsyncIterator[str]:
    """Serve an ASGI application on a free port of 127.0.0.1, in the running event loop; yields its URL.

    At the end requests under way have ``drain_s`` to finish, and are then cancelled.
    """
    config = uvicorn_config(app, drain_s=drain_s, factory=False)
    config.load()
    state, lifespan = ServerState(), config.lifespan_class(config)
    await lifespan.startup()
    if lifespan.should_exit:
        raise SettingsError("the application did not start; the log says why")
    loop = asyncio.get_running_loop()
    with _listening("127.0.0.1", 0) as listener:
        server = await loop.create_server(lambda: _Protocol(config, state, lifespan.state), sock=listener)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.close()
            for connection in list(state.connections):
                connection.shutdown()
            if state.tasks:
                _, late = await asyncio.wait(state.tasks, timeout=drain_s)
                for task in late:
                    task.cancel()
            await lifespan.shutdown()


def _config_of(settings: Settings) -> uvicorn.Config:
    return uvicorn_config(_Application(settings), drain_s=settings.drain_s, workers=settings.workers)


def uvicorn_config(app: Any, *, drain_s: float, workers: int = 1, factory: bool = True) -> uvicorn.Config:
    """uvicorn as the gateway runs it: the fast parts, and nothing added to what passes."""
    return uvicorn.Config(
        app,
        factory=factory,
        workers=workers,
        loop="uvloop",
        http=_Protocol,
        ws="none",
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(drain_s),
    )


@dataclass(frozen=True)
class _Application:
    """Makes the application in the process that serves it; crosses to a worker by pickling."""

    settings: Settings

    def __call__(self) -> Any:
        configure_logging(self.settings.log_level, self.settings.log_format)
        end_with_supervisor()
        return Gateway(self.settings)


class _Protocol(StrictProtocol):
    """A client's connection, on which a small answer is one write; in ``app_state`` stands whether the server stops."""

    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self.transport = _HeadWithBody(self.loop, transport)
        if STOPPING in self.app_state:  # it was accepted in the same moment
            self.shutdown()

    def shutdown(self) -> None:
        self.app_state[STOPPING] = True
        if self._is_idle():
            self.loop.call_later(LINGER_S, self._close_if_idle)
        else:
            self.cycle.keep_alive = False

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if STOPPING in self.app_state and self.cycle is not None:
            self.cycle.keep_alive = False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._drop_unless_read(self.transport.get_write_buffer_size() + 1)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_waiting()

    def _drop_unless_read(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._stalled = self.loop.call_later(STALLED_S, self._drop_unless_read, left)
        else:
            self.transport.abort()

    def _stop_waiting(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _close_if_idle(self) -> None:
        if self._is_idle():
            self.transport.close()


class _HeadWithBody(asyncio.Transport):
    """Holds an answer's head back until its body is written, or the event loop comes round.

    uvicorn writes them one after the other; a write is the dearest thing there is on a small request's way.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        super().__init__()
        self._loop = loop
        self._transport = transport
        self._head = b""

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


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {host} port {port} ({error.strerror}): choose another with --port or --host"
        ) from None
    with listener:
        listener.set_inheritable(True)
        yield listener


@contextmanager
def _shared_metrics() -> Iterator[None]:
    """A directory where the workers keep their metrics, so that each can show those of all."""
    if os.environ.get(MULTIPROCESS_DIR):
        yield
        return
    directory = tempfile.mkdtemp(prefix="messages-gateway-metrics-")
    os.environ[MULTIPROCESS_DIR] = directory
    try:
        yield
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        del os.environ[MULTIPROCESS_DIR]
