"""History: what came back from the client becomes what upstream knows.

Source: Anthropic's server tools, whose calls and results come back in the message they were in. A native call and its
result become the very ``tool_use`` / ``tool_result`` pair the model saw; one merged assistant message is split back
into its rounds, each followed by a user message with its results; thinking that was ``<think>`` text becomes that text
again. What no server but Anthropic's can read has become pairs and text before (:mod:`gateway.turn.foreign`). Every
other block and message goes on as it is, where it stands.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.errors import InvalidRequest
from gateway.turn import jsonvalue
from gateway.turn.foreign import make_readable
from gateway.turn.kind import Block
from gateway.turn.kinds import Kinds
from gateway.turn.returned import ReturnedRound, is_ours, split
from gateway.turn.seal import Sealer

MESSAGES_MAX = 100_000
CALLS_MAX = 10_000
"""Of either, no conversation in earnest has as many, and each is work."""


@dataclass(frozen=True, slots=True)
class LateCall:
    """A native call of the function ``name`` that came back without its result, to be run before the first round."""

    call_id: str
    upstream_id: str
    name: str
    input: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """The user message that late calls complete: ``results`` (each late call in its place), then the ``rest``.

    It goes to ``place`` in the messages; ``source`` is the client's message it is made from.
    """

    place: int
    results: list[Block | LateCall]
    rest: list[Any]
    source: Block


@dataclass(slots=True)
class History:
    """The translated conversation.

    ``messages`` are JSON values, one a message; ``ids`` are the client's ids of its native calls. ``answered``: the
    request ends in an assistant message with results, so this goes on with a turn. ``late``: a message is missing until
    its late calls have been run. ``translated``: a block of ours was in it.
    """

    messages: list[bytes] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    answered: bool = False
    late: LateAnswer | None = None
    translated: bool = False

    @property
    def late_calls(self) -> list[LateCall]:
        """What is to be run before the first round, in call order."""
        return [one for one in self.late.results if isinstance(one, LateCall)] if self.late is not None else []

    def complete(self, results: list[Block]) -> None:
        """Put in the results of the late calls, in call order."""
        if self.late is None:
            return
        left = iter(results)
        content = [next(left) if isinstance(one, LateCall) else one for one in self.late.results]
        self.messages.insert(self.late.place, _message("user", [*content, *self.late.rest], self.late.source))


def translate(messages: bytes, kinds: Kinds, sealer: Sealer, *, run_late: Collection[str]) -> History:
    """Translate the value of ``messages``.

    A call without a result whose round the request's end answers is left to be run where its function is one of
    ``run_late`` (the native tools that are declared, in a request that is a turn); otherwise its result is the sentence
    that its kind has for that.
    Raises :class:`InvalidRequest` with the path of what cannot be read.
    """
    try:
        raw = msgspec.json.decode(messages, type=list[msgspec.Raw])
        values: list[Any] = jsonvalue.read(messages)
    except (msgspec.MsgspecError, jsonvalue.Unreadable, RecursionError):
        raise InvalidRequest("messages: must be a list that can be read") from None
    if len(raw) > MESSAGES_MAX:
        raise InvalidRequest(f"messages: must be no more than {MESSAGES_MAX}")
    readable = make_readable(values, kinds)
    for place in readable:
        raw[place] = msgspec.Raw(jsonvalue.write(values[place]))
    if not any(is_ours(block, kinds) for _, _, block in _blocks(values)):
        return History([bytes(message) for message in raw], translated=bool(readable))
    return _Translation(values, raw, kinds, sealer, run_late).run()


def _blocks(messages: list[Any]) -> Iterator[tuple[int, int, Any]]:
    """The blocks of all assistant messages, each with its message's place and its own."""
    for place, message in enumerate(messages):
        if _role(message) == "assistant" and isinstance(message.get("content"), list):
            for position, block in enumerate(message["content"]):
                yield place, position, block


