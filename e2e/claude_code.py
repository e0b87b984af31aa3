"""The real Claude Code and its Agent SDK: installed once a version into the cache folder, and run in a clean home.

The versions that the end-to-end run takes are here and nowhere else.
"""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.processes import STOP_TIMEOUT_S, Failure, stop
from tiny_model import cache_folder

PACKAGE = "@anthropic-ai/claude-code"
OLDER = "2.1.197"
"""It declares all of its tools at once."""
NEWER = "2.1.332"
"""It hides most of them behind a tool search."""
AGENT_SDK = "0.2.189"
"""It runs the newer."""

RUN_TIMEOUT_S = 120.0
INSTALL_TIMEOUT_S = 900.0


def defers(version: str) -> bool:
    """Whether this Claude Code hides tools behind a tool search."""
    return _numbers(version) > _numbers(OLDER)


def newest() -> str:
    """The version that npm has today."""
    return _npm("view", PACKAGE, "version").strip()


def install(version: str) -> Path:
    """Install the CLI by npm; returns its executable. Raises :class:`Failure` where npm cannot."""
    folder = cache_folder() / f"claude-code-{version}"
    executable = folder / ".bin" / "claude"
    if executable.exists():
        return executable
    print(f"installing {PACKAGE}@{version} into {folder}", flush=True)
    cache_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_folder()) as fresh:
        _npm("install", "--prefix", fresh, "--no-fund", "--no-audit", f"{PACKAGE}@{version}")
        # In one step, so that an install cut short is never taken for a whole one.
        Path(fresh, "node_modules").rename(folder)
    return executable


def install_agent_sdk() -> Path:
    """Install the Agent SDK into an environment of its own; returns the interpreter.

    It comes with a Claude Code of its own, 400 MB of it, which is taken out again.
    """
    folder = cache_folder() / f"claude-agent-sdk-{AGENT_SDK}"
    interpreter = folder / "bin" / "python"
    if (folder / "ready").exists():
        return interpreter
    print(f"installing claude-agent-sdk {AGENT_SDK} into {folder}", flush=True)
    venv.create(folder, with_pip=True, clear=True)
    pip = (str(interpreter), "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir")
    _run("pip", *pip, "install", f"claude-agent-sdk=={AGENT_SDK}")
    for bundled in folder.glob("lib/python3*/site-packages/claude_agent_sdk/_bundled/claude*"):
        bundled.unlink()
    (folder / "ready").touch()
    return interpreter


@dataclass(frozen=True)
class ClaudeCode:
    """One Claude Code, in a home of its own, pointed at the gateway at `origin`.

    With `model` every tier of it sends that name; without, its own default names. `environment` adds to what it is run
    with, `settings` is the content of its `settings.json`.
    """

    version: str
    origin: str
    folder: Path
    model: str | None
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    async def ask(self, prompt: str, *options: str) -> dict[str, Any]:
        """Ask one question; returns its JSON result. With `--continue` among the options the session goes on."""
        executable = install(self.version)
        output = await self.run(str(executable), "-p", prompt, "--output-format", "json", *options)
        return read_result(output)

    async def run(self, *command: str) -> str:
        """Run any program in this home, with this environment; returns what it printed."""
        home, work = self.folder / "home", self.folder / "work"
        for place in (home / ".claude", work):
            place.mkdir(parents=True, exist_ok=True)
        (home / ".claude" / "settings.json").write_text(json.dumps(dict(self.settings)), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self._environment(), "HOME": str(home)},
            cwd=work,
        )
        try:
            async with asyncio.timeout(RUN_TIMEOUT_S):
                output, errors = await process.communicate()
        except TimeoutError:
            raise Failure(f"{Path(command[0]).name} gave no answer in {RUN_TIMEOUT_S:.0f} s") from None
        finally:
            await stop(process, within_s=STOP_TIMEOUT_S)
        if not output:
            raise Failure(f"{Path(command[0]).name} printed nothing:\n{errors.decode(errors='replace')}")
        return output.decode(errors="replace")

    def _environment(self) -> dict[str, str]:
        environment = {
            "PATH": os.environ["PATH"],
            "TERM": "dumb",
            "ANTHROPIC_BASE_URL": self.origin,
            "ANTHROPIC_AUTH_TOKEN": "any-token",
            # This run talks to loopback and to nobody else.
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        if self.model is not None:
            tiers = ("MODEL", "DEFAULT_HAIKU_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_OPUS_MODEL")
            environment |= {f"ANTHROPIC_{tier}": self.model for tier in tiers}
        return {**environment, **self.environment}


def read_result(output: str) -> dict[str, Any]:
    """The JSON object that Claude Code prints. Raises :class:`Failure` where it printed something else."""
    try:
        result = json.loads(output)
    except ValueError:
        raise Failure(f"Claude Code printed no JSON:\n{output}") from None
    if not isinstance(result, dict):
        raise Failure(f"Claude Code printed no JSON object: {result!r}")
    return result


def _npm(*arguments: str) -> str:
    npm = shutil.which("npm")
    if npm is None:
        raise Failure("npm is not on the PATH: install Node.js 20 or newer to run Claude Code")
    return _run("npm", npm, *arguments)


def _run(name: str, *command: str) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{name} did not finish in {INSTALL_TIMEOUT_S:.0f} s") from error
    if done.returncode != 0:
        raise Failure(f"{name} failed: {' '.join(command[1:])}\n{done.stderr}")
    return done.stdout


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split("-")[0].split(".")]
