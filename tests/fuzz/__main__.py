"""`make fuzz`: each target for a while under atheris, which looks for bytes that reach further, then the routes.

    python -m tests.fuzz [--seconds 60] [TARGET…]

What breaks a target is printed, and kept as a file under .cache/fuzz/TARGET; what reached far is kept there too, for
the next run to start from.
"""

import subprocess
import sys
from pathlib import Path

import click

from tests.fuzz.targets import TARGETS

CACHE = Path(".cache/fuzz")
ROUTES = "routes"


@click.command()
@click.option("--seconds", default=60, help="How long to look at each target.")
@click.argument("names", nargs=-1, type=click.Choice([*TARGETS, ROUTES]))
def main(seconds: int, names: tuple[str, ...]) -> None:
    """Fuzz the NAMES, all of them if there is none."""
    broken = [name for name in names or (*TARGETS, ROUTES) if not _holds(name, seconds)]
    if broken:
        raise SystemExit(f"broken: {', '.join(broken)}")


def _holds(name: str, seconds: int) -> bool:
    print(f"\n=== {name}, {seconds} s", flush=True)
    # A process each: libFuzzer ends its own.
    arguments = ["tests.fuzz.routes", f"--max-time={seconds}"] if name == ROUTES else _for_atheris(name, seconds)
    return subprocess.run([sys.executable, "-m", *arguments], check=False).returncode == 0


def _for_atheris(name: str, seconds: int) -> list[str]:
    folder = CACHE / name
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    flags = [f"-max_total_time={seconds}", "-max_len=2048", "-print_final_stats=1", "-verbosity=0"]
    return ["tests.fuzz.target", name, *flags, f"-artifact_prefix={folder}/", str(corpus)]


main()
