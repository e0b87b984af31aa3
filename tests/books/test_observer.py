"""Whoever looks on sees a turn as it goes, in order, and each thing once."""

import ast
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import gateway
from gateway.books.observer import CallBegun, CallEnded, Observer, RoundBegun, RoundEnded, TurnBegun
from gateway.books.record import Record
from gateway.errors import UpstreamBroken
from gateway.settings import Settings
from tests.support.gateway import running_gateway
from tests.support.playbook import NATIVE, QUESTION, SEARCH
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import ScriptedUpstream, json_answer, message, raw, sse, sse_answer, text, tool_use

pytestmark = pytest.mark.anyio


class Diary(Observer):
    """Writes down all that it is told of."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.begun: list[TurnBegun] = []
        self.rounds: list[RoundEnded] = []
        self.calls: list[CallEnded] = []
        self.bodies: list[bytes] = []
        self.ended: list[Record] = []

    def turn_began(self, record: Record, begun: TurnBegun) -> None:
        self.said.append("turn began")
        self.begun.append(begun)

    def round_began(self, record: Record, begun: RoundBegun) -> None:
        self.said.append(f"round {begun.number} began")
        self.bodies.append(begun.body)

    def round_ended(self, record: Record, ended: RoundEnded) -> None:
        self.said.append(f"round {ended.number} ended")
        self.rounds.append(ended)

    def call_began(self, record: Record, begun: CallBegun) -> None:
        self.said.append(f"{begun.tool} began")

    def call_ended(self, record: Record, ended: CallEnded) -> None:
        self.said.append(f"{ended.call.tool} ended")
        self.calls.append(ended)

    def turns_ended(self, records: Sequence[Record], in_flight: int) -> None:
        self.said += ["turn ended"] * len(records)
        self.ended += records


async def seen(upstream: ScriptedUpstream, tool: dict[str, Any] | None, *, stream: bool) -> Diary:
    diary = Diary()
    search = ScriptedSearch(default=found("It is 1.89."))
    async with (
        upstream,
        running_gateway(Settings(upstream=upstream.origin), search=search, observers=[diary]) as gateway,
    ):
        tools = [] if tool is None else [tool]
        body = {"model": "qwen3", "max_tokens": 64, "stream": stream, "tools": tools, "messages": [QUESTION]}
        await gateway.client.post("/v1/messages", json=body)
    return diary


@pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])
@pytest.mark.parametrize("tool", [SEARCH, NATIVE], ids=["hidden", "native"])
async def test_a_turn_with_a_search(tool: dict[str, Any], stream: bool) -> None:
    call = tool_use("web_search", {"query": "rust"}, id="call-rust")
    answers = [sse_answer(sse(call)), sse_answer(sse(text("1.89.")))]
    if not stream:
        answers = [json_answer(message(call)), json_answer(message(text("1.89.")))]
    upstream = ScriptedUpstream(*answers)
    diary = await seen(upstream, tool, stream=stream)
    assert diary.said == [
        "turn began",
        "round 1 began",
        "round 1 ended",
        "web_search began",
        "web_search ended",
        "round 2 began",
        "round 2 ended",
        "turn ended",
    ]
    assert [(one.status, one.error, one.answer["stop_reason"]) for one in diary.rounds] == [
        (200, None, "tool_use"),
        (200, None, "end_turn"),
    ]
    assert all(one.answer["id"] and one.answer["model"] and one.answer["usage"]["input_tokens"] for one in diary.rounds)
    for one in diary.rounds:
        assert one.head_ms is not None
        assert one.first_ms is not None
        assert one.head_ms <= one.first_ms <= one.ms
    assert diary.bodies == [request.body for request in upstream.requests]
    [ended] = diary.calls
    assert (ended.call.kind, ended.call.upstream_id, ended.call.job.query) == ("web_search", "call-rust", "rust")
    assert (ended.call.call_id is None) == (tool is SEARCH)
    assert (ended.outcome.error, ended.outcome.text) == (None, "It is 1.89.")
    [record] = diary.ended
    assert (record.outcome, record.rounds, record.tools) == ("ok", 2, {"web_search": 1})
    assert record.upstream_ms == pytest.approx(sum(one.ms for one in diary.rounds))


@pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])
async def test_a_request_that_passes_through_is_a_round(stream: bool) -> None:
    answer = sse_answer(sse(text("Hi."))) if stream else json_answer(message(text("Hi.")))
    diary = await seen(ScriptedUpstream(answer), None, stream=stream)
    assert diary.said == ["turn began", "round 1 began", "round 1 ended", "turn ended"]
    [ended] = diary.rounds
    assert (ended.status, ended.error, dict(ended.answer)) == (200, None, {})
    [begun] = diary.begun
    assert (begun.method, begun.target) == ("POST", b"/v1/messages")
    assert (b"content-type", b"application/json") in begun.headers


@pytest.mark.parametrize("tool", [None, SEARCH], ids=["proxied", "a turn"])
async def test_a_round_that_fails_ends_too(tool: dict[str, Any] | None) -> None:
    diary = await seen(ScriptedUpstream(raw(then="close")), tool, stream=True)
    assert diary.said == ["turn began", "round 1 began", "round 1 ended", "turn ended"]
    [ended] = diary.rounds
    assert (ended.status, ended.head_ms) == (None, None)
    assert isinstance(ended.error, UpstreamBroken)
    assert diary.ended[0].outcome == "upstream_error"


def test_a_record_is_written_by_its_own_methods_alone() -> None:
    names = {field.name for field in fields(Record)}
    root = Path(gateway.__file__).parent
    written = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else []
            if isinstance(node, ast.AugAssign | ast.AnnAssign):
                targets = [node.target]
            for target in targets:
                for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(one, ast.Attribute) and one.attr in names:
                        holder = ast.unparse(one.value)
                        if holder.endswith("record"):
                            written.append(f"{path.relative_to(root)}: {holder}.{one.attr}")
    assert written == []
