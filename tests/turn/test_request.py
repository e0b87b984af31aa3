"""What of a request is the gateway's, what is refused, and what passes untouched."""

import json
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.turn import TurnRules, read_turn, translate_count
from gateway.turn.marker import ThinkMark
from tests.support.playbook import BASH, NATIVE, QUESTION, SEALER, SEARCH, Playbook
from tests.support.upstream import text, tool_use

RULES = TurnRules(SEALER, {"WebSearch": "web_search"})
ALIAS = {"name": "WebSearch", "input_schema": {"type": "object"}}


def body(**members: Any) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 9, "messages": [QUESTION], **members}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff\xfe",
        b'{"tools": [{"name": "web_search"}], "x": "\xff"}',
        b'{"tools": [{"name": "web_search"}]',
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        body(),
        body(tools=None),
        body(tools="web_search"),
        body(tools=[1, "web_search", None, {"name": 7}, {"name": ["web_search"]}]),
        body(tools=[BASH]),
        body(tools=[{"name": "mcp__web_search"}, {"name": "Web_Search"}]),
        body(tools=[{"type": "web_search_20250305", "name": "find"}]),
        body(tools=[{"type": "web_search_2025", "name": "web_search"}]),
        body(tools=[{"type": "grep_20250124", "name": "web_search"}]),
        body(tools=[{"type": ["custom"], "name": "web_search"}]),
        body(messages="none"),
        body(messages=[{"role": "assistant", "content": [{"type": "odd_tool_use", "name": "web_fetch"}]}]),
        body(messages=[{"role": "user", "content": "a web_search_tool_result, server_tool_use"}]),
        body(messages=[{"role": "assistant", "content": ["server_tool_use", 3, None]}]),
        body(messages=[{"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "abc"}]}]),
    ],
)
def test_nothing_of_ours(data: bytes) -> None:
    assert read_turn(data, RULES) is None
    assert translate_count(data, RULES) is None


RESULT = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_a", "content": []}
MARK = ThinkMark(True, "", "", False).signature()


@pytest.mark.parametrize(
    "members",
    [
        {"tools": [SEARCH]},
        {"tools": [{**SEARCH, "type": "custom"}]},
        {"tools": [7, SEARCH]},
        {"tools": [ALIAS, NATIVE]},
        {"tools": [{"type": "web_search_20991231", "name": "web_search"}]},
        {"messages": [{"role": "assistant", "content": [RESULT]}]},
        {"messages": [{"role": "assistant", "content": [RESULT, 5]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": MARK}]}]},
    ],
)
def test_something_of_ours(members: dict[str, Any]) -> None:
    assert read_turn(body(**members), RULES) is not None


def test_escaped_names_are_seen() -> None:
    assert read_turn(body(tools=[SEARCH]).replace(b"web_search", b"w\\u0065b_search"), RULES) is not None


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"tools": [SEARCH, NATIVE]}, "tools.1.name"),
        ({"tools": [ALIAS, BASH, ALIAS]}, "tools.2.name"),
        ({"tools": [{**NATIVE, "max_uses": 0}]}, "tools.0.max_uses"),
        ({"tools": [{**NATIVE, "max_uses": True}]}, "tools.0.max_uses"),
        ({"tools": [BASH, {**NATIVE, "max_uses": "2"}]}, "tools.1.max_uses"),
        ({"tools": [{**NATIVE, "allowed_domains": "a.com"}]}, "tools.0.allowed_domains"),
        ({"tools": [{**NATIVE, "blocked_domains": ["a.com", 1]}]}, "tools.0.blocked_domains"),
        ({"tools": [{**NATIVE, "allowed_domains": ["a.com"], "blocked_domains": ["b.com"]}]}, "tools.0"),
        ({"tools": [{**NATIVE, "user_location": "here"}]}, "tools.0.user_location"),
        ({"tools": [{**NATIVE, "user_location": {"city": 1}}]}, "tools.0.user_location.city"),
        ({"tools": [SEARCH], "tool_choice": "auto"}, "tool_choice"),
        ({"tools": [SEARCH], "tool_choice": {}}, "tool_choice"),
        ({"tools": [SEARCH], "stream": "yes"}, "stream"),
        ({"tools": [SEARCH], "messages": {"role": "user"}}, "messages"),
        ({"tools": [SEARCH], "messages": None}, "messages"),
    ],
)
def test_what_the_loop_needs_and_cannot_read_is_named(members: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{path}: "):
        read_turn(body(**members), RULES)


def test_a_turn_without_messages_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"^messages: "):
        read_turn(b'{"tools":[{"name":"web_search"}]}', RULES)


@pytest.mark.parametrize("empty", [{"allowed_domains": None}, {"allowed_domains": [], "blocked_domains": ["a.com"]}])
def test_empty_lists_restrict_nothing(empty: dict[str, Any]) -> None:
    assert read_turn(body(tools=[{**NATIVE, **empty, "max_uses": None, "user_location": None}]), RULES) is not None


def test_all_else_goes_upstream_as_the_bytes_it_came_in() -> None:
    """Numbers of any size and spelling, order of keys, white space inside values, unknown members."""
    tool = b'{"name": "web_search", "x":  1.50, "input_schema": {"properties": {"query": {"type": "string"}}}}'
    sent = (
        b'{"top_k": 123456789012345678901234567890, "tools": [%b], "t": 1e400,'
        b' "messages": [ {"content" : "hi", "role": "user", "n": 1.10} ], "model":"m", "zzz": {"b": 1, "a": "\\u00e9"}}'
    ) % tool
    turn = read_turn(sent, RULES)
    assert turn is not None
    asked = (
        b'{"top_k":123456789012345678901234567890,"tools":[%b],"t":1e400,'
        b'"messages":[{"content" : "hi", "role": "user", "n": 1.10}],"model":"m","zzz":{"b": 1, "a": "\\u00e9"}}'
    ) % tool
    assert turn.request() == asked


def test_count_tokens_is_asked_of_what_upstream_knows() -> None:
    play = Playbook({"tools": [NATIVE]}, [[tool_use("web_search", {"query": "rust"})], [text("Done.")]])
    history = [QUESTION, {"role": "assistant", "content": play.json["content"]}, QUESTION]
    counted = translate_count(body(tools=[NATIVE], messages=history), RULES)
    assert counted is not None
    asked = json.loads(counted)
    assert asked["messages"][:3] == play.asked[1]["messages"]
    assert asked["tools"] == play.asked[0]["tools"]
    assert list(asked) == ["model", "max_tokens", "messages", "tools"]
