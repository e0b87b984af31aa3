"""What the server tells the application beyond ASGI: a shorter way to the client, and that it is being stopped."""

from collections.abc import Callable
from typing import Protocol

from starlette.types import Scope

from gateway.wire.headers import Headers

STOPPING = "stopping"
"""In ``scope["state"]`` once the server is being stopped."""

DIRECT = "messages_gateway.direct"
"""In ``scope["extensions"]``, where the server offers it: a :class:`Direct`, good for this request alone."""

Write = Callable[[bytes], bool]
"""Writes a piece of the body, which is not empty, and says whether it did; what it did not write is for ``send``."""


class Direct(Protocol):
    """The short way to the client: past ``send``, which would write the same bytes at a greater cost.

    It is there for an answer that is whole and for a streamed piece, as long as nothing waits on the way.
    """

    def write_whole(self, status: int, headers: Headers, body: bytes) -> bool:
        """Write the whole answer; False, and nothing written, where it is for ``send``.

        ``headers`` hold nothing that could end a line, and none of the hop's own.
        """

    def writer(self) -> Write | None:
        """What writes pieces of the body, each in the instant it is given; None where the body goes out in no chunks.

        The answer's head has been sent, the last of its body has not.
        """


def direct_of(scope: Scope) -> Direct | None:
    """The short way to the client of this request, if its server has one."""
    direct: Direct | None = scope.get("extensions", {}).get(DIRECT)
    return direct
