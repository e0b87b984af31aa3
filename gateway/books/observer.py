"""What can be seen of requests while they are answered: one protocol, for all that look.

A client's request is a turn of one or more rounds, also where it merely passes through. The ledger, which opens and
closes the record of each, tells of its beginning and its end; the door to upstream tells of rounds, the loop of calls.
The metrics and the log look only at ends. What else is to look on (traces, a live page) is one more observer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.books.record import Record


@dataclass(frozen=True, slots=True)
class TurnBegun:
    """A client asks. ``target`` is in origin-form; ``headers`` are as they came, names in lower case."""

    method: str
    target: bytes
    headers: Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class RoundBegun:
    """Upstream is asked. ``number`` counts from 1; ``target`` is in origin-form, ``body`` what is sent."""

    number: int
    target: str
    body: bytes


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round is over, ``ms`` milliseconds after it was sent.

    Its head had come after ``head_ms``, the first piece of its body after ``first_ms`` (None: never).

    ``status`` is upstream's (None: there was no head). ``error`` is what ended it early, None where it came whole.
    ``answer`` has what the loop read of the message: ``id``, ``model``, ``stop_reason``, ``usage``, as upstream gave
    them; it is empty for an answer that passes through unread.
    """

    number: int
    ms: float
    head_ms: float | None
    first_ms: float | None
    status: int | None
    error: BaseException | None
    answer: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A gateway tool runs. ``kind`` is its kind's name, ``tool`` the function that the model called.

    ``call_id`` is the client's id of a native call, None for a hidden one; ``upstream_id`` is upstream's. ``job`` is
    what the kind made of the arguments.
    """

    kind: str
    tool: str
    upstream_id: str
    call_id: str | None
    job: Any


@dataclass(frozen=True, slots=True)
class CallEnded:
    """It has returned after ``ms`` milliseconds, or failed: the kind's ``outcome`` tells. None: it was called off."""

    call: CallBegun
    ms: float
    outcome: Any


class Observer:
    """Looks on; what it does not care for it leaves as it is here, and is then not told of.

    Every method returns at once, raises nothing, and changes nothing of what it is given.
    """

    def turn_began(self, record: Record, begun: TurnBegun) -> None:
        """A request has come; nothing of it has been looked at."""

    def round_began(self, record: Record, begun: RoundBegun) -> None:
        """Upstream is asked for a round."""

    def round_ended(self, record: Record, ended: RoundEnded) -> None:
        """The round is over, however that went."""

    def call_began(self, record: Record, begun: CallBegun) -> None:
        """A gateway tool runs."""

    def call_ended(self, record: Record, ended: CallEnded) -> None:
        """It is over, however that went."""

    def turns_ended(self, records: Sequence[Record], in_flight: int) -> None:
        """Requests are over; ``in_flight`` are not. Told of several at once, and a moment after their ends."""


class Observers:
    """All who look on. Each attribute has the methods of those who care for it, so that the others cost nothing."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        everybody = tuple(observers)
        self.turn_began = [one.turn_began for one in everybody if type(one).turn_began is not Observer.turn_began]
        self.round_began = [one.round_began for one in everybody if type(one).round_began is not Observer.round_began]
        self.round_ended = [one.round_ended for one in everybody if type(one).round_ended is not Observer.round_ended]
        self.call_began = [one.call_began for one in everybody if type(one).call_began is not Observer.call_began]
        self.call_ended = [one.call_ended for one in everybody if type(one).call_ended is not Observer.call_ended]
        self.turns_ended = [one.turns_ended for one in everybody if type(one).turns_ended is not Observer.turns_ended]
