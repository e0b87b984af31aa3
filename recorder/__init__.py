"""Records upstream traffic into cassettes, and plays cassettes back as an upstream.

    async with serve_cassettes(["search.yaml"]) as player:
        ...                                   # talk to player.origin
        player.seen[0].turn                   # which recorded turn answered

See :mod:`recorder.cassette` for the file, :mod:`recorder.player` for the upstream made of it.
"""

from recorder.cassette import Cassette, Request, Response, Turn
from recorder.errors import CassetteError, RecorderError
from recorder.faults import Fault, parse_fault
from recorder.player import Player, Playing, Seen, serve_cassettes

__all__ = [
    "Cassette",
    "CassetteError",
    "Fault",
    "Player",
    "Playing",
    "RecorderError",
    "Request",
    "Response",
    "Seen",
    "Turn",
    "parse_fault",
    "serve_cassettes",
]
