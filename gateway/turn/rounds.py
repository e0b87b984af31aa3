"""How the rounds of a turn are asked for and read.

A round is one request to ``/v1/messages``, as the turn wants it. Where the client asks for tokens, and upstream's own
``/v1/messages`` has none, it goes through a translator to the endpoint that has them, and the answer comes back as the
message or the events that the turn understands.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from gateway.errors import InvalidRequest, UpstreamBroken
from gateway.tokens import Dialect, RoundTranslator, TokenFields, Trajectory, message_events, translate_round
from gateway.turn import jsonvalue
from gateway.turn.delta import find_delta
from gateway.turn.kind import Call
from gateway.turn.lifecycle import Event, events_of, read_answer, read_event, read_exact, read_message, stream_error
from gateway.turn.presentation import Out
from gateway.turn.riding import TOKEN_FIELDS
from gateway.turn.turn import Turn
from gateway.wire.sse import read_frame

DONE = b"[DONE]"
"""The data of the last event in a stream of the chat and completions endpoints."""


class Rounds(Protocol):
    """The rounds of one answer, one after the other: what the loop that asks for them and reads them goes by.

    ``stream``: the client wants a stream; ``streams``: upstream answers as one. ``model`` is the client's name for it,
    ``target`` where a round is posted to. ``head_waits``: upstream says 200 before it has looked at the whole request,
    so that the client's head waits for the first event.
    """

    @property
    def stream(self) -> bool: ...
    @property
    def streams(self) -> bool: ...
    @property
    def head_waits(self) -> bool: ...
    @property
    def model(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def over(self) -> bool:
        """Whether no further round is to be asked for."""

    @property
    def held(self) -> int:
        """Bytes that are held for them: see :attr:`Turn.held`."""

    def late_calls(self) -> list[Call]:
        """What is to be run before the first round: see :meth:`Turn.late_calls`."""

    def request(self) -> bytes:
        """The body of the next round's request."""

    def read(self, events: Iterable[bytes], out: Out) -> bool:
        """Take a stream's events, as :meth:`SSEReader.split` gives them; says whether the round goes on.

        Those that follow its end are passed over.
        """

    def read_whole(self, body: bytes, out: Out) -> None:
        """Take a JSON answer."""

    @property
    def can_ask_otherwise(self) -> bool:
        """Whether the round under way could be asked for in another way, if upstream refuses it."""

    def asks_otherwise(self, status: int, body: bytes) -> bool:
        """Whether it is, after this refusal: see :meth:`Turn.asks_otherwise`."""

    def refusal(self, status: int, body: bytes) -> bytes:
        """What the client gets of the ``body`` that came with another status than 200."""

    def end(self, out: Out) -> list[Call]:
        """The answer has ended: see :meth:`Turn.end_round`."""

    def answer(self) -> Mapping[str, Any]:
        """Of the round that has ended: upstream's ``id``, ``model``, ``stop_reason``, ``usage``, where it gave them."""

    def take(self, call: Call, outcome: Any, out: Out) -> None:
        """A call's outcome: see :meth:`Turn.answer`."""

    def usage(self) -> Mapping[str, Any]:
        """What all rounds so far took together."""

    def finish(self, out: Out) -> None:
        """All is over: end the message."""

    def message(self) -> Event | None:
        """The whole message for a client that wants JSON, where it is not the fold of what it was shown."""


class TurnRounds(ABC):
    """The rounds of a turn."""

    head_waits = False

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.stream = turn.stream
        self.model = turn.model

    @property
    def over(self) -> bool:
        return self.turn.over

    @property
    def held(self) -> int:
        return self.turn.held

    def late_calls(self) -> list[Call]:
        return self.turn.late_calls()

    def read_whole(self, body: bytes, out: Out) -> None:
        for event in self._events(body):
            self.turn.feed(event, None, out)

    @property
    def can_ask_otherwise(self) -> bool:
        return self.turn.chooses

    def asks_otherwise(self, status: int, body: bytes) -> bool:
        return self.turn.asks_otherwise(status, body)

    def answer(self) -> Mapping[str, Any]:
        return self.turn.last_answer()

    def take(self, call: Call, outcome: Any, out: Out) -> None:
        self.turn.answer(call, outcome, out)

    def usage(self) -> Mapping[str, Any]:
        return self.turn.spent()

    def message(self) -> Event | None:
        return None

    @abstractmethod
    def _events(self, body: bytes) -> Iterable[Event]:
        """The events of a JSON answer."""


