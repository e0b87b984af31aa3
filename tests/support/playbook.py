"""Plays a whole turn against the core, without any IO: what upstream says, what it is asked, what the client sees.

    play = Playbook({"messages": [...], "tools": [...]}, [[tool_use("web_search", {"query": "x"})], [text("Done.")]])
    play.json["content"]; play.events; play.asked[1]["messages"]

A round is a list of blocks (``tests.support.upstream`` builds them), or a :class:`Round` with more to say. The same
turn is played in JSON (``json``) and as a stream (``events`` as the client reads them, ``folded`` into a message).
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.turn import Fold, Out, Sealer, Turn, TurnRules, events_of, read_event, read_turn
from gateway.turn.web_search import SearchCall, SearchOutcome, SearchResult
from gateway.wire.sse import SSEReader, write_event
from tests.support.events import events_in
from tests.support.upstream import Block, encode_event, message, sse

SEALER = Sealer(["a key of the tests"])
SEARCH: dict[str, Any] = {
    "name": "web_search",
    "description": "Search.",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
NATIVE: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
BASH: dict[str, Any] = {
    "name": "Bash",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
}
QUESTION = {"role": "user", "content": "What is the latest stable Rust release?"}


def asking(*, stream: bool, **members: Any) -> dict[str, Any]:
    """A request that declares a hidden search, unless ``members`` say otherwise."""
    return {"model": "qwen3", "max_tokens": 64, "stream": stream, "tools": [SEARCH], "messages": [QUESTION], **members}


@dataclass(frozen=True)
class Round:
    """One upstream answer; ``stop_reason`` is vLLM's own choice if None."""

    blocks: Sequence[Block]
    stop_reason: str | None = None
    usage: tuple[int, int] = (10, 5)


def found(query: str) -> SearchOutcome:
    """What a search finds unless a test says otherwise: one result that names the query."""
    result = SearchResult(f"About {query}", f"https://example.com/{len(query)}", f"{query} is out.", "2026-01-02")
    return SearchOutcome(f"1. {result.title}\n{result.url}\n2026-01-02\n{query} is out.", (result,))


@dataclass
class Played:
    """One play of the turn: in ``asked`` what upstream was sent, in ``searched`` what was searched."""

    message: dict[str, Any]
    sent: bytes
    asked: list[dict[str, Any]] = field(default_factory=list)
    searched: list[SearchCall] = field(default_factory=list)


@dataclass
class Playbook:
    request: dict[str, Any]
    rounds: Iterable[Sequence[Block] | Round]
    outcomes: Callable[[str], SearchOutcome] = found
    rules: TurnRules = field(default_factory=lambda: TurnRules(SEALER))
    cut: int | None = None

    def __post_init__(self) -> None:
        self.script = [one if isinstance(one, Round) else Round(one) for one in self.rounds]
        self.in_json = self._play(stream=False)
        self.in_stream = self._play(stream=True)

    @property
    def json(self) -> dict[str, Any]:
        return self.in_json.message

    @property
    def folded(self) -> dict[str, Any]:
        return self.in_stream.message

    @property
    def events(self) -> list[dict[str, Any]]:
        return events_in(self.in_stream.sent)

    @property
    def asked(self) -> list[dict[str, Any]]:
        """What upstream was asked, ``stream`` aside; the same in both transports."""
        one, two = ([dict(body, stream=None) for body in play.asked] for play in (self.in_json, self.in_stream))
        assert one == two
        return one

    @property
    def searched(self) -> list[SearchCall]:
        assert self.in_json.searched == self.in_stream.searched
        return self.in_json.searched

    def _play(self, *, stream: bool) -> Played:
        body = {"model": "qwen3", "max_tokens": 100, "messages": [QUESTION], **self.request, "stream": stream}
        turn = read_turn(json.dumps(body).encode(), self.rules)
        assert turn is not None, "nothing of the gateway's in the request"
        played, fold = Played({}, b""), Fold()

        def sees(out: Out) -> None:
            for event in out:
                data = event if isinstance(event, bytes) else write_event(event["type"], json.dumps(event).encode())
                played.sent += data
                fold.take(events_in(data))

        self._run(turn, turn.late_calls(), played, sees)
        script = iter(self.script)
        while not turn.over:
            played.asked.append(json.loads(turn.request()))
            for answer in self._answers(turn, next(script), stream):
                sees(answer)
            out: Out = []
            calls = turn.end_round(out)
            sees(out)
            self._run(turn, calls, played, sees)
        out = []
        turn.finish(out)
        sees(out)
        assert next(script, None) is None, "upstream was asked for fewer rounds than scripted"
        played.message = fold.message
        return played

    def _run(self, turn: Turn, calls: list[Any], played: Played, sees: Callable[[Out], None]) -> None:
        for call in calls:
            if call.settled is None:
                played.searched.append(call.job)
            out: Out = []
            turn.answer(call, call.settled or self.outcomes(call.job.query), out)
            sees(out)

    def _answers(self, turn: Turn, said: Round, stream: bool) -> Iterable[Out]:
        build = {"stop_reason": said.stop_reason, "input_tokens": said.usage[0], "output_tokens": said.usage[1]}
        if not stream:
            for event in events_of(message(*said.blocks, **build)):  # type: ignore[arg-type]
                out: Out = []
                turn.feed(event, None, out)
                yield out
            return
        data = b"".join(encode_event(event) for event in sse(*said.blocks, **build))  # type: ignore[arg-type]
        reader = SSEReader()
        for chunk in (data[: self.cut], data[self.cut :]) if self.cut is not None else (data,):
            for frame in reader.feed(chunk):
                out = []
                event = read_event(frame.data)
                turn.feed(event, frame.raw if frame.event == event["type"] else None, out)
                yield out
