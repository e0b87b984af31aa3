"""What must hold for any bytes: each target takes them, and raises only what is wrong with the gateway."""

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gateway.errors import InvalidRequest, RequestError, UpstreamBroken
from gateway.handling.classify import classify
from gateway.tokens import read_token_fields
from gateway.tools.web_search.domains import DomainFilter, read_url
from gateway.tools.web_search.text import SNIPPET_MAX_CHARS, TITLE_MAX_CHARS, clean
from gateway.turn import (
    Call,
    Fold,
    MessagesRounds,
    Out,
    Rounds,
    Sealer,
    TokenRounds,
    TurnRules,
    jsonvalue,
    read_turn,
    translate_count,
)
from gateway.turn.lifecycle import State, following
from gateway.turn.web_search import SearchOutcome, SearchResult
from gateway.wire.rewrite import NameInStream, name_in_message
from gateway.wire.rewrite import read_request as read_for_rewrite
from gateway.wire.sse import SSEReader, write_event
from tests.fuzz.grammar import PIECES, Draw
from tests.support.playbook import QUESTION, SEALER, found

RULES = TurnRules(SEALER, {"Find": "web_search"}, max_rounds=3)
MAX_EVENT = 4096
DEEP = "[" * 5000


def sse_reader(data: bytes) -> None:
    """Any bytes, cut anywhere, give the frames that they give in one piece; or the limit holds."""
    draw = Draw(data)
    sizes = [1 + draw.number(40) for _ in range(draw.number(16))]
    stream = draw.rest()
    for end in (b"", b"\r", b"\n\n", b"\r\n\r\n"):
        whole = _frames([stream + end])
        pieces, at = [], 0
        for size in [*sizes, len(stream) + 4]:
            pieces.append((stream + end)[at : at + size])
            at += size
        assert _frames(pieces) == whole
    for _, event, kept in whole or ():
        assert len(event) <= MAX_EVENT
        if kept is not None:
            assert SSEReader().feed(kept)[0].raw == kept


def _frames(pieces: list[bytes]) -> list[tuple[str, bytes, bytes | None]] | None:
    reader = SSEReader(MAX_EVENT)
    try:
        return [(frame.event, frame.data, frame.raw) for piece in pieces for frame in reader.feed(piece)]
    except UpstreamBroken:
        return None


def accumulator(data: bytes) -> None:
    """Any events or messages of upstream's: one legal message for the client, or the end as an error of upstream's."""
    draw = Draw(data)
    stream = bool(draw.number(2))
    body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": draw.tools(), "stream": stream}
    turn = read_turn(jsonvalue.write(body), RULES)
    if turn is not None:
        _play(MessagesRounds(turn, "/v1/messages"), draw, lambda: draw.events() if stream else draw.message())


def token_rounds(data: bytes) -> None:
    """The same of a turn whose tokens count, from the endpoints that have them."""
    draw = Draw(data)
    stream = bool(draw.number(2))
    more = draw.pick([{"return_token_ids": True}, {"return_logprob": True}, {"return_routed_experts": True}])
    body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": draw.tools(), "stream": stream, **more}
    turn, fields = read_turn(jsonvalue.write(body), RULES), read_token_fields(body)
    if turn is not None and fields is not None:
        rounds = TokenRounds(turn, fields, draw.pick(["vllm", "lmdeploy"]), "/v1/messages")
        _play(rounds, draw, lambda: _chunks(draw) if rounds.streams else _completion(draw))


def _play(rounds: Rounds, draw: Draw, answer: Callable[[], Any]) -> None:
    seen = _Client()
    try:
        while not rounds.over:
            assert isinstance(json.loads(rounds.request()), dict)
            out: Out = []
            try:
                _read(rounds, draw, answer(), out)
            finally:
                seen.takes(out)
            out = []
            calls = rounds.end(out)
            seen.takes(out)
            _answer(rounds, calls, draw, seen)
        out = []
        rounds.finish(out)
        seen.takes(out)
    except RequestError:
        return
    seen.ends()


def _read(rounds: Rounds, draw: Draw, said: Any, out: Out) -> None:
    if rounds.streams:
        reader, events = SSEReader(), []
        for event in said:
            name = event.get("type") if isinstance(event, dict) else None
            events += reader.split(write_event(name if name in KINDS else "message", json.dumps(event).encode()))
        rounds.read(events, out)
    else:
        rounds.read_whole(json.dumps(said).encode(), out)


def _answer(rounds: Rounds, calls: list[Call], draw: Draw, seen: "_Client") -> None:
    for call in calls:
        outcome = draw.pick([found("x"), SearchOutcome("Nothing."), SearchOutcome("It failed.", error="unavailable")])
        out: Out = []
        rounds.take(call, call.settled or outcome, out)
        seen.takes(out)


