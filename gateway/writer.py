"""Writing a piece of a streamed body in the instant it comes: without a task, which is most of what an event costs.

ASGI has no word for it. uvicorn's ``send`` does just this once nothing holds it back, so that a piece written here and
one sent there come out the same; where the server is another, or something does hold it back, ``send`` is the way.
"""

from starlette.types import Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


class BodyWriter:
    """Writes pieces of one answer's body past ``send``. The answer has begun, and is chunked."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def is_free(self) -> bool:
        """Whether a piece can be written now; else it has to be sent, which waits."""
        cycle = self._cycle
        if cycle.flow.write_paused or cycle.disconnected or cycle.response_complete:
            return False
        return bool(cycle.chunked_encoding)

    def write(self, data: bytes) -> None:
        """Write a piece (not empty) while :meth:`is_free`."""
        self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))


def writer_of(send: Send) -> BodyWriter | None:
    """The writer beside uvicorn's ``send``; None for any other."""
    cycle = getattr(send, "__self__", None)
    return BodyWriter(cycle) if isinstance(cycle, RequestResponseCycle) else None
