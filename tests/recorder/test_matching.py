from typing import Any

import pytest

from recorder.matching import describe, differences, digest, normalise
from tests.recorder.tape import SECRET, assistant, call, result, user


def request(*messages: Any, **fields: Any) -> Any:
    return normalise("POST", "/v1/messages", {}, {"model": "qwen3", "messages": list(messages), **fields})


def same(one: Any, other: Any) -> bool:
    """Equal in the comparison, and in the index that turns are found by."""
    equal = not list(differences(one, other))
    assert equal == (digest(one) == digest(other))
    return equal


def thought(**signature: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": "hm", **signature}


BLANK = {"type": "text", "text": " \n\n"}
HELLO = {"type": "text", "text": "Hello"}


def test_what_is_left_out_of_the_comparison() -> None:
    recorded = request(user("hi"), assistant(thought(signature="abc"), BLANK, HELLO), user("go on"))
    assert same(recorded, request(user("hi"), assistant(thought(), HELLO), user("go on")))
    assert same(recorded, request(user("hi"), assistant(thought(signature=""), HELLO, BLANK), user("go on")))


def test_keys_may_come_in_any_order_and_numbers_in_any_spelling() -> None:
    made = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1, "y": 2}}
    made_otherwise = {"input": {"y": 2, "x": 1.0}, "name": "f", "id": "a", "type": "tool_use"}
    one = request(user("hi"), assistant(made), top_p=1)
    other = request(user("hi"), assistant(made_otherwise), top_p=1.0)
    assert same(one, other)


@pytest.mark.parametrize(
    "other",
    [
        request(user("hi"), top_k=3),
        request(user("hi there")),
        request(user([{"type": "text", "text": "hi"}])),
        request(user("hi"), assistant(HELLO)),
        request(user("hi"), stream=False),
        request(user("hi"), stream=1),
        request(user("hi"), stream=None),
        {**request(user("hi"), stream=True), "query": {"beta": "true"}},
        normalise("POST", "/v1/messages", {}, "not JSON"),
    ],
)
def test_everything_else_counts(other: Any) -> None:
    assert not same(request(user("hi"), stream=True), other)


def two_calls(first: str, second: str, *results: dict[str, Any]) -> Any:
    return request(user("hi"), assistant(call(first, "go"), call(second, "redis")), user(list(results)))


def test_call_ids_are_a_matter_of_the_recording_but_not_which_call_a_result_answers() -> None:
    recorded = two_calls("a", "b", result("a", "1.0"), result("b", "2.0"))
    assert same(recorded, two_calls("x", "y", result("x", "1.0"), result("y", "2.0")))
    assert not same(recorded, two_calls("x", "y", result("y", "1.0"), result("x", "2.0")))
    assert not same(recorded, two_calls("x", "y", result("x", "1.0"), result("z", "2.0")))


@pytest.mark.parametrize(
    ("pattern", "fields"),
    [
        ("body.max_tokens", {"max_tokens": 5}),
        ("body.tools.*.description", {"tools": [{"name": "f", "description": "old"}, {"name": "g"}]}),
        ("body.tools.0", {"tools": [{"name": "other"}, {"name": "g"}]}),
        ("body.metadata.*", {"metadata": {"user": "you"}}),
    ],
)
def test_more_can_be_left_out_by_path(pattern: str, fields: dict[str, Any]) -> None:
    body = {"max_tokens": 4, "tools": [{"name": "f", "description": "new"}, {"name": "g"}], "metadata": {"user": "me"}}
    recorded = normalise("POST", "/", {}, body)
    received = normalise("POST", "/", {}, {**body, **fields})
    assert not same(recorded, received)
    assert same(normalise("POST", "/", {}, body, [pattern]), normalise("POST", "/", {}, {**body, **fields}, [pattern]))


def test_credentials_are_compared_as_a_cassette_holds_them() -> None:
    assert same(request(user(f"my key is {SECRET}")), request(user("my key is [redacted]")))


def test_a_difference_is_said_where_it_is() -> None:
    recorded = request(user("hi"), assistant(call("a", "rust")), user([result("a", "Rust is at 1.89.0.")]), stream=True)
    received = request(user("hi"), assistant(call("a", "rust")), user([result("a", "Rust is at 1.90.0.")]), top_k=3)
    assert describe(list(differences(recorded, received)), "recorded", "received") == (
        "  body.messages.2.content.0.content\n"
        '    recorded  "Rust is at 1.89.0."\n'
        '    received  "Rust is at 1.90.0."\n'
        "  body.stream\n"
        "    recorded  true\n"
        "    received  (nothing)\n"
        "  body.top_k\n"
        "    recorded  (nothing)\n"
        "    received  3"
    )


def test_long_texts_are_shown_from_where_they_part() -> None:
    (difference,) = differences("a" * 5000 + "left", "a" * 5000 + "right")
    shown = describe([difference], "one", "other")
    assert 'aleft"' in shown
    assert 'aright"' in shown
    assert len(shown) < 200


def test_many_differences_are_counted() -> None:
    found = list(differences(dict.fromkeys("abcdefghijklmnopqrstuvwxyz", 1), {}))
    assert describe(found, "one", "other").endswith("… and 6 more")
