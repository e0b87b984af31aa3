"""A short look at what `make fuzz` looks at for long: hostile input is refused, or does no harm."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import InvalidRequest, UpstreamError
from gateway.handling.classify import classify
from gateway.turn import KINDS, Out, read_event, read_turn
from gateway.turn.history import translate
from tests.fuzz.targets import RULES, SEALED, TARGETS
from tests.support.playbook import NATIVE, QUESTION

words = st.text() | st.sampled_from(["type", "role", "content", "assistant", "server_tool_use", "web_search", "tools"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("name", TARGETS)
@settings(deadline=None, max_examples=300)
@given(data=st.binary(max_size=400))
def test_no_bytes_break_it(name: str, data: bytes) -> None:
    TARGETS[name](data)


@settings(deadline=None)
@given(st.binary() | values.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_nobodys_or_ours_or_refused(body: bytes) -> None:
    try:
        turn, _ = classify(body, RULES)
    except InvalidRequest:
        return
    assert turn is None or json.loads(turn.request())


@settings(deadline=None)
@given(st.lists(st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": values})))
def test_any_history_is_translated_or_refused(messages: list[Any]) -> None:
    written = json.dumps(messages).encode()
    try:
        history = translate(written, KINDS, SEALED, run_late=KINDS.functions)
    except InvalidRequest:
        return
    assert all(isinstance(json.loads(message), dict) for message in history.messages)


@settings(deadline=None)
@given(st.lists(values.map(json.dumps)))
def test_any_events_are_a_message_or_upstreams_error(events: list[str]) -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [NATIVE], "stream": True}
    turn, out = read_turn(json.dumps(body).encode(), RULES), list[Any]()
    assert turn is not None
    turn.request()
    with pytest.raises(UpstreamError):  # as chance has it, never a whole message
        feed(turn, events, out)


def feed(turn: Any, events: list[str], out: Out) -> None:
    for event in events:
        turn.feed(read_event(event.encode()), None, out)
    turn.end_round(out)


@settings(deadline=None)
@given(st.text(), st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1))
def test_no_strings_open(call: str, entries: list[tuple[str, str, str]]) -> None:
    assert SEALED.open(call, entries) is None