KINDS = ("message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "ping")


class _Client:
    """Holds what it is sent to one lifecycle, and block indices 0, 1, 2… without a gap."""

    def __init__(self) -> None:
        self._state = State.AWAITED
        self._next = 0
        self._fold = Fold()

    def takes(self, out: Out) -> None:
        for event in out:
            data = event if isinstance(event, bytes) else write_event(event["type"], jsonvalue.write(event))
            [frame] = SSEReader().feed(data)
            read = json.loads(frame.data)
            assert read["type"] == frame.event
            if read["type"] == "ping":
                continue
            self._state = following(self._state, read["type"])
            if read["type"] == "content_block_start":
                assert read["index"] == self._next
                self._next += 1
            elif read["type"].startswith("content_block"):
                assert read["index"] == self._next - 1
        self._fold.take(out)

    def ends(self) -> None:
        assert self._state is State.DONE
        assert self._next
        assert isinstance(jsonvalue.write(self._fold.message), bytes)


def _chunks(draw: Draw) -> list[Any]:
    call = {"index": 0, "id": "call-1", "function": {"name": draw.pick(["web_search", "Bash"]), "arguments": ""}}
    deltas: list[Any] = [
        {"role": "assistant", "content": ""},
        {"reasoning": draw.text()},
        {"content": draw.text()},
        {"tool_calls": [call]},
        {"tool_calls": [{"index": 0, "function": {"arguments": draw.pick(['{"query": "x"}', "{", DEEP])}}]},
    ]
    chunks: list[Any] = [
        {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "token_ids": [1, 2]}]} for delta in deltas
    ]
    chunks[-1]["choices"][0]["finish_reason"] = draw.pick(["stop", "tool_calls", "length"])
    chunks.append({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 10}})
    bent = draw.sometimes_bent(chunks)
    return bent if isinstance(bent, list) else [bent]


def _completion(draw: Draw) -> Any:
    call = {
        "id": "call-1",
        "function": {"name": draw.pick(["web_search", "Bash"]), "arguments": draw.pick([*PIECES, DEEP])},
    }
    reply = {"content": draw.text(), "reasoning": draw.text(), "tool_calls": draw.pick([None, [call]])}
    logprobs = {"content": [{"logprob": -0.5}, {"logprob": None}]}
    choice = {"message": reply, "finish_reason": "stop", "token_ids": [1, 2], "logprobs": logprobs}
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    return draw.sometimes_bent({"id": "c", "model": "m", "choices": [choice], "usage": usage, "prompt_token_ids": [1]})


def classifier(data: bytes) -> None:
    """Any body: nobody's, a turn that can be asked for, token fields, or a refusal that says why."""
    body = Draw(data).request()
    try:
        turn, tokens = classify(body, RULES)
        if turn is not None:
            for call in turn.late_calls():
                turn.answer(call, call.settled or found("x"), [])
            assert isinstance(json.loads(turn.request()), dict)
        if tokens is not None:
            assert isinstance(tokens.body, dict)
        counted = translate_count(body, RULES)
        assert counted is None or isinstance(json.loads(counted), dict)
    except InvalidRequest as error:
        refusal = json.loads(error.body("req_1"))
    else:
        return
    assert refusal["error"]["message"]


def rewriter(data: bytes) -> None:
    """Any body, with another model and a cap: the same JSON but for these values, and what is no JSON is refused."""
    body = Draw(data).request()
    try:
        changed = read_for_rewrite(body).rewritten("other", 5)
    except InvalidRequest:
        return
    before, after = json.loads(body), json.loads(changed)
    if not isinstance(before, dict):
        assert changed == body
        return
    if isinstance(before.get("model"), str):
        assert after["model"] == "other"
    kept = {name: value for name, value in before.items() if name not in ("model", "max_tokens", "thinking")}
    assert {name: after[name] for name in kept} == kept
    with suppress(ValidationError):  # what upstream takes for no integer, it refuses
        assert TypeAdapter(int).validate_python(after.get("max_tokens")) <= 5
    name_in_message(body, "other")
    naming = NameInStream("other")
    naming.feed(body)
    naming.flush()


def unsealer(data: bytes) -> None:
    """Any entries: none opens that was not sealed here, just so."""
    draw = Draw(data)
    entries = [("https://example.com/", "A"), ("https://example.com/b", draw.text())]
    true = [(url, title, secret) for (url, title), secret in zip(entries, SEALED.seal("x", "id", entries), strict=True)]
    assert SEALED.open("id", true) == "x"
    bent = draw.bent([list(entry) for entry in true])
    rows = [row for row in bent if isinstance(row, list) and len(row) == 3] if isinstance(bent, list) else []
    forged = [(str(url), str(title), str(secret)) for url, title, secret in rows]
    if draw.seldom():
        made = base64.urlsafe_b64encode(draw.rest()).decode()
        forged = [(url, title, made) for url, title, _ in forged]
    assert forged == true or SEALED.open("id", forged) is None
    assert SEALED.open(draw.text(), true) is None


SEALED = Sealer(["one", "two"])


def found_page(data: bytes) -> None:
    """Any title, snippet and address that a search finds: bounded text that UTF-8 can hold, and one host at most."""
    said = data.decode("utf-8", "surrogateescape")
    shown = clean(SearchResult(said, "https://example.com/", said, said))
    assert len(shown.title) <= TITLE_MAX_CHARS
    assert len(shown.snippet) <= SNIPPET_MAX_CHARS
    assert shown.snippet.encode().decode() == shown.snippet
    for url in (said, f"https://{said}/", f"https://example.com/{said}"):
        address = read_url(url)
        if address is not None:
            entry = f"[{address.host}]" if ":" in address.host else address.host
            assert not DomainFilter([], [entry]).admits(address)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "sse": sse_reader,
    "accumulator": accumulator,
    "tokens": token_rounds,
    "classifier": classifier,
    "rewriter": rewriter,
    "unsealer": unsealer,
    "page": found_page,
}
