"""Tokens of a turn through the whole gateway: what the client is told, and what the gateway's own books hold."""

import json
from typing import Any

import pytest

from tests.support.conversing import converse
from tests.support.playbook import NATIVE, SEARCH
from tests.support.upstream import Answer, Block, json_answer, message, sse, sse_answer, text, tool_use

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("stream", [False, True])]

RUST = tool_use("web_search", {"query": "rust"}, id="call-rust")
DONE = text("Done.")


def counted(block: Block, usage: dict[str, Any], *, stream: bool) -> Answer:
    """An answer with this very ``usage``; in a stream it is on its last event."""
    if not stream:
        return json_answer({**message(block), "usage": usage})
    events = sse(block)
    events[0]["message"]["usage"] = {"input_tokens": 1, "output_tokens": 0}
    events[-2]["usage"] = usage
    return sse_answer(events)


async def test_a_client_is_told_the_size_of_its_context(stream: bool) -> None:
    first = {
        "input_tokens": 100,
        "output_tokens": 5,
        "cache_read_input_tokens": 28_000,
        "cache_creation_input_tokens": 10,
        "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 0},
    }
    last = {"input_tokens": 300, "output_tokens": 7, "cache_read_input_tokens": 28_100}
    rounds = [counted(RUST, first, stream=stream), counted(DONE, last, stream=stream)]
    spoken = await converse({"tools": [SEARCH]}, rounds, stream=stream)
    usage = spoken.message["usage"]
    assert usage["input_tokens"] == 300
    assert usage["cache_read_input_tokens"] == 28_100
    assert usage["cache_creation_input_tokens"] == 0
    assert usage["cache_creation"] == {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
    assert usage["output_tokens"] == 12
    assert [one["cache_read_input_tokens"] for one in usage["iterations"]] == [28_000, 28_100]


async def test_a_native_turn_has_the_sums(stream: bool) -> None:
    usage = {"input_tokens": 100, "output_tokens": 5, "cache_read_input_tokens": 40}
    rounds = [counted(RUST, usage, stream=stream), counted(DONE, usage, stream=stream)]
    spoken = await converse({"tools": [NATIVE]}, rounds, stream=stream)
    told = spoken.message["usage"]
    assert (told["input_tokens"], told["output_tokens"], told["cache_read_input_tokens"]) == (200, 10, 80)


async def test_a_last_round_that_counts_nothing_does_not_empty_the_context(stream: bool) -> None:
    rounds = [counted(RUST, {"input_tokens": 100, "output_tokens": 5}, stream=stream), counted(DONE, {}, stream=stream)]
    if stream:
        events = sse(DONE)
        events[0]["message"]["usage"], events[-2]["usage"] = {}, {}
        rounds[1] = sse_answer(events)
    spoken = await converse({"tools": [SEARCH]}, rounds, stream=stream)
    assert spoken.message["usage"]["input_tokens"] == 100


async def test_log_and_metrics_keep_what_all_rounds_took(stream: bool, capsys: pytest.CaptureFixture[str]) -> None:
    usage = {"input_tokens": 100, "output_tokens": 5}
    rounds = [counted(RUST, usage, stream=stream), counted(DONE, usage, stream=stream)]
    spoken = await converse({"tools": [SEARCH]}, rounds, stream=stream, log_format="json")
    assert spoken.message["usage"]["input_tokens"] == 100
    assert 'messages_gateway_tokens_total{direction="input"} 200.0' in spoken.metrics
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    line = next(line for line in lines if line["event"] == "request" and line["rounds"] == 2)
    assert (line["input_tokens"], line["output_tokens"]) == (200, 10)


@pytest.mark.parametrize("usage", [None, "absent", {}, {"input_tokens": None}], ids=str)
async def test_a_message_that_begins_without_counters_begins_with_zeros(stream: bool, usage: Any) -> None:
    whole = message(DONE)
    events = sse(DONE)
    if usage == "absent":
        del whole["usage"], events[0]["message"]["usage"], events[-2]["usage"]
    else:
        whole["usage"] = events[0]["message"]["usage"] = usage
        events[-2]["usage"] = None
    answer = sse_answer(events) if stream else json_answer(whole)
    spoken = await converse({"tools": [SEARCH]}, [answer], stream=stream)
    assert spoken.status == 200
    usages = [event["usage"] for event in spoken.events if event["type"] == "message_delta"]
    usages += [event["message"]["usage"] for event in spoken.events if event["type"] == "message_start"]
    for told in [*usages, spoken.message["usage"]]:
        assert (told["input_tokens"], told["output_tokens"]) == (0, 0)
