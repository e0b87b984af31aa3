"""A vLLM of the gateway's own: ``serve --model NAME`` starts one at the upstream's address, and stops it at the end."""

import os
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import httpx
from rich.console import Console
from rich.text import Text

from gateway.commands.child import Child
from gateway.commands.vllm.families import family_of
from gateway.errors import SettingsError
from gateway.server.reach import LOOPBACK, address_of, listens, origin_at
from gateway.settings import ENV_PREFIX

STOP_GRACE_S = 30.0
_POLL_S = 0.5
_INSTALL = "pip install 'messages-gateway[vllm]'"
_NO_PARSER = (
    "no tool call parser is known for this model, so its calls stay text; the parsers are at "
    "https://docs.vllm.ai/en/latest/features/tool_calling/, and one is named with "
    "--vllm-arg '--enable-auto-tool-choice --tool-call-parser NAME'"
)


def vllm_arguments(model: str, origin: str, extra: Sequence[str] = ()) -> list[str]:
    """What follows ``vllm`` to serve ``model`` at ``origin``.

    ``extra`` are arguments of the operator's, each an option with or without its value; one the table has too replaces
    the table's.
    """
    host, port = address_of(origin)
    family = family_of(model)
    known = [] if family is None else _options([*family.tool_flags, *family.reasoning_flags])
    given = _options([word for argument in extra for word in shlex.split(argument)])
    replaced = {_name(option) for option in given}
    kept = [option for option in known if _name(option) not in replaced]
    words = [word for option in [*kept, *given] for word in option]
    return ["serve", model, "--host", host, "--port", str(port), *words]


@contextmanager
def running_vllm(model: str, origin: str, extra: Sequence[str] = (), console: Console | None = None) -> Iterator[None]:
    """vLLM serving ``model`` at ``origin``, from the moment it is ready; for the main thread.

    Should it end while the gateway serves, this process gets SIGTERM, and the end of the context raises ChildFailed.

    Raises:
        SettingsError: vLLM is not installed, or cannot run at that address; the message says what to type.
        ChildFailed: vLLM ended before it was ready.
    """
    console = console or Console(stderr=True, highlight=False, soft_wrap=True)
    program = _find_vllm()
    _require_free(origin)
    argv = [program, *vllm_arguments(model, origin, extra)]
    env = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    # The server restores the handlers it found and raises the signal that ended it once more: without one of ours,
    # that would be the end of this process before vLLM is stopped.
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, _exit)}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # a terminal that closes; nohup ignores it, and so do we
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, _terminate)
    try:
        with Child("vLLM", argv, env, grace_s=STOP_GRACE_S) as child:
            console.print(Text(f"starting {shlex.join(['vllm', *argv[1:]])}\nits output: {child.log}"))
            if "--tool-call-parser" not in " ".join(argv).replace("_", "-"):
                console.print(Text(_NO_PARSER))
            _await_ready(child, origin, console)
            ended = _Watch(child)
            try:
                yield
            except SystemExit:
                if not ended.early:
                    raise
            finally:
                ended.expected()
                if not ended.early:
                    console.print(Text("stopping vLLM"))
            if ended.early:
                raise child.failure()
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class _Watch:
    """Ends the gateway when vLLM ends by itself."""

    def __init__(self, child: Child) -> None:
        self.early = False
        self._child = child
        self._expected = threading.Event()
        threading.Thread(target=self._wait, name="vllm-watch", daemon=True).start()

    def expected(self) -> None:
        self._expected.set()

    def _wait(self) -> None:
        while not self._expected.wait(_POLL_S):
            if self._child.process.poll() is not None:
                self.early = True
                os.kill(os.getpid(), signal.SIGTERM)
                return


def _await_ready(child: Child, origin: str, console: Console) -> None:
    started = time.monotonic()
    with console.status("") as status, httpx.Client(base_url=origin, trust_env=False, timeout=5) as client:
        while not _is_ready(client):
            child.check()
            last = "".join(child.last_lines(1))
            line = f"vLLM is starting, {time.monotonic() - started:.0f} s: {last}"
            status.update(Text(line, no_wrap=True, overflow="ellipsis"))
            time.sleep(_POLL_S)
    console.print(Text(f"vLLM is ready after {time.monotonic() - started:.0f} s"))


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def _find_vllm() -> str:
    # Beside this Python first: the extra installs it there, and a virtual environment need not be on PATH.
    here = str(Path(sys.executable).parent)
    program = shutil.which("vllm", path=os.pathsep.join((here, os.environ.get("PATH", ""))))
    if program is None:
        raise SettingsError(
            f"--model starts vLLM, which is not installed: {_INSTALL}. To use a server that runs elsewhere, leave "
            "--model out and give its address with --upstream"
        )
    return program


def _require_free(origin: str) -> None:
    host, port = address_of(origin)
    if origin.startswith("https:") or host not in LOOPBACK:
        raise SettingsError(
            f"--model starts vLLM on this machine, and --upstream is {origin}: give a loopback address, as in "
            "--upstream http://127.0.0.1:8000, or leave --model out"
        )
    if listens(origin):
        raise SettingsError(
            f"something listens at {origin} already: leave --model out to use it, or have vLLM listen elsewhere with "
            f"--upstream {origin_at(host, port + 1)}"
        )


def _options(words: Sequence[str]) -> list[list[str]]:
    """``--a 1 --b`` as ``[[--a, 1], [--b]]``."""
    options: list[list[str]] = []
    for word in words:
        if word.startswith("-") or not options:
            options.append([word])
        else:
            options[-1].append(word)
    return options


def _name(option: Sequence[str]) -> str:
    return option[0].partition("=")[0].replace("_", "-")


def _exit(signum: int, _: FrameType | None) -> None:
    sys.exit(128 + signum)


def _terminate(signum: int, _: FrameType | None) -> None:
    signal.raise_signal(signal.SIGTERM)
