"""The command line: `python -m bench.run --help`, or `make bench`."""

import json
import platform
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
import uvloop

from bench import measure, peers, report
from bench.cases import Case, Effort, cases_of
from bench.client import Fault
from bench.process import Server, StartFailed, free_port, running


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

    def __init__(self, chosen: list[peers.Peer], cases: list[Case], reps: int, scratch: Path) -> None:
        self.chosen = chosen
        self.cases = cases
        self.reps = reps
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
            for rep in range(1, self.reps + 1):
                for case in self.cases:
                    if rep > 1 and case.once:
                        continue
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
        print(f"[{rep}/{self.reps}] {sample.case} · {sample.server}: {values}", file=sys.stderr)


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
@click.option("--quick", is_flag=True, help="Three short repetitions, 100 streams only, no memory, no histories.")
@click.option("--reps", type=click.IntRange(1), help="Repetitions.")
@click.option("--seconds", type=click.FloatRange(0.5), help="Length of each measured window.")
@click.option("--streams", "ladder", multiple=True, type=click.IntRange(1), help="Numbers of streams; repeatable.")
@click.option("--only", default="", help="Only the rows in whose name this pattern is found.")
@click.option("--with", "extra", multiple=True, type=click.Choice(sorted(peers.EXTRA)), help="A further peer.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Keep the figures and samples here.")
@click.option("--plot", "plot_path", type=click.Path(path_type=Path), help="Draw the figures here, as PNG.")
def main(
    quick: bool,
    reps: int | None,
    seconds: float | None,
    ladder: tuple[int, ...],
    only: str,
    extra: tuple[str, ...],
    json_path: Path | None,
    plot_path: Path | None,
) -> None:
    """Measure the gateway beside its peers, in one run on this machine."""
    effort = Effort(
        reps=reps or (3 if quick else 9),
        window_s=seconds or 2,
        ladder=list(ladder) or ([100] if quick else [1, 100, 1000]),
        whole=not quick,
    )
    chosen = peers.chosen(extra)
    command = " ".join(["make bench", *([f"ARGS='{' '.join(sys.argv[1:])}'"] if sys.argv[1:] else [])])
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        run = Run(chosen, cases_of(effort, only), effort.reps, Path(scratch))
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