class _Translation:
    def __init__(
        self, values: list[Any], raw: list[msgspec.Raw], kinds: Kinds, sealer: Sealer, run_late: Collection[str]
    ) -> None:
        self._values = values
        self._raw = raw
        self._kinds = kinds
        self._run_late = run_late
        self._out = History(ids=_checked_ids(values, kinds), translated=True)
        ours = {place for place, _, block in _blocks(values) if is_ours(block, kinds)}
        self._rounds = {
            place: split(values[place]["content"], f"messages.{place}", kinds, sealer) for place in sorted(ours)
        }

    def run(self) -> History:
        place = 0
        while place < len(self._values):
            if place in self._rounds:
                place = self._write_rounds(place)
            else:
                self._copy(place, place + 1)
                place += 1
        self._out.answered = any(self._kinds.of_result(block) is not None for _, _, block in _blocks(self._values[-1:]))
        return self._out

    def _write_rounds(self, place: int) -> int:
        """Write an assistant message and what answers it; returns the place after."""
        *earlier, last = self._rounds[place] or [ReturnedRound()]
        for one in earlier:
            self._add("assistant", one.blocks)
            self._add("user", [one.result(call) for call in one.calls if call in one.native])
        self._add("assistant", last.blocks, self._values[place])
        return self._answer(last, place + 1) if last.native else place + 1

    def _answer(self, last: ReturnedRound, place: int) -> int:
        """Write what answers a message's last round, which has native calls; returns the place after.

        The client's results may stand behind other messages (of role ``system``, say); ours go where they are.
        """
        end = self._next_assistant(place)
        self._take_opening(last, self._rounds.get(end, []))
        calls = last.client_calls
        at = next((at for at in range(place, end) if self._results_at(at, calls)), place)
        if at == end or not self._is_users(at):
            self._add("user", [last.result(call) for call in last.calls if call in last.native])
            return place
        self._copy(place, at)
        client = self._results_at(at, calls)
        missing = {
            call
            for call, native in last.native.items()
            if call not in last.results and native.block["name"] in self._run_late
        }
        late = missing and end == len(self._values) and client.keys() == calls != set()
        results: list[Block | LateCall] = []
        for call in last.calls:
            if call not in last.native:
                results += [client[call]] if call in client else []
            elif late and call in missing:
                block = last.native[call].block
                results.append(LateCall(call, block["id"], block["name"], block["input"]))
            else:
                results.append(last.result(call))
        placed = {id(block) for block in client.values()}
        rest = [block for block in _content(self._values[at]) if id(block) not in placed]
        if late:
            self._out.late = LateAnswer(len(self._out.messages), results, rest, self._values[at])
        else:
            self._add("user", [*results, *rest], self._values[at])
        return at + 1

    def _next_assistant(self, place: int) -> int:
        for at in range(place, len(self._values)):
            if _role(self._values[at]) == "assistant":
                return at
        return len(self._values)

    @staticmethod
    def _take_opening(last: ReturnedRound, following: list[ReturnedRound]) -> None:
        """Give ``last`` the results that open the next assistant message: its calls were run then."""
        if following and not following[0].blocks:
            for call, result in following[0].results.items():
                if call in last.native:
                    last.results.setdefault(call, result)

    def _is_users(self, place: int) -> bool:
        """Whether a user message that can be added to stands there."""
        message = self._values[place]
        return _role(message) == "user" and isinstance(message.get("content"), str | list)

    def _results_at(self, place: int, calls: set[str]) -> dict[str, Block]:
        """The client's results for ``calls`` in the message at ``place``."""
        found: dict[str, Block] = {}
        if self._is_users(place):
            for block in _content(self._values[place]):
                if isinstance(block, dict) and block.get("type") == "tool_result":
                    call = block.get("tool_use_id")
                    if isinstance(call, str) and call in calls:
                        found.setdefault(call, block)
        return found

    def _copy(self, start: int, end: int) -> None:
        self._out.messages += [bytes(message) for message in self._raw[start:end]]

    def _add(self, role: str, content: list[Any], source: Block | None = None) -> None:
        if content:
            self._out.messages.append(_message(role, content, source or {}))


def _message(role: str, content: list[Any], source: Block) -> bytes:
    """A message; of the client's message it is made from, members of other names are kept."""
    return jsonvalue.write({**source, "role": role, "content": content})


def _content(message: Block) -> list[Any]:
    content: str | list[Any] = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _role(message: object) -> object:
    return message.get("role") if isinstance(message, dict) else None


def _checked_ids(messages: list[Any], kinds: Kinds) -> set[str]:
    """The client's ids of all native calls. Raises :class:`InvalidRequest` for one that is none, or is used twice."""
    calls: set[str] = set()
    results: set[str] = set()
    client_calls: list[tuple[str, object]] = []
    for place, position, block in _blocks(messages):
        path = f"messages.{place}.content.{position}"
        if isinstance(block, dict) and block.get("type") == "tool_use":
            client_calls.append((f"{path}.id", block.get("id")))
        elif kinds.of_call(block) is not None:
            _check_id(f"{path}.id", block.get("id"), calls)
            if len(calls) > CALLS_MAX:
                raise InvalidRequest(f"messages: must hold no more than {CALLS_MAX} calls of server tools")
        elif kinds.of_result(block) is not None:
            _check_id(f"{path}.tool_use_id", block.get("tool_use_id"), results)
    for path, value in client_calls:
        if isinstance(value, str) and value in calls:
            raise InvalidRequest(f"{path}: {value!r} is already used in this request")
    return calls


def _check_id(path: str, value: object, seen: set[str]) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{path}: must be a non-empty string")
    if value in seen:
        raise InvalidRequest(f"{path}: {value!r} is already used in this request")
    seen.add(value)
