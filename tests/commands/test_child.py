"""A program beside a command: stopped in good order, by force where that fails, and heard when it fails."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from gateway.commands.child import Child, ChildFailed

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(own.pid, flush=True)
time.sleep(60)
"""


def run(source: str, grace_s: float = 10) -> Child:
    return Child("the program", [sys.executable, "-c", source], os.environ, grace_s=grace_s)


def is_there(pid: int) -> bool:
    """Whether it runs; a zombie that nobody has waited for does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # gone before the file was opened, or after
        return False


def test_what_ignores_sigterm_is_killed_with_all_of_its_own() -> None:
    with run(STUBBORN, grace_s=0.1) as child:
        while not (lines := child.last_lines(1)):
            time.sleep(0.01)
    assert child.process.returncode == -signal.SIGKILL
    own = int(lines[0])
    while is_there(own):
        time.sleep(0.01)
    assert not child.log.exists()


def test_a_second_interrupt_leaves_no_file_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    child = run(STUBBORN)

    def interrupted(*_: float) -> int:
        monkeypatch.undo()
        raise KeyboardInterrupt

    while not child.last_lines(1):
        time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt), child:
        monkeypatch.setattr(child.process, "wait", interrupted)
    assert child.process.returncode == -signal.SIGKILL
    assert not child.log.exists()


def test_an_end_that_nobody_asked_for_is_told_with_its_last_words() -> None:
    with run("print('first'); print('\\x1b[31mlast\\x1b[0m\\n\\n'); raise SystemExit(4)") as child:
        child.process.wait()
        with pytest.raises(ChildFailed) as failure:
            child.check()
    assert str(failure.value) == (
        f"the program ended (exit status 4). Its last words:\n  first\n  last\nAll of them: {child.log}"
    )
    child.log.unlink()


def test_a_signal_is_named() -> None:
    with run("import os; os.kill(os.getpid(), 9)") as child:
        child.process.wait()
        assert str(child.failure()).startswith("the program ended (signal SIGKILL). Its last words:\n  (none)\n")
    child.log.unlink()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ChildFailed, match="the program could not be started: No such file or directory"):
        Child("the program", [str(tmp_path / "nothing")], os.environ, grace_s=1)
