"""What follows from how a round ended: one table, of which the first row that fits holds."""

from enum import Enum, auto
from typing import NamedTuple

WHOLE = frozenset({"tool_use", "end_turn"})
"""Stop reasons of a round that ended whole (rule 3). Upstream may label a round that has calls either way."""


class RoundEnd(NamedTuple):
    """How a round ended.

    ``whole``: with a stop reason that is in :data:`WHOLE`. ``last``: it was the last that the turn may have.
    ``must_answer``: the turn's last round has to be an answer (rule 5).
    """

    whole: bool
    client_calls: bool
    gateway_calls: bool
    last: bool
    must_answer: bool


class Runs(Enum):
    """Which of the round's gateway calls are run."""

    NONE = auto()
    NATIVE = auto()
    ALL = auto()


class Step(NamedTuple):
    """What the turn does: the calls it runs, whether it is then over, and its stop reason, None for upstream's own."""

    runs: Runs
    over: bool
    stop: str | None = None


class Row(NamedTuple):
    """A row of the table: what must be so of a round's end, None where it may be either, and what follows."""

    whole: bool | None
    client_calls: bool | None
    gateway_calls: bool | None
    last: bool | None
    must_answer: bool | None
    step: Step

    def fits(self, end: RoundEnd) -> bool:
        """Whether the row is about a round that ended so."""
        return all(wanted is None or wanted is given for wanted, given in zip(self[:-1], end, strict=True))


YES, NO, ANY = True, False, None
TABLE = (
    #   whole, client's, gateway's, last, must answer
    Row(NO, ANY, ANY, ANY, ANY, Step(Runs.NONE, over=True)),
    Row(YES, YES, ANY, YES, YES, Step(Runs.NONE, over=True, stop="tool_use")),
    Row(YES, YES, ANY, ANY, ANY, Step(Runs.NATIVE, over=True, stop="tool_use")),
    Row(YES, NO, NO, ANY, ANY, Step(Runs.NONE, over=True)),
    Row(YES, NO, YES, NO, ANY, Step(Runs.ALL, over=False)),
    Row(YES, NO, YES, YES, YES, Step(Runs.NONE, over=True, stop="end_turn")),
    Row(YES, NO, YES, YES, NO, Step(Runs.ALL, over=True, stop="pause_turn")),
)


def step_after(end: RoundEnd) -> Step:
    """What follows from the way a round ended; every way has a row."""
    return next(row.step for row in TABLE if row.fits(end))
