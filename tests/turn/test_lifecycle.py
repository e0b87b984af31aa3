"""Rounds that do not go as they should: each ends as an error, and none of its calls is run."""

from typing import Any

import pytest

from gateway.errors import UpstreamBroken, UpstreamError
from gateway.turn import Turn, events_of, read_event, read_message, read_turn
from gateway.turn.lifecycle import EVENT_TYPES, TRANSITIONS, State, following
from gateway.turn.request import TurnRules
from tests.support.playbook import SEALER
from tests.support.upstream import message, sse, text, thinking, tool_use

SCHEMA = b'{"type":"object","properties":{"query":{"type":"string"}}}'
REQUEST = b'{"model":"m","messages":[],"stream":true,"tools":[{"name":"web_search","input_schema":%b}]}' % SCHEMA
SEARCHING = sse(thinking("Hm."), text("Look."), tool_use("web_search", {"query": "rust"}))


def turn() -> Turn:
    begun = read_turn(REQUEST, TurnRules(SEALER))
    assert begun is not None
    begun.request()
    return begun


def feed(events: list[Any]) -> Turn:
    begun = turn()
    for event in events:
        begun.feed(event, None, [])
    return begun


def test_every_transition_that_is_not_in_the_table_is_an_error() -> None:
    for state in State:
        for kind in EVENT_TYPES:
            if (state, kind) in TRANSITIONS:
                assert following(state, kind) is TRANSITIONS[state, kind]
            else:
                with pytest.raises(UpstreamBroken, match=kind):
                    following(state, kind)


@pytest.mark.parametrize("length", range(len(SEARCHING)))
def test_a_stream_cut_anywhere_runs_nothing(length: int) -> None:
    begun = feed(SEARCHING[:length])
    with pytest.raises(UpstreamBroken, match="ended before its message"):
        begun.end_round([])


def test_a_whole_stream_runs_its_call() -> None:
    assert [call.job.query for call in feed(SEARCHING).end_round([])] == ["rust"]


START, BLOCK = SEARCHING[0], SEARCHING[1]
DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "x"}}


@pytest.mark.parametrize(
    "events",
    [
        [START, START],
        [START, BLOCK, START],
        [BLOCK],
        [START, DELTA],
        [START, BLOCK, {**DELTA, "index": 1}],
        [START, BLOCK, BLOCK],
        [START, BLOCK, {"type": "content_block_stop", "index": 0}, BLOCK],
        [START, BLOCK, {"type": "content_block_stop", "index": 4}],
        [START, {**BLOCK, "index": None}],
        [START, {**BLOCK, "content_block": None}],
        [START, {**BLOCK, "content_block": {"text": ""}}],
        [START, BLOCK, {**DELTA, "delta": {"type": "text_delta", "text": "x"}}],
        [START, BLOCK, {**DELTA, "delta": {"type": "thinking_delta"}}],
        [START, BLOCK, {**DELTA, "delta": None}],
        [START, {"type": "message_stop"}],
        [START, {"type": "message_delta", "delta": None, "usage": {}}],
        [START, {"type": "message_delta", "delta": {}, "usage": 3}],
        [{"type": "message_start", "message": None}],
        [{"type": None}],
        [{}],
        [START, {**BLOCK, "content_block": {"type": "tool_use", "name": "web_search", "input": {}}}],
    ],
)
def test_an_event_out_of_place_or_out_of_shape_is_an_error(events: list[Any]) -> None:
    begun = feed(events[:-1])
    with pytest.raises(UpstreamBroken):
        begun.feed(events[-1], None, [])


def test_pings_pass_and_unknown_events_do_not() -> None:
    begun, out = turn(), list[Any]()
    begun.feed({"type": "ping"}, b"as it came", out)
    begun.feed({"type": "from_the_future"}, None, out)
    assert out == [b"as it came"]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        ({"type": "overloaded_error", "message": "Busy."}, "overloaded_error", "Busy."),
        ({"type": "internal_error", "message": "Boom."}, "api_error", "Boom."),
        (None, "api_error", "Upstream failed."),
    ],
)
def test_upstreams_own_error_keeps_its_message(error: Any, kind: str, words: str) -> None:
    with pytest.raises(UpstreamError) as caught:
        turn().feed({"type": "error", "error": error}, None, [])
    assert (caught.value.type, caught.value.message) == (kind, words)


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"\xff", b"[DONE]", b'{"a":NaN}', b"[" * 100_000])
def test_data_that_is_no_json_object_is_an_error(data: bytes) -> None:
    with pytest.raises(UpstreamBroken):
        read_event(data)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"content":"x"}', b'{"type":"message"}'])
def test_a_json_answer_that_is_no_message_is_an_error(body: bytes) -> None:
    with pytest.raises(UpstreamBroken):
        read_message(body)


def test_a_json_answer_with_a_block_without_a_type_is_an_error() -> None:
    with pytest.raises(UpstreamBroken, match="without a type"):
        list(events_of({**message(), "content": [{"text": "x"}]}))
