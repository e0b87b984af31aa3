"""What an end-to-end run starts and stops: servers on loopback, the gateway."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import uvicorn
from starlette.types import ASGIApp

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


class Failure(Exception):
    """The run cannot go on; the message says why and what to do."""


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[str]:
    """Serve an ASGI app on a free loopback port; yields its origin."""
    # Named as TCP: asyncio turns off Nagle's delay only for a socket that says what it is.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


@asynccontextmanager
async def gateway(*flags: str, environment: Mapping[str, str] | None = None) -> AsyncIterator[str]:
    """Run `messages-gateway serve` with `flags` on a free port, as a process of its own; yields its origin."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("messages-gateway")), "serve", "--port", str(port), *flags]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=ours | dict(environment or {})
        )
        origin = f"http://127.0.0.1:{port}"
        try:
            await until_healthy(origin, process, "the gateway", within_s=START_TIMEOUT_S)
            yield origin
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace"))
            raise
        finally:
            await stop(process, within_s=STOP_TIMEOUT_S)


async def until_healthy(origin: str, process: asyncio.subprocess.Process, name: str, *, within_s: float) -> None:
    """Return once the server answers. Raises :class:`Failure` where it ends first, TimeoutError where it is late."""
    async with httpx.AsyncClient() as client, asyncio.timeout(within_s):
        while True:
            if process.returncode is not None:
                raise Failure(f"{name} stopped with exit status {process.returncode} before it answered")
            try:
                if (await client.get(f"{origin}/health")).status_code == 200:
                    return
            except httpx.TransportError:
                pass  # not listening yet
            await asyncio.sleep(0.05)


async def stop(process: asyncio.subprocess.Process, *, within_s: float) -> None:
    """End a process that may have ended: SIGTERM, and SIGKILL where that does not do in time."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(within_s):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
