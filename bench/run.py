"""The command line: `python -m bench.run --help`, or `make bench`."""

import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
import uvloop

from bench import bodies, measure, peers, report
from bench.client import Fault
from bench.process import Server, StartFailed, free_port, running

LEAD = 2000  # events of an answer that is already long when its events are measured
LEAD_STREAMS = 100

STREAMS = {"streams": ("proxied", bodies.stream()), "loop": ("loop", bodies.loop())}


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: repetitions, seconds a window, numbers of streams, whether the slow cases run too."""

    reps: int
    window_s: float
    ladder: list[int]
    whole: bool


@dataclass(frozen=True, slots=True)
class Case:
    """Rows of the table: the same measurement, of one server after the other that does this kind of thing."""

    kind: str
    name: str
    take: Callable[[Server, measure.Double, str], Awaitable[measure.Sample]]
    direct: bool = False  # taken of the upstream itself too
    fresh: bool = False  # taken of a server that was just started, so that nothing that came before is in the figures


def request_cases(effort: Effort) -> list[Case]:
    return [
        Case("requests", name, partial(measure.requests, body=body, window_s=effort.window_s))
        for name, body in {"small request": bodies.small(), "75 KB request": bodies.claude_code()}.items()
    ]


def stream_cases(effort: Effort) -> list[Case]:
    cases = []
    for kind, (what, body) in STREAMS.items():
        take = partial(measure.streams, body=body, window_s=effort.window_s)
        for number in effort.ladder:
            name = f"{what} event, {number} stream{'s' if number > 1 else ''}"
            cases.append(Case(kind, name, partial(take, number=number), direct=True))
        if effort.whole:
            long = partial(take, number=LEAD_STREAMS, lead=LEAD)
            cases.append(Case(kind, f"{what} event, {LEAD_STREAMS} streams, after {LEAD} events", long, direct=True))
    return cases


def memory_cases(effort: Effort) -> list[Case]:
    """Once in a run is enough: memory does not depend on what else the machine does."""
    return [
        Case(kind, f"memory, {_streams(what, number)}", partial(measure.memory, body=body, number=number), fresh=True)
        for kind, (what, body) in STREAMS.items()
        for number in effort.ladder
        if effort.whole
    ]


def _streams(what: str, number: int) -> str:
    return f"{number} {what} stream{'s' if number > 1 else ''}"


class Contender:
    """A server under test, that can be started anew."""

    def __init__(self, peer: peers.Peer, double: measure.Double, scratch: Path) -> None:
        self.peer = peer
        self.double = double
        self.scratch = scratch
        self.stack = ExitStack()
        self.server = self.start()
        self.failed: set[str] = set()

    def start(self) -> Server:
        """Starts it, ending the one that runs."""
        self.stack.close()
        port = free_port()
        start = self.peer.start(self.double.origin, port, self.scratch)
        log = self.scratch / f"{self.peer.name}.log"
        env = peers.environment(start.env)
        self.server = self.stack.enter_context(running(self.peer.name, start.command, port, log=log, env=env))
        return self.server


class Run:
    """One run: every case with every server in turn, again and again, so that the machine's moods hit all alike."""

    def __init__(self, chosen: list[peers.Peer], effort: Effort, scratch: Path) -> None:
        self.chosen = chosen
        self.effort = effort
        self.scratch = scratch
        self.samples: list[measure.Sample] = []
        self.failures: list[str] = []

    async def go(self) -> None:
        with ExitStack() as stack:
            port = free_port()
            command = [sys.executable, "-m", "bench.upstream", str(port)]
            env = peers.environment({"PYTHONPATH": str(peers.ROOT)})
            direct = stack.enter_context(
                running(report.DIRECT, command, port, log=self.scratch / "upstream.log", env=env)
            )
            double = measure.Double(port)
            contenders = [Contender(peer, double, self.scratch) for peer in self.chosen]
            for contender in contenders:
                stack.enter_context(closing(contender.stack))
                if "loop" in contender.peer.measured:
                    await measure.check_loop(contender.server, double)
            cases = request_cases(self.effort) + stream_cases(self.effort)
            for rep in range(1, self.effort.reps + 1):
                for case in cases + (memory_cases(self.effort) if rep == 1 else []):
                    if case.direct:
                        self.keep(rep, await case.take(direct, double, case.name))
                    for contender in contenders:
                        if case.kind in contender.peer.measured and case.name not in contender.failed:
                            await self.take(rep, case, contender)

    async def take(self, rep: int, case: Case, contender: Contender) -> None:
        """A case that a server cannot do is noted, and not tried again."""
        try:
            server = contender.start() if case.fresh else contender.server
            self.keep(rep, await case.take(server, contender.double, case.name))
        except Fault as fault:
            contender.failed.add(case.name)
            contender.start()
            self.failures.append(f"failed: {contender.peer.name}, {case.name}: {fault}")
            print(self.failures[-1], file=sys.stderr)

    def keep(self, rep: int, sample: measure.Sample) -> None:
        self.samples.append(sample)
        values = "  ".join(f"{name} {value:.2f}" for name, value in sample.values.items())
        print(f"[{rep}/{self.effort.reps}] {sample.case} · {sample.server}: {values}", file=sys.stderr)


