"""Is a cassette sound? Its shape, the lifecycle of its streams, and that every history is what was answered before."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from recorder.cassette import Cassette, Json, Turn, parse_json
from recorder.errors import StreamError
from recorder.matching import describe, differences, digest, normalise_messages
from recorder.messages import MessageBuilder, read_events
from recorder.record import PATH, outcome

_MESSAGE_FIELDS = {"id": str, "type": str, "role": str, "content": list, "model": str, "usage": dict}


def check(cassette: Cassette) -> Iterator[str]:
    """What is wrong, one complaint after the other. Raises CassetteError where it is no cassette at all.

    One without a turn is sound: a recorder that was stopped before its first turn ended leaves it.
    """
    earlier = _Earlier(cassette)
    names: set[str] = set()
    for turn in cassette:
        complaints = [*_shape(turn), *_answer(turn), *earlier.complaints(turn)]
        if turn.filename in names:
            complaints.insert(0, "an earlier turn has that name")
        names.add(turn.filename)
        for complaint in complaints:
            yield f"{turn.filename}: {complaint}"


def _is_messages(turn: Turn) -> bool:
    return turn.request.method == "POST" and turn.request.path == PATH


def _shape(turn: Turn) -> Iterator[str]:
    request, response = turn.request, turn.response
    if not 100 <= response.status_code <= 599:
        yield f"response.status_code: {response.status_code} is no HTTP status"
    if list(response.event_ms) != sorted(response.event_ms):
        yield "response.event_ms: not in order"
    if not _is_messages(turn) or response.status_code != 200:
        return
    if not isinstance(request.body, dict):
        yield "request.body: no JSON object"
    elif not isinstance(request.body.get("messages"), list):
        yield "request.body.messages: no list"
    elif bool(request.body.get("stream")) != response.is_stream:
        yield f"request.body.stream: {request.body.get('stream')}, which is not what was answered"


def _answer(turn: Turn) -> Iterator[str]:
    if not _is_messages(turn):
        return
    if turn.response.is_stream:
        yield from _lifecycle(turn)
        return
    value = turn.response.json()
    if not isinstance(value, dict):
        yield "response.body: no JSON object"
    elif turn.response.status_code != 200:
        if not isinstance(value.get("error"), dict):
            yield "response.body.error: no object, though the status says failure"
    else:
        for name, kind in _MESSAGE_FIELDS.items():
            if not isinstance(value.get(name), kind):
                yield f"response.body.{name}: missing, or no {kind.__name__}"


def _lifecycle(turn: Turn) -> Iterator[str]:
    builder, number, times = MessageBuilder(), 0, turn.response.event_ms
    for number, event in enumerate(read_events(turn.response.content.lines()), start=1):
        data = parse_json(event.data.encode())
        if isinstance(data, dict) and event.name != data.get("type"):
            yield f"event {number}: named {event.name or 'nothing'}, its data is a {data.get('type')}"
        try:
            builder.feed(data)
        except StreamError as error:
            yield f"event {number}: {error}"
            return
    if builder.state not in ("ended", "failed"):
        yield f"event {number} is the last: the stream ends before message_stop"
    if times and len(times) != number:
        yield f"response.event_ms: {len(times)} times for {number} events"


@dataclass(slots=True)
class _Earlier:
    """What the turns so far were asked and answered, as digests.

    An assistant message in a history must be what an earlier turn answered to exactly the messages before it. A
    conversation whose first message no earlier turn had began before the recording, and is not judged.
    """

    cassette: Cassette
    answers: dict[bytes, list[tuple[str, bytes]]] = field(default_factory=dict)
    latest: dict[bytes, str] = field(default_factory=dict)

    def complaints(self, turn: Turn) -> Iterator[str]:
        if not _is_messages(turn) or not (history := _history(turn)):
            return
        messages = [digest(message) for message in history]
        if messages[0] in self.latest:
            yield from self._judge(history, messages)
        if len(after := _with_outcome(turn)) > len(messages):
            self.answers.setdefault(_chain(messages), []).append((turn.filename, digest(after[-1])))
            self.latest[messages[0]] = turn.filename

    def _judge(self, history: list[Json], messages: list[bytes]) -> Iterator[str]:
        for number, message in enumerate(history):
            if isinstance(message, dict) and message.get("role") == "assistant":
                answers = self.answers.get(_chain(messages[:number]), [])
                if messages[number] not in (answer for _, answer in answers):
                    yield self._difference(answers[-1][0] if answers else self.latest[messages[0]], history)
                    return

    def _difference(self, name: str, history: list[Json]) -> str:
        previous = next(turn for turn in self.cassette if turn.filename == name)
        expected = _with_outcome(previous)
        found = list(differences(expected, history[: len(expected)], "request.body.messages"))
        return f"its history is not what {name} was asked and answered:\n{describe(found, 'answered', 'sent on')}"


def _chain(messages: list[bytes]) -> bytes:
    return b"".join(messages)


def _history(turn: Turn) -> list[Json]:
    body = turn.request.body
    messages = body.get("messages") if isinstance(body, dict) else None
    return _comparable(messages) if isinstance(messages, list) else []


def _with_outcome(turn: Turn) -> list[Json]:
    """The conversation after the turn; without an answer it is what it was."""
    message, _ = outcome(turn.response)
    asked = turn.request.body.get("messages") if isinstance(turn.request.body, dict) else None
    if message is None or not isinstance(asked, list):
        return _history(turn)
    return _comparable([*asked, {"role": "assistant", "content": message["content"]}])


def _comparable(messages: list[Json]) -> list[Json]:
    """Messages without what clients change when they send them again: cache marks, which wander, and empty text."""
    return [_bare(message) for message in normalise_messages(messages)]


def _bare(message: Json) -> Json:
    if not isinstance(message, dict) or not isinstance(content := message.get("content"), list):
        return message
    blocks = [
        {key: value for key, value in block.items() if key != "cache_control"} if isinstance(block, dict) else block
        for block in content
    ]
    return {**message, "content": blocks}
