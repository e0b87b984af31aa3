"""Which requests are turns, which ask for tokens, which are both; the rest is nobody's business here."""

import json
from typing import Any

import pytest

from gateway.errors import InvalidRequest, ThreadUnsupported
from gateway.handling.classify import classify
from gateway.tokens import TokenFields
from gateway.turn import TurnRules
from tests.support.playbook import BASH, NATIVE, QUESTION, SEALER, SEARCH

RULES = TurnRules(SEALER, {"WebSearch": "web_search"})


def body(**members: Any) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 9, "messages": [QUESTION], **members}).encode()


@pytest.mark.parametrize(
    ("data", "is_turn", "fields"),
    [
        (body(), False, None),
        (body(tools=[BASH]), False, None),
        (body(return_token_ids=False, return_logprob=None, input_ids=None), False, None),
        (body(tools=[SEARCH]), True, None),
        (body(tools=[NATIVE]), True, None),
        (body(return_token_ids=True), False, TokenFields(return_token_ids=True)),
        (body(tools=[BASH], return_logprob=True), False, TokenFields(return_logprob=True)),
        (body(messages=[], input_ids=[1, 2]), False, TokenFields(input_ids=[1, 2])),
        (body(tools=[SEARCH], return_routed_experts=True), True, TokenFields(return_routed_experts=True)),
        (body(messages="none", return_token_ids=True), False, TokenFields(return_token_ids=True)),
        (body(tools="none", return_token_ids=True), False, TokenFields(return_token_ids=True)),
        (body(tools=[7, {"name": "WebSearch"}], return_token_ids=True), True, TokenFields(return_token_ids=True)),
    ],
)
def test_what_a_request_asks_for(data: bytes, is_turn: bool, fields: TokenFields | None) -> None:
    turn, tokens = classify(data, RULES)
    assert (turn is not None) is is_turn
    assert (None if tokens is None else tokens.fields) == fields


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"return_token_ids": true',
        b'["return_token_ids"]',
        b'{"return_token_ids": true, "x": "\xff"}',
        b'{"return_token_ids": true, "tools": 7, "x": "\xff"}',
        b'{"return_token_ids": true, "x": NaN}',
        b'{"tools": 7, "input_ids": ["\\ud800"]}',
        b'{"return_token_ids":true,"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
)
def test_what_is_no_json_object_asks_for_nothing(data: bytes) -> None:
    assert classify(data, RULES) == (None, None)


def test_a_token_request_that_cannot_be_read_is_refused_rather_than_its_fields_ignored() -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        classify(b'{"return_token_ids": true, "messages": [], "temperature": 1e999}', RULES)


def test_whether_the_client_wants_a_stream() -> None:
    for stream, wants in ((True, True), (False, False), (None, False), ("yes", False)):
        tokens = classify(body(return_token_ids=True, stream=stream), RULES).tokens
        assert tokens is not None
        assert tokens.stream is wants


def test_an_unsound_token_field_is_told_before_the_loop_begins() -> None:
    with pytest.raises(InvalidRequest, match="return_logprob: must be true or false"):
        classify(body(tools=[SEARCH], return_logprob=1), RULES)


@pytest.mark.parametrize(
    "data",
    [
        body(thread={"type": "create"}),
        body(thread={"type": "continue", "previous_message_id": "msg_1"}, tools=[SEARCH]),
        body(thread=False, tools=[BASH]),
        body(thread="x", return_token_ids=True),
        body(thread={}, tools=7),
        body(thread={}, messages=[7], return_token_ids=True),
        body(messages=7, tools=[SEARCH], thread=[]),
    ],
)
def test_a_conversation_that_the_server_is_to_hold(data: bytes) -> None:
    with pytest.raises(ThreadUnsupported):
        classify(data, RULES)


@pytest.mark.parametrize(
    "data",
    [
        body(thread=None),
        body(metadata={"thread": {"type": "create"}}),
        body(messages=[{"role": "user", "content": '"thread":{"type":"create"}'}]),
        body(messages=[{"role": "user", "content": [{"type": "text", "text": "x", "thread": {}}], "thread": {}}]),
        body(tools=[{**BASH, "thread": {}}]),
        b'{"thread":{"type":"create"},"thread":null}',
    ],
)
def test_a_thread_is_looked_for_at_top_level_alone(data: bytes) -> None:
    assert classify(data, RULES) == (None, None)