def machine() -> str:
    """Cores and CPU model."""
    cpus = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in cpus if line.startswith("model name")]
    return f"{len(models)} x {models[0] if models else platform.machine()}, {platform.system()} {platform.release()}"


def heading(chosen: list[peers.Peer], effort: Effort, command: str) -> list[str]:
    versions = ", ".join(f"{peer.name} {peer.version}" for peer in chosen if "streams" in peer.measured)
    return [
        f"{versions}; Python {platform.python_version()}; {machine()}; {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"{command}: median (lowest to highest) of {effort.reps} interleaved runs, {effort.window_s:g} s a window",
        f"{measure.CALLERS} kept connections for requests; {measure.EVENTS_PER_S} events a second at most over all"
        " streams; latencies are what the server adds to the client's view of the upstream itself",
    ]


@click.command()
@click.option("--quick", is_flag=True, help="Two short repetitions, 100 streams only, no memory.")
@click.option("--reps", type=click.IntRange(1), help="Repetitions.")
@click.option("--seconds", type=click.FloatRange(0.5), help="Length of each measured window.")
@click.option("--streams", "ladder", multiple=True, type=click.IntRange(1), help="Numbers of streams; repeatable.")
@click.option("--with", "extra", multiple=True, type=click.Choice(sorted(peers.EXTRA)), help="A further peer.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Keep the figures and samples here.")
@click.option("--plot", "plot_path", type=click.Path(path_type=Path), help="Draw the figures here, as PNG.")
def main(
    quick: bool,
    reps: int | None,
    seconds: float | None,
    ladder: tuple[int, ...],
    extra: tuple[str, ...],
    json_path: Path | None,
    plot_path: Path | None,
) -> None:
    """Measure the gateway beside its peers, in one run on this machine."""
    effort = Effort(
        reps=reps or (2 if quick else 3),
        window_s=seconds or (3 if quick else 6),
        ladder=list(ladder) or ([100] if quick else [1, 100, 1000]),
        whole=not quick,
    )
    chosen = peers.chosen(extra)
    command = " ".join(["make bench", *([f"ARGS='{' '.join(sys.argv[1:])}'"] if sys.argv[1:] else [])])
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        run = Run(chosen, effort, Path(scratch))
        try:
            uvloop.run(run.go())
        except (Fault, StartFailed) as error:
            raise click.ClickException(str(error)) from error
    found = report.figures(run.samples)
    lines = heading(chosen, effort, command)
    report.show(found, [peer.name for peer in chosen], lines, run.failures)
    kept = json.dumps(
        {"heading": lines, "failures": run.failures, "samples": [asdict(sample) for sample in run.samples]}, indent=1
    )
    if json_path is not None:
        json_path.write_text(kept + "\n")
    if plot_path is not None:
        python = peers.install(peers.MATPLOTLIB) / "python"
        subprocess.run([python, peers.ROOT / "bench" / "plot.py", plot_path], input=kept.encode(), check=True)


if __name__ == "__main__":
    main()
