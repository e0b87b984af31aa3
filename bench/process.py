"""A started server: its CPU time and its memory, child processes included. Linux only."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


class StartFailed(Exception):
    """A server ended, or did not listen in time; the message holds the end of its log."""


class Server:
    """One running process (and its children) that listens on a loopback port."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], port: int) -> None:
        self.name = name
        self.process = process
        self.port = port

    def cpu_ns(self) -> int:
        """User and system time so far, in ns: the process CPU clock, finer than the 10 ms ticks of /proc/PID/stat."""
        return sum(time.clock_gettime_ns(_cpu_clock(pid)) for pid in _family(self.process.pid))

    def rss_bytes(self) -> int:
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE for pid in _family(self.process.pid))

    def forget_peak(self) -> None:
        """Begin anew with what `peak_bytes` gives."""
        for pid in _family(self.process.pid):
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def peak_bytes(self) -> int:
        """The most memory that was resident since `forget_peak`."""
        return sum(_high_water(pid) for pid in _family(self.process.pid))


def _high_water(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def _cpu_clock(pid: int) -> int:
    """The clock id of a process's CPU time, as the kernel encodes it: clock_getcpuclockid(3), which Python lacks."""
    return (~pid << 3) | 2


def _family(pid: int) -> list[int]:
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        children += map(int, (task / "children").read_text().split())
    return [pid] + [member for child in children for member in _family(child)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def running(
    name: str, command: Sequence[str], port: int, *, log: Path, env: Mapping[str, str], timeout_s: float = 60
) -> Iterator[Server]:
    """Starts a server with its output in a file, waits until it listens, and ends it with everything it started.

    Raises StartFailed.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(env), start_new_session=True
        )
    try:
        _wait(name, process, port, log, timeout_s)
        yield Server(name, process, port)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(name: str, process: subprocess.Popen[bytes], port: int, log: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    tail = log.read_text(errors="replace")[-2000:]
    raise StartFailed(f"{name} does not listen on port {port} (status {process.poll()}):\n{tail}")
