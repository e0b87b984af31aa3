"""messages-recorder: what a person types."""

import asyncio
import logging
import math
import sys
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from recorder.cassette import Cassette
from recorder.check import check as check_cassette
from recorder.diff import SAME
from recorder.diff import diff as diff_cassettes
from recorder.errors import RecorderError
from recorder.faults import Fault, parse_fault
from recorder.matching import describe
from recorder.player import Player, Seen
from recorder.record_cli import record
from recorder.redact import scan as scan_cassette
from recorder.serving import bind, origin, serving, stopped_by_signal
from recorder.show import show as show_cassette

_CASSETTE = click.Path(exists=True, dir_okay=False, path_type=Path)


class _Group(click.Group):
    """Says what went wrong in one sentence, and exits 1. Keeps what was typed, for the cassette to tell."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RecorderError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="messages-gateway")
def main() -> None:
    """Record upstream traffic into cassettes, read them, check them, play them back."""
    logging.getLogger("uvicorn.error").addFilter(_is_news)


main.add_command(record)


def _is_news(record: logging.LogRecord) -> bool:
    """An answer broken off is what a fault is for, or what the other side did; it is said where it happens."""
    return "without completing response" not in record.getMessage()


def _speed(ctx: click.Context, param: click.Parameter, value: str) -> float:
    if value == "max":
        return math.inf
    try:
        speed = float(value)
    except ValueError:
        speed = 0.0
    if not speed > 0:
        raise click.BadParameter(f"{value!r} is neither `max` nor a number above 0")
    return speed


def _faults(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[Fault, ...]:
    try:
        return tuple(parse_fault(value) for value in values)
    except RecorderError as error:
        raise click.BadParameter(str(error)) from error


@main.command()
@click.argument("cassettes", metavar="CASSETTE…", nargs=-1, required=True, type=_CASSETTE)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option(
    "--speed",
    callback=_speed,
    metavar="SPEED",
    default="max",
    show_default=True,
    help="1 is the recorded pace, 2 twice as fast; `max` does not wait.",
)
@click.option(
    "--fault",
    "faults",
    callback=_faults,
    metavar="KIND:VALUE[@TURN]",
    multiple=True,
    help="cut:N, stall:N (after N events, or bytes of a JSON answer), malformed:N (the Nth event, or after N bytes),"
    " status:CODE, slow:SECONDS; of every turn, or of one, as in cut:3@t2. Repeatable.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="PATH",
    help="Leave this part of a request out of the comparison, as in query.beta, body.max_tokens or"
    " body.tools.*.description. Repeatable.",
)
def play(
    cassettes: tuple[Path, ...], host: str, port: int, speed: float, faults: tuple[Fault, ...], ignore: tuple[str, ...]
) -> None:
    """Be an upstream that answers as recorded.

    Headers, thinking signatures, call ids and white-space-only text are never compared. A request that was not
    recorded is answered 409, with the difference from the nearest one.
    """
    with closing(Player(cassettes, speed=speed, faults=faults, ignore=ignore, on_request=_say)) as player:
        asyncio.run(_serve_player(player, host, port))


async def _serve_player(player: Player, host: str, port: int) -> None:
    sock = bind(host, port)
    async with serving(player, sock, on_stop=player.stop):
        click.echo(f"playing {len(player.library.turns)} turns on {origin(sock)}")
        await stopped_by_signal()


def _say(seen: Seen) -> None:
    outcome = f"{seen.turn} of {seen.cassette}" if seen.turn else seen.problem or "answered by the player itself"
    click.echo(f"{seen.method} {seen.path}: {outcome}", err=True)


@main.command()
@click.argument("cassette", type=_CASSETTE)
def show(cassette: Path) -> None:
    """Print a cassette for a person to read."""
    show_cassette(Cassette(cassette), Console())


@main.command()
@click.argument("cassettes", metavar="CASSETTE…", nargs=-1, required=True, type=_CASSETTE)
def check(cassettes: tuple[Path, ...]) -> None:
    """Check the shape of cassettes, their streams, and that each history is what was answered before."""
    _report(((path, check_cassette(Cassette(path))) for path in cassettes), _soundness)


def _soundness(path: Path) -> str:
    return "sound" if any(True for _ in Cassette(path)) else "sound, but an empty recording: no turn had ended"


@main.command()
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=_CASSETTE)
def scan(files: tuple[Path, ...]) -> None:
    """Fail where a cassette holds a credential."""
    _report(((path, scan_cassette(path)) for path in files), lambda _: "no credential")


@main.command()
@click.argument("left", metavar="A", type=_CASSETTE)
@click.argument("right", metavar="B", type=_CASSETTE)
def diff(left: Path, right: Path) -> None:
    """Say whether two recordings differ in more than ids, times and signatures."""
    found = list(diff_cassettes(Cassette(left), Cassette(right)))
    if not found:
        click.echo(SAME)
        return
    click.echo(describe(found, left.name, right.name, indent=""))
    sys.exit(1)


def _report(findings: Iterable[tuple[Path, Iterable[str]]], fine: Callable[[Path], str]) -> None:
    """A line for every finding, or one that says all is well; exits 1 where there is any."""
    failed = False
    for path, complaints in findings:
        clean = True
        for complaint in complaints:
            clean = False
            click.echo(f"{path}: {complaint}")
        if clean:
            click.echo(f"{path}: {fine(path)}")
        failed = failed or not clean
    if failed:
        sys.exit(1)
