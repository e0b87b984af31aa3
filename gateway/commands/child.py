"""A program that a command runs beside itself: started, watched, and gone when the command is."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.errors import MessagesGatewayError

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_TAIL_BYTES = 16_384
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


class ChildFailed(MessagesGatewayError):
    """A program ended that should have run on, or could not be started. The message has its last words."""


class Child:
    """``argv``, running in a session of its own with its output in a file.

    A session of its own keeps a Ctrl-C in the terminal from it: whoever started it stops it, in good order. Should the
    starter die first, Linux sends it SIGTERM. As a context manager it is stopped at the end; the file ``log`` stays
    where the child had failed.
    """

    def __init__(self, title: str, argv: Sequence[str], env: Mapping[str, str], *, grace_s: float) -> None:
        self.title = title
        self._grace_s = grace_s
        self._failed = False
        with tempfile.NamedTemporaryFile(prefix="messages-gateway-", suffix=".log", delete=False) as output:
            self.log = Path(output.name)
            try:
                self.process = subprocess.Popen(
                    argv,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_die_with_parent if _LIBC else None,
                )
            except OSError as error:
                self.log.unlink()
                raise ChildFailed(f"{title} could not be started: {error.strerror} ({argv[0]})") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:  # a second Ctrl-C leaves no file behind either
            if not self._failed:
                self.log.unlink(missing_ok=True)

    def check(self) -> None:
        """Raises :class:`ChildFailed` where it has ended."""
        if self.process.poll() is not None:
            raise self.failure()

    def failure(self) -> ChildFailed:
        """Why it ended, as far as its output tells; the output is kept."""
        self._failed = True
        code = self.process.returncode
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        last = "\n".join(f"  {line}" for line in self.last_lines(12)) or "  (none)"
        return ChildFailed(f"{self.title} ended ({how}). Its last words:\n{last}\nAll of them: {self.log}")

    def last_lines(self, count: int) -> list[str]:
        """The last lines of its output that hold something, without colours."""
        with self.log.open("rb") as output:
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - _TAIL_BYTES))
            text = output.read().decode("utf-8", "replace")
        lines = (_ANSI.sub("", line).rstrip() for line in re.split(r"[\r\n]+", text))
        return [line for line in lines if line][-count:]

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for it and all of its own after the grace, or when that wait is interrupted."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(self._grace_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._kill_group()
            self.process.wait()

    def _kill_group(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nothing of it is left
        except PermissionError:
            self.process.kill()  # macOS, where only a zombie is left of the group


def _die_with_parent() -> None:
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
