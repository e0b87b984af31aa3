"""The server under the application: uvicorn, in one process or several that share the port."""

import asyncio
import math
import multiprocessing
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass

import structlog
import uvicorn
from pydantic import SecretStr
from starlette.types import ASGIApp
from uvicorn.config import STARTUP_FAILURE
from uvicorn.server import ServerState

from gateway.app import Gateway
from gateway.books.log import configure_logging
from gateway.errors import SettingsError
from gateway.server.connection import ClientConnection
from gateway.server.reach import listens, origin_at
from gateway.server.shared_metrics import shared_metrics
from gateway.server.workers import Workers, end_with_supervisor
from gateway.settings import Settings, unknown_variables
from gateway.tools.runners import make_runners

WORKER_ANSWERS_S = 30
"""How long a worker may take to answer its supervisor before it is taken for hung. Its start counts: long, on a part of
a core."""

KEEP_ALIVE_S = 75
"""How long an idle client connection is kept: longer than what balancers keep theirs, so that they close first."""


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
    make_runners(settings, {})  # a key that is missing stops the start here, not the first call
    if not settings.seal_keys:
        # One key for all the workers; another process, or this one started anew, cannot open what it sealed.
        settings = settings.model_copy(update={"seal_keys": (SecretStr(secrets.token_urlsafe(32)),)})
        log.info("GATEWAY_SEAL_KEYS is not set: a random key seals search results; replicas need one in common")
    with _listening(settings.host, settings.port) as listener, beside or nullcontext():
        host, port = listener.getsockname()[:2]
        log.info("listening", url=origin_at(host, port), upstream=settings.upstream)
        if settings.workers == 1:
            uvicorn.Server(_config_of(settings)).run([listener])
        else:

            def anew() -> uvicorn.Config:
                read = reread() if reread else settings
                return _config_of(read.model_copy(update={"seal_keys": read.seal_keys or settings.seal_keys}))

            with shared_metrics() as metrics:
                Workers(_config_of(settings), [listener], anew, metrics).run()


@asynccontextmanager
async def loopback(app: ASGIApp, *, drain_s: float = 1) -> AsyncIterator[str]:
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
        server = await loop.create_server(lambda: ClientConnection(config, state, lifespan.state), sock=listener)
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


def uvicorn_config(
    app: ASGIApp | Callable[[], ASGIApp], *, drain_s: float, workers: int = 1, factory: bool = True
) -> uvicorn.Config:
    """uvicorn as the gateway runs it: the fast parts, and nothing added to what passes."""
    return uvicorn.Config(
        app,
        factory=factory,
        workers=workers,
        loop="uvloop",
        http=ClientConnection,
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
        timeout_worker_healthcheck=WORKER_ANSWERS_S,
    )


@dataclass(frozen=True)
class _Application:
    """Makes the application in the process that serves it; crosses to a worker by pickling."""

    settings: Settings

    def __call__(self) -> ASGIApp:
        configure_logging(self.settings.log_level, self.settings.log_format)
        end_with_supervisor()
        try:
            return Gateway(self.settings)
        except SettingsError as error:
            if multiprocessing.parent_process() is None:
                raise
            structlog.get_logger().error("a server process cannot start", why=str(error))
            sys.exit(STARTUP_FAILURE)


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
