"""The real command as a process of its own, for tests of its port, its workers and its end."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from tests.support.eventually import eventually
from tests.support.programs import Running, messages_gateway


@asynccontextmanager
async def serving(folder: Path, *flags: str, **env: str) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
    """``messages-gateway serve`` on a free port, once it answers."""
    with messages_gateway("serve", "--port", "0", *flags, path=folder, env=env) as program:
        url = (await asyncio.to_thread(program.says, r'\burl"?[=:]"?(http[^\s"]+)'))[1]
        async with httpx.AsyncClient(base_url=url, timeout=10) as client:

            async def answers() -> bool:
                try:
                    return (await client.get("/health")).status_code == 200
                except httpx.TransportError:
                    return False

            await eventually(answers, within_s=20)
            yield program, client


async def end(program: Running, number: signal.Signals = signal.SIGTERM) -> int:
    program.process.send_signal(number)
    return await asyncio.to_thread(program.end)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def workers(program: Running) -> list[int]:
    """The processes that multiprocessing spawned for it."""
    children = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children").read_text().split()
    return [int(child) for child in children if _is_worker(Path(f"/proc/{child}/cmdline"))]


def _is_worker(command: Path) -> bool:
    try:
        return b"spawn_main" in command.read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # it has just ended, before or after the file was opened
        return False
