"""Token ids in, by way of vLLM's completions endpoint."""

from typing import Any

import pytest

from gateway.errors import InvalidRequest, UpstreamBroken
from gateway.tokens.completions import CompletionStream, completion_message, completion_request
from gateway.tokens.fields import TokenFields
from gateway.tokens.trajectory import RoundTokens
from tests.tokens.conversation import fold, riding

ASKED = TokenFields(input_ids=[1, 2, 3], return_token_ids=True)


def body(**more: Any) -> dict[str, Any]:
    return {"model": "qwen3", "max_tokens": 10, "input_ids": [1, 2, 3], **more}


def answer(text: str, ids: list[int], finish: str = "stop", **choice: Any) -> dict[str, Any]:
    return {
        "id": "cmpl-1",
        "model": "qwen3",
        "choices": [
            {
                "index": 0,
                "text": text,
                "finish_reason": finish,
                "stop_reason": None,
                "token_ids": ids,
                "prompt_token_ids": [1, 2, 3],
                **choice,
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": len(ids)},
    }


def chunk(text: str, ids: list[int], finish: str | None = None, **choice: Any) -> dict[str, Any]:
    each = {"index": 0, "text": text, "finish_reason": finish, "token_ids": ids, **choice}
    return {"id": "cmpl-1", "model": "qwen3", "choices": [each], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}


def last(completion: int) -> dict[str, Any]:
    return {"id": "cmpl-1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": completion}}


def test_the_prompt_goes_as_it_is() -> None:
    assert completion_request(
        body(temperature=0, top_p=0.5, top_k=3, stop_sequences=["END"], metadata={}), ASKED, stream=False
    ) == {
        "model": "qwen3",
        "prompt": [1, 2, 3],
        "max_tokens": 10,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 3,
        "stop": ["END"],
        "return_token_ids": True,
    }


def test_what_the_answer_shall_carry() -> None:
    asked = TokenFields(input_ids=[1], return_logprob=True, include_stop_str_in_output=True)
    request = completion_request(body(), asked, stream=True)

    assert request["logprobs"] == 0
    assert request["include_stop_str_in_output"] is True
    assert request["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_a_thinking_budget_and_a_format_hold_for_ids_too() -> None:
    request = completion_request(
        body(
            max_tokens=2000,
            thinking={"type": "enabled", "budget_tokens": 1024},
            output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
        ),
        ASKED,
        stream=False,
    )

    assert request["thinking_token_budget"] == 1024
    assert request["response_format"]["json_schema"]["schema"] == {"type": "object"}


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"thinking": {"type": "disabled"}}, "thinking: disabled has no effect beside input_ids"),
        ({"output_config": {"effort": "low"}}, "output_config.effort: has no effect beside input_ids"),
        ({"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs: have no effect beside input_ids"),
        ({"model": 1}, "model: Expected `str`, got `int`"),
        ({"max_tokens": None}, "max_tokens: Expected `int`, got `null`"),
    ],
)
def test_what_ids_cannot_follow_is_not_ignored_silently(more: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        completion_request(body(**more), ASKED, stream=False)

    assert refused.value.message.startswith(complaint)


def test_images_are_not_for_vllm() -> None:
    with pytest.raises(InvalidRequest, match="image_data: vLLM takes no images beside token ids"):
        completion_request(body(), TokenFields(input_ids=[1], image_data="https://x/1.png"), stream=False)


def test_the_text_comes_back_as_it_is() -> None:
    message, tokens = completion_message(answer("<think>\nHm.</think>\n\nHi. ", [5, 6]), ASKED)

    assert message == {
        "id": "cmpl-1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "<think>\nHm.</think>\n\nHi. "}],
        "model": "qwen3",
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 2},
        "output_ids": [5, 6],
    }
    assert tokens == RoundTokens([1, 2, 3], [5, 6])


@pytest.mark.parametrize(
    ("finish", "matched", "stop"),
    [
        ("stop", None, ("end_turn", None)),
        ("stop", 151645, ("end_turn", None)),
        ("stop", "END", ("stop_sequence", "END")),
        ("length", None, ("max_tokens", None)),
    ],
)
def test_how_it_ended(finish: str, matched: Any, stop: tuple[str, str | None]) -> None:
    message, _ = completion_message(answer("x", [5], finish, stop_reason=matched), ASKED)
    stream = CompletionStream(ASKED)
    folded = fold([*stream.events(chunk("x", [5], finish, stop_reason=matched)), *stream.events(last(1))])

    assert (message["stop_reason"], message["stop_sequence"]) == stop
    assert (folded.stop_reason, folded.stop_sequence) == stop


def test_log_probabilities_are_the_sampled_tokens() -> None:
    asked = TokenFields(input_ids=[1, 2, 3], return_logprob=True)
    message, _ = completion_message(answer("x", [5, 6], logprobs={"token_logprobs": [-0.5, None]}), asked)

    assert message["output_token_logprobs"] == [(-0.5, 5), (-9999.0, 6)]
    assert "output_ids" not in message


def test_a_stream_is_one_text_block_with_ids_on_every_delta_that_has_them() -> None:
    stream = CompletionStream(ASKED)
    events = [
        event
        for each in (chunk("", [5], prompt_token_ids=[1, 2, 3]), chunk("Hi", [6]), chunk("", [7], "stop"), last(3))
        for event in stream.events(each)
    ]

    assert riding(events) == [("", [5]), ("Hi", [6]), ("", [7])]
    assert fold(events).content == [{"type": "text", "text": "Hi"}]
    assert fold(events).usage == {"input_tokens": 3, "output_tokens": 3}
    assert events[0]["message"]["usage"] == {"input_tokens": 3, "output_tokens": 0}
    assert stream.tokens == RoundTokens([1, 2, 3], [5, 6, 7])
    assert stream.end() == []


def test_a_completion_of_nothing_is_an_empty_text_block() -> None:
    stream = CompletionStream(ASKED)
    folded = fold([*stream.events(chunk("", [9], "stop")), *stream.events(last(1))])

    assert folded.content == [{"type": "text", "text": ""}]
    assert folded.output_ids == [9]


def test_an_error_in_place_of_the_first_chunk_is_the_only_event() -> None:
    stream = CompletionStream(ASKED)
    error = {"error": {"message": "Token id 999999 is out of vocabulary", "type": "BadRequestError", "code": 400}}

    assert stream.events(error) == [
        {"type": "error", "error": {"type": "invalid_request_error", "message": "Token id 999999 is out of vocabulary"}}
    ]
    assert stream.events(last(0)) == []
    assert stream.end() == []


def test_an_answer_without_ids_or_an_end_is_upstreams_fault() -> None:
    with pytest.raises(UpstreamBroken, match="return_token_ids"):
        completion_message(answer("x", [5], token_ids=None), ASKED)
    stream = CompletionStream(ASKED)
    stream.events(chunk("x", []))
    with pytest.raises(UpstreamBroken, match="ended before"):
        stream.end()
    with pytest.raises(UpstreamBroken, match="return_token_ids"):
        stream.events(last(1))


def test_routed_experts_pass_as_they_are_or_are_missed() -> None:
    asked = TokenFields(input_ids=[1, 2, 3], return_routed_experts=True)

    assert completion_message(answer("x", [5], routed_experts="k05VTVBZ"), asked)[0]["routed_experts"] == "k05VTVBZ"
    with pytest.raises(InvalidRequest, match="--enable-return-routed-experts"):
        completion_message(answer("x", [5], routed_experts=None), asked)
