"""The `anthropic` SDK, through the gateway, against a real vLLM: `make e2e-vllm`.

vLLM's CPU build and a tiny model that calls tools, both made once and kept in the cache folder; the gateway as its
users start it; a search backend on loopback. Nothing but the first install needs a network. `--upstream` and `--model`
take a server that is already there, on a GPU say, instead. Exit status 1 when a check fails; 0, and the reason, where
vLLM cannot be had.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
from anthropic import AsyncAnthropic
from rich.console import Console

from e2e import vllm_checks as checks
from e2e import vllm_deferred, vllm_tokens
from e2e.processes import Failure, free_port, gateway, serving
from e2e.vllm_checks import Check, Stage
from e2e.vllm_server import MODEL_NAME, Unavailable, install, serving_vllm, tiny_model
from e2e.vllm_web import ReleaseSearxng
from recorder.cassette import Cassette

RECORDER_TIMEOUT_S = 30.0


class Report:
    """Prints each check as it is done, and counts."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self.checks = 0
        self.failed = 0

    async def section(self, title: str, found: AsyncIterator[Check]) -> None:
        """Run and print one subject."""
        self.console.print(f"\n[bold]{title}[/bold]")
        async for check in found:
            self.line(check)

    def line(self, check: Check) -> None:
        """Print one check."""
        self.checks += 1
        self.failed += not check.right
        self.console.print("  [green]ok  [/green]" if check.right else "  [red]FAIL[/red]", f"{check.what}: ", end="")
        self.console.print(str(check.seen), markup=False)

    def closing(self) -> int:
        """Print the sum; returns the exit status."""
        sum_ = f"{self.failed} of {self.checks} checks failed" if self.failed else f"all {self.checks} checks passed"
        self.console.print(f"\n{sum_}")
        return 1 if self.failed else 0


async def main(options: argparse.Namespace) -> int:
    """Start what is needed, run every check, print the report; returns the exit status."""
    report = Report()
    started = perf_counter()
    async with AsyncExitStack() as stack:
        upstream, model = options.upstream, options.model
        if upstream is None:
            environment = options.vllm or install()
            folder = options.tiny_model or tiny_model(environment)
            upstream = await stack.enter_async_context(serving_vllm(environment, folder))
        async with httpx.AsyncClient() as client:
            version = (await client.get(f"{upstream}/version")).json()
        report.console.print(f"vLLM {version.get('version')} serves {model} after {perf_counter() - started:.0f} s")
        web = ReleaseSearxng()
        search = await stack.enter_async_context(serving(web.app))
        backend = ("--search-provider", "searxng", "--search-base-url", search)

        async with gateway("--upstream", upstream, *backend) as origin:
            await _turns(report, _stage(options, origin, upstream, web))
            if options.upstream is None or options.exact:
                await _tokens(report, origin, upstream, model)
        for transport, stream in (("JSON", False), ("streaming", True)):
            await _conversation(report, options, upstream, web, backend, transport, stream)
        if options.upstream is None or options.scale_out:
            for name, discovery in vllm_deferred.CONVERSATIONS.items():
                bodies = await _asked(upstream, model, discovery)
                await report.section(f"deferred tools: {name}", vllm_deferred.prefixes(upstream, bodies))
    return report.closing()


async def _asked(upstream: str, model: str, discovery: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What vLLM is asked in a conversation with deferred tools."""
    with tempfile.TemporaryDirectory() as folder:
        cassette = Path(folder) / "conversation.yaml"
        async with recording(upstream, cassette) as recorder, gateway("--upstream", recorder) as origin:
            await vllm_deferred.converse(origin, model, discovery)
        return [turn.request.body for turn in Cassette(cassette) if turn.request.path == "/v1/messages"]


def _stage(options: argparse.Namespace, origin: str, upstream: str, web: ReleaseSearxng) -> Stage:
    client = AsyncAnthropic(base_url=origin, api_key="any", max_retries=0)
    return Stage(client, options.model, web, upstream, exact=options.upstream is None or options.exact)


async def _turns(report: Report, stage: Stage) -> None:
    for scenario in checks.SCENARIOS:
        await report.section(scenario.name, checks.loop(stage, scenario))
    if stage.exact:
        for transport, stream in (("JSON", False), ("streaming", True)):
            await report.section(f"native beside a client's call, {transport}", checks.mixed(stage, stream=stream))
    await report.section("count_tokens", checks.counting(stage))
    await report.section("errors of upstream", checks.errors(stage))
    for name, tools in (("proxy", ()), ("loop", (checks.FUNCTION,))):
        for transport, stream in (("JSON", False), ("streaming", True)):
            await report.section(f"the client leaves: {name}, {transport}", checks.leaving(stage, tools, stream=stream))


async def _tokens(report: Report, origin: str, upstream: str, model: str) -> None:
    """What only the tiny model's short answers allow: equality with vLLM's own, token by token."""
    async with httpx.AsyncClient(timeout=60) as client:
        sides = vllm_tokens.Sides(client, origin, upstream, model)
        for title, section in vllm_tokens.SECTIONS:
            await report.section(title, section(sides))


async def _conversation(
    report: Report,
    options: argparse.Namespace,
    upstream: str,
    web: ReleaseSearxng,
    backend: tuple[str, ...],
    transport: str,
    stream: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        cassette = Path(folder) / "conversation.yaml"
        async with recording(upstream, cassette) as recorder, gateway("--upstream", recorder, *backend) as origin:
            stage = _stage(options, origin, upstream, web)
            await report.section(f"five turns, {transport}", checks.conversation(stage, stream=stream))
        bodies = [turn.request.body for turn in Cassette(cassette) if turn.request.path == "/v1/messages"]
        for check in checks.history(bodies):
            report.line(check)


@asynccontextmanager
async def recording(upstream: str, cassette: Path) -> AsyncIterator[str]:
    """Run the recorder between the gateway and `upstream`; yields its origin. The cassette is whole afterwards."""
    port = free_port()
    program = str(Path(sys.executable).with_name("messages-recorder"))
    flags = ("--mode", "proxy", "--upstream", upstream, "--listen", str(port), "--output", str(cassette))
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            program, "record", *flags, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            await _until_open(port, process)
            yield f"http://127.0.0.1:{port}"
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace"))
            raise
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _until_open(port: int, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(RECORDER_TIMEOUT_S):
        while True:
            if process.returncode is not None:
                raise Failure(f"the recorder stopped with exit status {process.returncode}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="e2e-vllm", description=__doc__.partition("\n\n")[0] if __doc__ else None)
    parser.add_argument("--upstream", metavar="URL", help="a vLLM that is already serving, in place of one on this CPU")
    parser.add_argument("--model", metavar="NAME", default=MODEL_NAME, help="its model; default: %(default)s")
    parser.add_argument(
        "--exact", action="store_true", help="that server serves the tiny model: judge it to the letter"
    )
    parser.add_argument("--scale-out", action="store_true", help="that server runs with --enable-scale-out")
    parser.add_argument(
        "--vllm", type=Path, metavar="VENV", help="an environment that has vLLM, in place of the cached one"
    )
    parser.add_argument("--tiny-model", type=Path, metavar="FOLDER", help="the tiny model, in place of the cached one")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(_options())))
    except Unavailable as reason:
        print(f"SKIPPED: {reason}")
    except Failure as failure:
        sys.exit(f"e2e-vllm: {failure}")
