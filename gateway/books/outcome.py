"""How a request ended: decided here, in two tables, and nowhere else."""

from typing import Literal

from gateway.errors import (
    ClientGone,
    MessagesGatewayError,
    Overloaded,
    Refused,
    RequestError,
    TurnTimeout,
    UpstreamError,
    UpstreamStreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
)

Outcome = Literal[
    "ok",
    "client_error",
    "upstream_error",
    "upstream_unreachable",
    "timeout",
    "cut",
    "client_gone",
    "overloaded",
    "gateway_error",
]
"""How a request ended; exactly one each.

``client_error``: a 4xx, ours or upstream's. ``upstream_error``: upstream answered 5xx, or no message. ``timeout``:
upstream stalled, or a turn took too long. ``cut``: the answer broke off after it had begun. ``client_gone``: nobody was
there to be answered. ``overloaded``: the gateway has too many turns, or is being stopped.
"""

_Table = tuple[tuple[type[MessagesGatewayError], Outcome], ...]

_BEFORE: _Table = (
    (ClientGone, "client_gone"),
    (UpstreamTimeout, "timeout"),
    (TurnTimeout, "timeout"),
    (Overloaded, "overloaded"),
    (UpstreamUnreachable, "upstream_unreachable"),
    (UpstreamError, "upstream_error"),
)
"""The answer had not begun. The first row that fits; with none, the status of the error decides."""

_AFTER: _Table = (
    (ClientGone, "client_gone"),
    (UpstreamTimeout, "timeout"),
    (TurnTimeout, "timeout"),
    (UpstreamStreamError, "upstream_error"),
)
"""The answer had begun. The first row that fits; with none it was cut."""


def outcome_of_status(status: int) -> Outcome:
    """How a request ended whose answer has ``status``, ours or upstream's."""
    if status < 400:
        return "ok"
    return "client_error" if status < 500 else "upstream_error"


def outcome_of(error: MessagesGatewayError, *, begun: bool) -> Outcome:
    """How a request ended that ``error`` ended; ``begun``: its answer's head had gone to the client."""
    for kind, outcome in _AFTER if begun else _BEFORE:
        if isinstance(error, kind):
            return outcome
    match error:
        case Refused(status=status):
            # Upstream refused a later round of an answer that has begun: whatever it said, there is no message.
            return "client_error" if 400 <= status < 500 else "upstream_error" if begun else outcome_of_status(status)
        case RequestError(status=status) if not begun:
            return "client_error" if status < 500 else "gateway_error"
    return "cut" if begun else "gateway_error"
