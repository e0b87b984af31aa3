"""The command line: `python -m bench.run --help`, or `make bench`."""

import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
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


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: repetitions, seconds a window, numbers of streams, whether the slow cases run too."""

    reps: int
    window_s: float
    ladder: list[int]
    whole: bool


@dataclass(frozen=True, slots=True)
class Case:
    """A row group of the table: the same measurement, of one server after the other."""

    name: str
    take: Callable[[Server, measure.Double, str], Awaitable[measure.Sample]]


def request_cases(effort: Effort) -> list[Case]:
    return [
        Case(name, partial(measure.requests, body=body, window_s=effort.window_s))
        for name, body in {"small request": bodies.small(), "75 KB request": bodies.claude_code()}.items()
    ]


def stream_cases(effort: Effort) -> list[Case]:
    cases = []
    for kind, body in {"proxied event": bodies.stream(), "loop event": bodies.loop()}.items():
        take = partial(measure.streams, body=body, window_s=effort.window_s)
        for number in effort.ladder:
            cases.append(
                Case(f"{kind}, {number} {'stream' if number == 1 else 'streams'}", partial(take, number=number))
            )
        if effort.whole:
            long = partial(take, number=LEAD_STREAMS, lead=LEAD)
            cases.append(Case(f"{kind}, {LEAD_STREAMS} streams, after {LEAD} events", long))
    return cases


class Run:
    """The double and the servers of one run, and the samples so far."""

    def __init__(self, chosen: list[peers.Peer], effort: Effort, scratch: Path) -> None:
        self.chosen = chosen
        self.effort = effort
        self.scratch = scratch
        self.samples: list[measure.Sample] = []

    def start(self, stack: ExitStack, peer: peers.Peer, double: measure.Double) -> Server:
        port = free_port()
        start = peer.start(double.origin, port, self.scratch)
        log = self.scratch / f"{peer.name}.log"
        return stack.enter_context(running(peer.name, start.command, port, log=log, env=peers.environment(start.env)))

    async def go(self) -> None:
        """Every case with every server in turn, again and again, so that the machine's moods hit all alike."""
        with ExitStack() as stack:
            port = free_port()
            command = [sys.executable, "-m", "bench.upstream", str(port)]
            log = self.scratch / "upstream.log"
            direct = stack.enter_context(
                running(report.DIRECT, command, port, log=log, env=peers.environment({"PYTHONPATH": str(peers.ROOT)}))
            )
            double = measure.Double(port)
            servers = [(peer, self.start(stack, peer, double)) for peer in self.chosen]
            for _, server in servers:
                await measure.check_loop(server, double)
            every = [server for _, server in servers]
            full = [server for peer, server in servers if not peer.requests_only]
            for rep in range(1, self.effort.reps + 1):
                for case in request_cases(self.effort):
                    await self.take(rep, case, every, double)
                for case in stream_cases(self.effort):
                    await self.take(rep, case, [direct, *full], double)
                if self.effort.whole:
                    await self.take_memory(rep, double)

    async def take(self, rep: int, case: Case, servers: list[Server], double: measure.Double) -> None:
        for server in servers:
            self.keep(rep, await case.take(server, double, case.name))

    async def take_memory(self, rep: int, double: measure.Double) -> None:
        for peer in self.chosen:
            if not peer.requests_only:
                with ExitStack() as stack:
                    server = self.start(stack, peer, double)
                    sample = await measure.memory(server, double, "memory", bodies.loop(), self.effort.ladder)
                self.keep(rep, sample)

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
    versions = ", ".join(f"{peer.name} {peer.version}" for peer in chosen if not peer.requests_only)
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
    report.show(found, [peer.name for peer in chosen], lines)
    kept = json.dumps({"heading": lines, "samples": [asdict(sample) for sample in run.samples]}, indent=1)
    if json_path is not None:
        json_path.write_text(kept + "\n")
    if plot_path is not None:
        python = peers.install(peers.MATPLOTLIB) / "python"
        subprocess.run([python, peers.ROOT / "bench" / "plot.py", plot_path], input=kept.encode(), check=True)


if __name__ == "__main__":
    main()