class MessagesRounds(TurnRounds):
    """Rounds as ``/v1/messages`` answers them; ``target`` is the client's."""

    def __init__(self, turn: Turn, target: str) -> None:
        super().__init__(turn)
        self.target = target
        self.streams = turn.stream

    def request(self) -> bytes:
        return self.turn.request()

    def read(self, events: Iterable[bytes], out: Out) -> bool:
        turn = self.turn
        for written in events:
            delta = find_delta(written)
            if delta is not None:
                turn.delta(delta, out)
            elif (frame := read_frame(written)) is not None:
                try:
                    event, raw = read_exact(frame.data), frame.raw
                except UpstreamBroken:
                    event, raw = read_event(frame.data), None
                if frame.event == "error":
                    raise stream_error(event)
                turn.feed(event, raw if frame.event == event.get("type") else None, out)
                if turn.round_done:
                    return False
        return True

    def _events(self, body: bytes) -> Iterable[Event]:
        return events_of(read_message(body))

    def refusal(self, status: int, body: bytes) -> bytes:
        return body

    def end(self, out: Out) -> list[Call]:
        return self.turn.end_round(out)

    def finish(self, out: Out) -> None:
        self.turn.finish(out)


class TokenRounds(TurnRounds):
    """Rounds with their tokens. ``fields`` are what the client asked for, ``target`` its own.

    The message (JSON) or ``message_delta`` (SSE) carries ``rounds``, which has every token; the deltas of a stream have
    the ids of the blocks that are shown (see :mod:`gateway.turn.riding`). A stream that is made from JSON calls
    (routed experts on vLLM) cannot tell which block an id belongs to: all ids of a round are on its first delta, and
    on none where that is a hidden call's.
    """

    def __init__(self, turn: Turn, fields: TokenFields, dialect: Dialect, target: str) -> None:
        super().__init__(turn)
        self._fields = fields
        self._dialect = dialect
        self._trajectory = Trajectory()
        self._counted = 0
        """Bytes of the round's tokens that the turn knows of."""
        self._translator = translate_round(fields, dialect, stream=turn.stream)
        self.target = target if dialect == "lmdeploy" else self._translator.path
        self.streams = self._translator.streams

    def request(self) -> bytes:
        """As :class:`Rounds`. Raises :class:`~gateway.errors.InvalidRequest` for what vLLM would not accept either."""
        self._translator = translate_round(self._fields, self._dialect, stream=self.turn.stream)
        self._counted = 0
        body = self.turn.request()
        if self._dialect == "lmdeploy":
            return body
        try:
            return jsonvalue.write(self._translator.request(jsonvalue.read(body)))
        except jsonvalue.Unreadable as error:
            raise InvalidRequest(f"the request cannot be read: {error}") from None

    def read(self, events: Iterable[bytes], out: Out) -> bool:
        turn, translator = self.turn, self._translator
        kept = translator.tokens.size
        turn.retain(kept - self._counted)
        self._counted = kept
        for frame in filter(None, map(read_frame, events)):
            told = translator.end() if frame.data == DONE else translator.events(read_event(frame.data))
            for event in told:
                turn.feed(event, None, out)
            if turn.round_done:
                return False
        return True

    def _events(self, body: bytes) -> Iterable[Event]:
        self.turn.retain(len(body))
        message = self._translator.message(read_answer(body))
        if self.turn.stream:
            return message_events(message)
        if not isinstance(message.get("content"), list):
            raise UpstreamBroken("Upstream's answer is not a message.")
        return events_of({name: value for name, value in message.items() if name not in TOKEN_FIELDS})

    def refusal(self, status: int, body: bytes) -> bytes:
        return body if self._dialect == "lmdeploy" else refusal(self._translator, status, body)

    def end(self, out: Out) -> list[Call]:
        calls = self.turn.end_round(out)
        self._trajectory.add(self._translator.tokens)
        return calls

    def finish(self, out: Out) -> None:
        trajectory, asked = self._trajectory, self._fields
        self.turn.finish(out, trajectory.on_message_delta(asked) if self.turn.stream else trajectory.on_message(asked))


def refusal(translator: RoundTranslator, status: int, body: bytes) -> bytes:
    """What the client gets of an upstream error's body: Anthropic's envelope, with upstream's own message."""
    try:
        said = jsonvalue.read(body)
    except jsonvalue.Unreadable:
        said = None  # an HTML page, say: the status has to do
    return jsonvalue.write(translator.error(status, said))
