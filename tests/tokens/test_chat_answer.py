"""A chat completion's JSON answer, read as a message."""

import base64
import io
from pathlib import Path
from typing import Any

import numpy
import pytest

from gateway.errors import InvalidRequest, UpstreamBroken
from gateway.tokens.chat_answer import chat_message
from gateway.tokens.fields import TokenFields
from tests.tokens.conversation import RECORDED, recorded, without_random

IDS = TokenFields(return_token_ids=True)


def answer(message: dict[str, Any], finish: str = "stop", **choice: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "model": "qwen3",
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": finish,
                "stop_reason": None,
                "token_ids": [5, 6],
                **choice,
            }
        ],
        "prompt_token_ids": [1, 2, 3],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
    }


def call(arguments: str) -> dict[str, Any]:
    function = {"name": "web_search", "arguments": arguments}
    return {"content": None, "tool_calls": [{"id": "chatcmpl-tool-1", "type": "function", "function": function}]}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_it_is_the_message_that_vllm_itself_made(path: Path) -> None:
    conversation = recorded(path)
    vllms = conversation["message"]

    message, tokens = chat_message(conversation["chat_answer"], TokenFields(return_token_ids=True, return_logprob=True))

    assert without_random(message["content"]) == without_random(vllms["content"])
    assert (message["stop_reason"], message["stop_sequence"]) == (vllms["stop_reason"], vllms.get("stop_sequence"))
    assert message["usage"] == vllms["usage"]
    assert message["output_ids"] == tokens.output_ids == conversation["chat_answer"]["choices"][0]["token_ids"]
    assert [token for _, token in message["output_token_logprobs"]] == message["output_ids"]
    assert all(logprob <= 0 for logprob, _ in message["output_token_logprobs"])
    assert tokens.input_ids == conversation["chat_answer"]["prompt_token_ids"]


def test_a_message_says_only_what_was_asked_for() -> None:
    message, tokens = chat_message(answer({"content": "Hi."}), TokenFields(include_stop_str_in_output=True))

    assert message == {
        "id": "chatcmpl-1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "Hi."}],
        "model": "qwen3",
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    assert (tokens.input_ids, tokens.output_ids) == ([1, 2, 3], [5, 6])


def test_an_empty_completion_is_one_empty_text_block() -> None:
    message, _ = chat_message(answer({"content": "", "reasoning": None}), IDS)

    assert message["content"] == [{"type": "text", "text": ""}]


def test_routed_experts_have_a_row_for_every_token_but_the_last() -> None:
    """Prompt and output are five tokens: four rows, of two layers and three experts a token."""
    experts = numpy.arange(4 * 2 * 3, dtype=numpy.uint8).reshape(4, 2, 3)
    file = io.BytesIO()
    numpy.save(file, experts)
    encoded = base64.b64encode(file.getvalue()).decode()

    message, tokens = chat_message(
        answer({"content": "Hi."}, routed_experts=encoded), TokenFields(return_routed_experts=True)
    )

    decoded = numpy.load(io.BytesIO(base64.b64decode(message["routed_experts"])))
    assert decoded.dtype == numpy.uint8
    assert decoded.shape[0] == len(tokens.input_ids or ()) + len(tokens.output_ids) - 1
    assert (decoded == experts).all()
    assert tokens.routed_experts == encoded
    assert "output_ids" not in message


def test_a_server_without_routed_experts_is_told_which_flag_to_set() -> None:
    with pytest.raises(InvalidRequest, match="--enable-return-routed-experts"):
        chat_message(answer({"content": "Hi."}, routed_experts=None), TokenFields(return_routed_experts=True))


def test_usage_counts_the_cache_apart() -> None:
    cached = answer({"content": "Hi."})
    cached["usage"] = {
        "prompt_tokens": 100,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 64, "created_cache_tokens": 16},
    }

    assert chat_message(cached, IDS)[0]["usage"] == {
        "input_tokens": 20,
        "output_tokens": 2,
        "cache_creation_input_tokens": 16,
        "cache_read_input_tokens": 64,
    }


@pytest.mark.parametrize(
    ("given", "stop"),
    [
        (answer({"content": "x"}, "length"), ("max_tokens", None)),
        (answer({"content": "x"}, "stop", stop_reason="END"), ("stop_sequence", "END")),
        (answer({"content": "x"}, "stop", stop_reason=151645), ("end_turn", None)),
        (answer(call("{}"), "tool_calls"), ("tool_use", None)),
        (answer(call("{}"), "stop"), ("tool_use", None)),
        (answer(call("{}"), "stop", stop_reason="END"), ("tool_use", None)),
        (answer(call("{}"), "length"), ("max_tokens", None)),
        (answer({"content": "x"}, "abort"), (None, None)),
    ],
)
def test_how_it_ended(given: dict[str, Any], stop: tuple[str | None, str | None]) -> None:
    message, _ = chat_message(given, IDS)

    assert (message["stop_reason"], message["stop_sequence"]) == stop


def test_transfer_parameters_of_disaggregated_serving_pass() -> None:
    message, _ = chat_message(answer({"content": "x"}) | {"kv_transfer_params": {"block": 1}}, IDS)

    assert message["kv_transfer_params"] == {"block": 1}


@pytest.mark.parametrize(
    "broken",
    [
        {"id": "chatcmpl-1", "choices": []},
        {"hello": "world"},
        answer(call('{"query": ')),
        answer(call("[1]")),
        answer({"content": "x"}, token_ids=None),
    ],
)
def test_what_is_no_such_answer_is_upstreams_fault(broken: dict[str, Any]) -> None:
    with pytest.raises(UpstreamBroken):
        chat_message(broken, IDS)


def test_log_probabilities_that_do_not_pair_are_upstreams_fault() -> None:
    with pytest.raises(UpstreamBroken, match="log-probabilities"):
        chat_message(answer({"content": "x"}, logprobs=None), TokenFields(return_logprob=True))
