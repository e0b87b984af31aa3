"""messages-recorder: what a person types."""

import asyncio
import math
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from recorder.errors import RecorderError
from recorder.faults import Fault, parse_fault
from recorder.player import Player, Seen
from recorder.serving import bind, origin, serving, stopped_by_signal

_CASSETTE = click.Path(exists=True, dir_okay=False, path_type=Path)


class _Group(click.Group):
    """Says what went wrong in one sentence, and exits 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RecorderError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="messages-gateway")
def main() -> None:
    """Record upstream traffic into cassettes, read them, play them back."""


class _Speed(click.ParamType):
    name = "SPEED"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if value == "max":
            return math.inf
        try:
            speed = float(value)
        except ValueError:
            speed = 0.0
        if not speed > 0:
            self.fail(f"{value!r} is neither `max` nor a number above 0", param, ctx)
        return speed


class _Fault(click.ParamType):
    name = "KIND:VALUE[@TURN]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fault:
        try:
            return parse_fault(value)
        except RecorderError as error:
            self.fail(str(error), param, ctx)


@main.command()
@click.argument("cassettes", metavar="CASSETTE…", nargs=-1, required=True, type=_CASSETTE)
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option(
    "--speed", type=_Speed(), default="max", show_default=True, help="1 is the recorded pace, 2 twice as fast; `max`."
)
@click.option(
    "--fault",
    "faults",
    type=_Fault(),
    multiple=True,
    help="cut:N, stall:N, malformed:N (after N events, or bytes of a JSON answer), status:CODE, slow:SECONDS; of every"
    " turn, or of one, as in cut:3@t2. Repeatable.",
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
    print(f"{seen.method} {seen.path}: {outcome}", file=sys.stderr, flush=True)
