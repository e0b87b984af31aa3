"""The sans-IO core: what a turn is. Plain data in, plain data out; no socket, no clock."""

from gateway.turn import jsonvalue
from gateway.turn.fold import Fold
from gateway.turn.kind import Call, Outcome
from gateway.turn.kinds import KINDS, Kinds
from gateway.turn.lifecycle import Event, events_of, read_answer, read_event, read_message
from gateway.turn.presentation import Out
from gateway.turn.probe import Holds, look
from gateway.turn.request import TurnRequest, TurnRules, read_ours, read_request, translate_count
from gateway.turn.rounds import MessagesRounds, Rounds, TokenRounds
from gateway.turn.seal import Sealer
from gateway.turn.turn import Turn

__all__ = [
    "KINDS",
    "Call",
    "Event",
    "Fold",
    "Holds",
    "Kinds",
    "MessagesRounds",
    "Out",
    "Outcome",
    "Rounds",
    "Sealer",
    "TokenRounds",
    "Turn",
    "TurnRequest",
    "TurnRules",
    "events_of",
    "jsonvalue",
    "look",
    "read_answer",
    "read_event",
    "read_message",
    "read_ours",
    "read_request",
    "read_turn",
    "translate_count",
]


def read_turn(body: bytes, rules: TurnRules, model: str | None = None) -> Turn | None:
    """The turn that a ``/v1/messages`` body asks for; None where nothing of the gateway's is in it.

    ``model`` is the name the message is to carry where it is not upstream's. Raises
    :class:`gateway.errors.InvalidRequest` for what the loop must read and cannot.
    """
    request = read_request(body, rules)
    return None if request is None else Turn(request, model)
