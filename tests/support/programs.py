"""Stand-ins for the programs that commands start, and the gateway's command line as a person runs it."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

END_S = 20


def put_program(folder: Path, name: str, source: str) -> Path:
    """An executable Python script called ``name``."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!{sys.executable}\n{source}")
    program.chmod(0o755)
    return program


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Running:
    """A command under way; ``said`` is what it has written to stderr so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said = ""

    def says(self, pattern: str) -> re.Match[str]:
        """Read on until a line of stderr matches."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"it ended, and never said {pattern!r}:\n{self.said}")

    def end(self) -> int:
        """Wait for its end; the exit status. The rest of stderr is in ``said``."""
        self.said += self.process.communicate(timeout=END_S)[1]
        return self.process.returncode


def _heed_signals() -> None:
    # A shell starts what it runs in the background with SIGINT ignored, and nohup with SIGHUP; the tests inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def messages_gateway(*arguments: str, path: Path, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """``messages-gateway`` with ``path`` first on PATH, and no ``GATEWAY_*`` variable but those of ``env``."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("GATEWAY_", "ANTHROPIC_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", *arguments],
        env={**inherited, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}", **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_heed_signals,
    )
    try:
        yield Running(process)
    finally:
        process.kill()
        process.communicate()
