"""The states of a connection to upstream: which step may follow which.

A connection carries one exchange after the other, never two at a time (no pipelining)::

                 opened         asked          head         ended           settled
    CONNECTING ─────────► IDLE ───────► AWAITED ─────► BODY ───────► COMPLETE ───────► IDLE
                                                        │                │ surplus
                                                        │ ended for good ▼
                                                        └─────────────► SPENT

Between an answer's end and ``settled`` stands the rest of the read that brought the end. A byte in it is nobody's, and
so is what comes behind it: the connection is spent. From every state ``dropped`` leads to CLOSED, whoever closed it and
whatever for, and from there nothing leads away. A step that is not in the table is a fault of the gateway's own.

How far the request has been sent is no state: an answer may come before its request has gone out whole. It is then a
reason to drop the connection in place of ``settled``.
"""

from enum import StrEnum


class State(StrEnum):
    """Where a connection stands."""

    CONNECTING = "connecting"
    IDLE = "idle"
    AWAITED = "awaited"
    """A request is sent, or being sent; its answer's final head is not in. Interim heads change nothing."""
    BODY = "body"
    COMPLETE = "complete"
    SPENT = "spent"
    """The answer is whole, and the connection carries no other: upstream closes it, or more came behind the answer."""
    CLOSED = "closed"


class Step(dict[State, State]):
    """One kind of step: the states in which it may be taken, each with the state that it leads to.

    ``ASKED[State.IDLE]`` is ``State.AWAITED``; of a state in which it may not be taken, it raises RuntimeError.
    """

    def __init__(self, name: str, table: dict[State, State]) -> None:
        super().__init__(table)
        self.name = name

    def __missing__(self, state: State) -> State:
        raise RuntimeError(f"a connection to upstream is {state}, and cannot be {self.name}")


OPENED = Step("opened", {State.CONNECTING: State.IDLE})
ASKED = Step("asked", {State.IDLE: State.AWAITED})
HEAD = Step("past its head", {State.AWAITED: State.BODY})
ENDED = Step("ended", {State.BODY: State.COMPLETE})
ENDED_FOR_GOOD = Step("ended for good", {State.BODY: State.SPENT})
SURPLUS = Step("followed by more", {State.COMPLETE: State.SPENT, State.SPENT: State.SPENT})
SETTLED = Step("settled", {State.COMPLETE: State.IDLE})
DROPPED = Step("dropped", dict.fromkeys(State, State.CLOSED))

STEPS = (OPENED, ASKED, HEAD, ENDED, ENDED_FOR_GOOD, SURPLUS, SETTLED, DROPPED)
