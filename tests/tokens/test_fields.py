"""Which requests are token requests, and what is said about the ones that are not sound."""

from typing import Any

import msgspec
import pytest

from gateway.errors import InvalidRequest
from gateway.tokens.fields import TokenFields, TokenProbe, asks_for_tokens, read_token_fields

HELLO = [{"role": "user", "content": "hello"}]


class Probe(TokenProbe):
    """As a request reader would have it: its own fields, and these."""

    model: str = ""


@pytest.mark.parametrize(
    "fields",
    [
        {"input_ids": [1]},
        {"input_ids": []},
        {"image_data": "aGk="},
        {"return_token_ids": True},
        {"return_routed_experts": True},
        {"return_logprob": True},
        {"include_stop_str_in_output": True},
        {"return_token_ids": "yes"},
    ],
)
def test_a_request_with_a_token_field_is_a_token_request(fields: dict[str, Any]) -> None:
    body = {"model": "m", "messages": HELLO, **fields}

    assert asks_for_tokens(body)
    assert msgspec.json.decode(msgspec.json.encode(body), type=Probe).asks_for_tokens


@pytest.mark.parametrize(
    "fields", [{}, {"input_ids": None, "image_data": None}, {"return_token_ids": False, "return_logprob": None}]
)
def test_null_and_false_ask_for_nothing(fields: dict[str, Any]) -> None:
    body = {"model": "m", "messages": HELLO, **fields}

    assert not asks_for_tokens(body)
    assert not msgspec.json.decode(msgspec.json.encode(body), type=Probe).asks_for_tokens
    assert read_token_fields(body) is None


def test_what_is_asked_for_is_read() -> None:
    assert read_token_fields(
        {"messages": [], "input_ids": [0, 7], "image_data": ["https://x/1.png", {"url": "u"}], "return_logprob": True}
    ) == TokenFields(input_ids=[0, 7], image_data=["https://x/1.png", {"url": "u"}], return_logprob=True)
    assert read_token_fields(
        {"messages": HELLO, "return_token_ids": True, "return_routed_experts": True}
    ) == TokenFields(return_token_ids=True, return_routed_experts=True)


def test_what_can_stand_beside_input_ids_may() -> None:
    beside: dict[str, Any]
    for beside in (
        {"tools": []},
        {"tool_choice": {"type": "auto"}},
        {"tool_choice": {"type": "none"}},
        {"system": None},
    ):
        assert read_token_fields({"input_ids": [1], **beside}) == TokenFields(input_ids=[1])


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"messages": HELLO, "input_ids": [1]}, "input_ids: cannot stand beside messages"),
        ({"return_token_ids": True}, "messages: the request has neither messages nor input_ids"),
        ({"messages": [], "return_logprob": True}, "messages: the request has neither messages nor input_ids"),
        ({"input_ids": []}, "input_ids: must not be empty"),
        ({"input_ids": "1 2"}, "input_ids: must be a list"),
        ({"input_ids": {"0": 1}}, "input_ids: must be a list"),
        ({"input_ids": [1, 2, -1]}, "input_ids.2: must be an integer >= 0"),
        ({"input_ids": [1.5]}, "input_ids.0: must be an integer >= 0"),
        ({"input_ids": [True]}, "input_ids.0: must be an integer >= 0"),
        ({"input_ids": [[1]]}, "input_ids.0: must be an integer >= 0"),
        ({"messages": HELLO, "image_data": "aGk="}, "image_data: belongs to input_ids"),
        ({"image_data": "aGk="}, "image_data: belongs to input_ids"),
        ({"input_ids": [1], "image_data": 3}, "image_data: must be a URL"),
        ({"input_ids": [1], "image_data": ["u", None]}, "image_data: must be a URL"),
        ({"input_ids": [1], "system": "Be terse."}, "system: cannot stand beside input_ids"),
        ({"input_ids": [1], "tools": [{"name": "x"}]}, "tools: cannot stand beside input_ids"),
        ({"input_ids": [1], "tool_choice": {"type": "any"}}, "tool_choice: only auto or none"),
        ({"input_ids": [1], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice: only auto or none"),
        ({"messages": HELLO, "return_token_ids": 1}, "return_token_ids: must be true or false"),
        ({"messages": HELLO, "return_logprob": "true"}, "return_logprob: must be true or false"),
        ({"messages": HELLO, "return_routed_experts": {}}, "return_routed_experts: must be true or false"),
        ({"messages": HELLO, "include_stop_str_in_output": []}, "include_stop_str_in_output: must be true or false"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_token_fields(body)

    assert refused.value.message.startswith(complaint)
