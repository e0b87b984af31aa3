"""History: what came back from the client becomes what upstream knows.

Source: "Coming back" in Anthropic's server tools, as the contract words it. A native pair (``server_tool_use``,
``web_search_tool_result``) becomes the very ``tool_use`` / ``tool_result`` pair the model saw; one merged assistant
message is split back into its rounds, each followed by a user message with its results; thinking that was ``<think>``
text becomes that text again. Every other block and message goes on as it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.errors import InvalidRequest
from gateway.turn import jsonvalue
from gateway.turn.ids import upstream_id
from gateway.turn.marker import read_mark
from gateway.turn.ownership import WEB_SEARCH
from gateway.turn.seal import Sealer
from gateway.turn.sentences import NO_RESULTS, error_sentence

Block = dict[str, Any]
RESULT = "web_search_tool_result"


@dataclass(frozen=True, slots=True)
class LateCall:
    """A native call that came back without its result, to be run before the first round."""

    server_id: str
    upstream_id: str
    input: dict[str, Any]


@dataclass(slots=True)
class History:
    """The translated conversation.

    ``messages`` are JSON values, one a message; ``ids`` are the client's ids of its native calls. ``late`` calls are to
    be run: their results are missing from the last message, whose ``tool_result`` blocks are in ``last_results`` (each
    late call in its place) with ``last_rest`` after them. ``answered``: the request ends in an assistant message with
    results, so this goes on with a turn.
    """

    messages: list[bytes] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    answered: bool = False
    late: list[LateCall] = field(default_factory=list)
    last_results: list[Block | LateCall] = field(default_factory=list)
    last_rest: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class _Round:
    """One round of an assistant message: its blocks as upstream knows them, and its calls in order."""

    blocks: list[Block] = field(default_factory=list)
    native: dict[str, Block] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    results: dict[str, Block] = field(default_factory=dict)

    @property
    def client_calls(self) -> set[str]:
        return {call for call in self.calls if call not in self.native}


def is_ours(block: object) -> bool:
    """Whether a block of the history is a server block of ours or thinking with our mark."""
    if not isinstance(block, dict):
        return False
    match block.get("type"):
        case "server_tool_use":
            return bool(block.get("name") == WEB_SEARCH)
        case "web_search_tool_result":
            return True
        case "thinking":
            return read_mark(block.get("signature")) is not None
    return False


def translate(messages: bytes, sealer: Sealer, *, run_late: bool) -> History:
    """Translate the value of ``messages``.

    With ``run_late`` (a typed tool is declared, and there is a turn to run it in) a call without a result whose round
    the last message answers is left to be run; otherwise its result is the sentence for ``unavailable``.
    Raises :class:`InvalidRequest` with the path of what cannot be read.
    """
    try:
        raw = msgspec.json.decode(messages, type=list[msgspec.Raw])
        values: list[Any] = jsonvalue.read(messages)
    except (msgspec.MsgspecError, jsonvalue.Unreadable, RecursionError):
        raise InvalidRequest("messages: must be a list that can be read") from None
    if not any(is_ours(block) for _, _, block in _blocks(values)):
        return History([bytes(message) for message in raw])
    return _Translation(values, raw, sealer, run_late).run()


def _blocks(messages: list[Any]) -> Iterator[tuple[int, int, Any]]:
    for place, message in enumerate(messages):
        if _role(message) == "assistant" and isinstance(message.get("content"), list):
            for position, block in enumerate(message["content"]):
                yield place, position, block


class _Translation:
    def __init__(self, values: list[Any], raw: list[msgspec.Raw], sealer: Sealer, run_late: bool) -> None:
        self._values = values
        self._raw = raw
        self._sealer = sealer
        self._run_late = run_late
        self._out = History()

    def run(self) -> History:
        self._check_ids()
        rounds = {place: self._rounds(place) for place in range(len(self._values)) if self._is_translated(place)}
        place = 0
        while place < len(self._values):
            if place not in rounds:
                self._out.messages.append(bytes(self._raw[place]))
                place += 1
                continue
            for one in rounds[place][:-1]:
                self._emit(one)
            last = rounds[place][-1] if rounds[place] else _Round()
            if last.blocks:
                self._add("assistant", last.blocks, self._values[place])
            place += 1
            if last.native:
                self._take_opening(last, rounds.get(self._next_assistant(place), []))
                place = self._answer_last(last, place)
        self._out.answered = any(
            at == len(self._values) - 1 and is_ours(block) and block["type"] == RESULT
            for at, _, block in _blocks(self._values)
        )
        return self._out

    def _check_ids(self) -> None:
        seen: set[tuple[str, str]] = set()
        for place, position, block in _blocks(self._values):
            if is_ours(block) and block["type"] != "thinking":
                name = "id" if block["type"] == "server_tool_use" else "tool_use_id"
                path = f"messages.{place}.content.{position}.{name}"
                value = block.get(name)
                if not isinstance(value, str) or not value:
                    raise InvalidRequest(f"{path}: must be a non-empty string")
                if (name, value) in seen:
                    raise InvalidRequest(f"{path}: {value!r} is already used in this request")
                seen.add((name, value))
        self._out.ids = {value for name, value in seen if name == "id"}

    def _is_translated(self, place: int) -> bool:
        message = self._values[place]
        return (
            isinstance(message, dict)
            and message.get("role") == "assistant"
            and isinstance(message.get("content"), list)
            and any(is_ours(block) for block in message["content"])
        )

    def _rounds(self, place: int) -> list[_Round]:
        """The rounds of one assistant message; results that open it are kept in a round without blocks."""
        rounds: list[_Round] = []
        owners: dict[str, _Round] = {}
        open_round: _Round | None = None
        joined: str | None = None
        for position, block in enumerate(self._values[place]["content"]):
            path = f"messages.{place}.content.{position}"
            if is_ours(block) and block["type"] == RESULT:
                owner = owners.get(block["tool_use_id"])
                if owner is not None:
                    owner.results[block["tool_use_id"]] = self._tool_result(block, path)
                    open_round = None
                elif not any(one.blocks for one in rounds):
                    if not rounds:
                        rounds.append(_Round())
                    rounds[0].results[block["tool_use_id"]] = self._tool_result(block, path)
                continue
            if open_round is None:
                open_round = _Round()
                rounds.append(open_round)
                joined = None
            if joined is not None:
                joined = self._joined_text(open_round, joined, block)
                if joined is None:
                    continue
            joined = self._take(open_round, block, path)
            if is_ours(block) and block["type"] == "server_tool_use":
                owners[block["id"]] = open_round
        return rounds

    @staticmethod
    def _joined_text(into: _Round, before: str, block: Any) -> str | None:
        """Write ``<think>`` text that goes on with ``block``; None when that used the block up."""
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            into.blocks[-1] = {**block, "text": before + block["text"]}
            return None
        return before

    def _take(self, into: _Round, block: Any, path: str) -> str | None:
        """Add a block to its round; returns the text that the next one continues, if it does."""
        if not is_ours(block):
            into.blocks.append(block)
            if isinstance(block, dict) and block.get("type") == "tool_use" and isinstance(block.get("id"), str):
                into.calls.append(block["id"])
            return None
        if block["type"] == "thinking":
            mark = read_mark(block["signature"])
            if mark is None or not isinstance(block.get("thinking"), str):
                raise InvalidRequest(f"{path}.thinking: must be a string")
            text = mark.text(block["thinking"])
            into.blocks.append({"type": "text", "text": text})
            return text if mark.text_follows else None
        if not isinstance(block.get("input"), dict):
            raise InvalidRequest(f"{path}.input: must be an object")
        known = {"type": "tool_use", "id": upstream_id(block["id"]), "name": WEB_SEARCH, "input": block["input"]}
        into.blocks.append(known)
        into.native[block["id"]] = known
        into.calls.append(block["id"])
        return None

    def _tool_result(self, block: Block, path: str) -> Block:
        """The ``tool_result`` the model saw for a ``web_search_tool_result``."""
        call = block["tool_use_id"]
        content = block.get("content")
        if isinstance(content, dict):
            return tool_result(upstream_id(call), error_sentence(content.get("error_code")), failed=True)
        if not isinstance(content, list):
            raise InvalidRequest(f"{path}.content: must be a list of results or an error object")
        if not content:
            return tool_result(upstream_id(call), NO_RESULTS)
        entries = [_entry(item) for item in content]
        sealed = [(url, title, secret) for url, title, _, secret in entries]
        text = self._sealer.open(call, sealed)
        return tool_result(upstream_id(call), _visible_text(entries) if text is None else text)

    def _next_assistant(self, place: int) -> int:
        """Where the next assistant message stands, if one user message at most is between."""
        for at in (place, place + 1):
            if at < len(self._values) and _role(self._values[at]) == "assistant":
                return at
        return -1

    def _take_opening(self, last: _Round, following: list[_Round]) -> None:
        """Give ``last`` the results that open the next assistant message: its calls were run then."""
        if following and not following[0].blocks:
            for call in [call for call in following[0].results if call in last.native and call not in last.results]:
                last.results[call] = following[0].results.pop(call)

    def _emit(self, one: _Round) -> None:
        if one.blocks:
            self._add("assistant", one.blocks)
        results = [self._native_result(one, call) for call in one.calls if call in one.native]
        if results:
            self._add("user", results)

    def _answer_last(self, last: _Round, place: int) -> int:
        """Write the user message that answers a message's last round; returns the place after it."""
        client, rest, following = self._client_results(last, place)
        is_end = place + following == len(self._values)
        missing = [call for call in last.native if call not in last.results]
        late = bool(missing and self._run_late and is_end and client and last.client_calls <= client.keys())
        results: list[Block | LateCall] = []
        for call in last.calls:
            if call not in last.native:
                if call in client:
                    results.append(client[call])
            elif call in last.results or not late:
                results.append(self._native_result(last, call))
            else:
                known = last.native[call]
                results.append(LateCall(call, known["id"], known["input"]))
        if late:
            self._out.late = [one for one in results if isinstance(one, LateCall)]
            self._out.last_results, self._out.last_rest = results, rest
        else:
            self._add("user", [*results, *rest], self._values[place] if following else {})
        return place + following

    def _client_results(self, last: _Round, place: int) -> tuple[dict[str, Block], list[Any], int]:
        """The client's results for ``last``, the rest of the user message, and how many messages that took (0 or 1)."""
        if place >= len(self._values) or _role(self._values[place]) != "user":
            return {}, [], 0
        content = self._values[place].get("content")
        if isinstance(content, str):
            return {}, [{"type": "text", "text": content}], 1
        if not isinstance(content, list):
            return {}, [], 0
        client_calls = last.client_calls
        results: dict[str, Block] = {}
        rest = []
        for block in content:
            answers = (
                block.get("tool_use_id") if isinstance(block, dict) and block.get("type") == "tool_result" else None
            )
            if isinstance(answers, str) and answers in client_calls and answers not in results:
                results[answers] = block
            else:
                rest.append(block)
        return results, rest, 1

    @staticmethod
    def _native_result(one: _Round, call: str) -> Block:
        if call in one.results:
            return one.results[call]
        return tool_result(one.native[call]["id"], error_sentence("unavailable"), failed=True)

    def _add(self, role: str, content: list[Any], source: Block | None = None) -> None:
        """Write a message; of the client's message it is made from, members of other names are kept."""
        self._out.messages.append(jsonvalue.write({**(source or {}), "role": role, "content": content}))


def tool_result(call: str, text: str, *, failed: bool = False) -> Block:
    """A ``tool_result`` block as the gateway sends it upstream."""
    block: Block = {"type": "tool_result", "tool_use_id": call, "content": text}
    if failed:
        block["is_error"] = True
    return block


def _role(message: object) -> object:
    return message.get("role") if isinstance(message, dict) else None


def _entry(item: object) -> tuple[str, str, str, str]:
    """url, title, page_age and encrypted_content of one visible result; "" for what is missing."""
    fields = item if isinstance(item, dict) else {}
    url, title, age, sealed = (
        value if isinstance(value := fields.get(name), str) else ""
        for name in ("url", "title", "page_age", "encrypted_content")
    )
    return url, title, age, sealed


def _visible_text(entries: list[tuple[str, str, str, str]]) -> str:
    lines = []
    for number, (url, title, age, _) in enumerate(entries, 1):
        lines.append("\n".join([f"{number}. {title}", *(part for part in (url, age) if part)]))
    return "\n\n".join(lines)
