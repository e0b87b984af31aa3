"""What an end-to-end run starts and stops: servers on loopback, the gateway, Claude Code."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.types import ASGIApp

from tiny_model import cache_folder

CLAUDE_CODE = "@anthropic-ai/claude-code"
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
RUN_TIMEOUT_S = 120.0
INSTALL_TIMEOUT_S = 900.0


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
async def gateway(*flags: str) -> AsyncIterator[str]:
    """Run `messages-gateway serve` with `flags` on a free port, as a process of its own; yields its origin."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("messages-gateway")), "serve", "--port", str(port), *flags]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
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


def install_claude_code(version: str) -> Path:
    """Install the CLI by npm into the cache folder, once a version; returns its executable."""
    cache = cache_folder()
    folder = cache / f"claude-code-{version}"
    executable = folder / ".bin" / "claude"
    if executable.exists():
        return executable
    npm = shutil.which("npm")
    if npm is None:
        raise Failure("npm is not on the PATH: install Node.js 20 or newer to run Claude Code")
    print(f"installing {CLAUDE_CODE}@{version} into {folder}", flush=True)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as fresh:
        command = [npm, "install", "--prefix", fresh, "--no-fund", "--no-audit", f"{CLAUDE_CODE}@{version}"]
        try:
            npm_run = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
            )
        except subprocess.TimeoutExpired as error:
            raise Failure(f"npm did not install {CLAUDE_CODE}@{version} in {INSTALL_TIMEOUT_S:.0f} s") from error
        if npm_run.returncode != 0:
            raise Failure(f"npm could not install {CLAUDE_CODE}@{version}:\n{npm_run.stderr}")
        # In one step, so that an install cut short is never taken for a whole one.
        Path(fresh, "node_modules").rename(folder)
    return executable


async def ask_claude_code(executable: Path, origin: str, prompt: str, *, model: str | None) -> dict[str, Any]:
    """Ask one question of Claude Code pointed at `origin`, in a home and an environment of its own.

    With `model` every tier of it sends that name; without, its own default names. Returns its JSON result.
    """
    environment = {
        "PATH": os.environ["PATH"],
        "TERM": "dumb",
        "ANTHROPIC_BASE_URL": origin,
        "ANTHROPIC_AUTH_TOKEN": "any-token",
        # This run talks to loopback and to nobody else.
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    if model is not None:
        tiers = ("MODEL", "DEFAULT_HAIKU_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_OPUS_MODEL")
        environment |= {f"ANTHROPIC_{tier}": model for tier in tiers}
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as work:
        process = await asyncio.create_subprocess_exec(
            *(str(executable), "-p", prompt, "--allowedTools", "WebSearch", "--output-format", "json"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**environment, "HOME": home},
            cwd=work,
        )
        try:
            async with asyncio.timeout(RUN_TIMEOUT_S):
                output, errors = await process.communicate()
        except TimeoutError:
            raise Failure(f"Claude Code gave no answer in {RUN_TIMEOUT_S:.0f} s") from None
        finally:
            await stop(process, within_s=STOP_TIMEOUT_S)
    try:
        result = json.loads(output)
    except ValueError:
        raise Failure(f"Claude Code printed no JSON:\n{(output + errors).decode(errors='replace')}") from None
    if not isinstance(result, dict):
        raise Failure(f"Claude Code printed no JSON object: {result!r}")
    return result
