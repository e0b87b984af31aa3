"""One face for every upstream: where a round goes, and what comes back."""

from typing import Any

import pytest

from gateway.errors import UpstreamBroken
from gateway.tokens import TokenFields, chunk_error, translate_round
from tests.tokens.conversation import chunk, first_chunk, fold, usage_chunk

BODY = {"model": "qwen3", "max_tokens": 10, "messages": [{"role": "user", "content": "hello"}], "stream": True}
IDS = TokenFields(return_token_ids=True)


@pytest.mark.parametrize(
    ("asked", "dialect", "path", "streams"),
    [
        (IDS, "vllm", "/v1/chat/completions", True),
        (TokenFields(input_ids=[1]), "vllm", "/v1/completions", True),
        (TokenFields(return_routed_experts=True), "vllm", "/v1/chat/completions", False),
        (TokenFields(input_ids=[1], return_routed_experts=True), "vllm", "/v1/completions", False),
        (IDS, "lmdeploy", "/v1/messages", True),
        (TokenFields(return_routed_experts=True), "lmdeploy", "/v1/messages", True),
    ],
)
def test_where_a_round_goes(asked: TokenFields, dialect: Any, path: str, streams: bool) -> None:
    a_round = translate_round(asked, dialect, stream=True)

    assert (a_round.path, a_round.streams) == (path, streams)
    assert not translate_round(asked, dialect, stream=False).streams


def test_vllms_routed_experts_are_asked_for_in_json_though_the_client_streams() -> None:
    a_round = translate_round(TokenFields(return_routed_experts=True), "vllm", stream=True)

    assert "stream" not in a_round.request(BODY)


def test_a_streamed_round_keeps_its_tokens() -> None:
    a_round = translate_round(IDS, "vllm", stream=True)
    chunks = (first_chunk(), chunk([7], content="Hi."), chunk([8], "stop"), usage_chunk(2))

    events = [event for each in chunks for event in a_round.events(each)] + a_round.end()

    assert fold(events).output_ids == a_round.tokens.output_ids == [7, 8]
    assert a_round.tokens.input_ids == [0, 1, 2]


def test_a_json_round_keeps_its_tokens() -> None:
    a_round = translate_round(TokenFields(input_ids=[1]), "vllm", stream=False)
    choice = {"text": "Hi.", "finish_reason": "stop", "token_ids": [7, 8], "prompt_token_ids": [1]}

    a_round.message({"id": "cmpl-1", "choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 2}})

    assert (a_round.tokens.input_ids, a_round.tokens.output_ids) == ([1], [7, 8])


def test_lmdeploy_is_asked_and_answers_as_it_is() -> None:
    a_round = translate_round(TokenFields(return_token_ids=True, return_logprob=True), "lmdeploy", stream=False)
    body = {**BODY, "return_token_ids": True}
    answer = {
        "type": "message",
        "stop_reason": "parse_error",
        "output_ids": [7, 8],
        "output_token_logprobs": [[-0.5, 7], [-0.25, 8]],
        "routed_experts": [[[1, 2]]],
    }

    assert a_round.request(body) is body
    assert a_round.message(answer) is answer
    assert a_round.tokens.input_ids is None
    assert a_round.tokens.output_ids == [7, 8]
    assert a_round.tokens.output_token_logprobs == [(-0.5, 7), (-0.25, 8)]
    assert a_round.tokens.routed_experts == [[[1, 2]]]


def test_lmdeploys_stream_is_read_as_it_passes() -> None:
    a_round = translate_round(TokenFields(return_token_ids=True), "lmdeploy", stream=True)
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "H"}, "output_ids": [7]},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "i"}, "output_ids": [8]},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}, "routed_experts": "key"},
        {"type": "message_stop"},
    ]

    assert [event for each in events for event in a_round.events(each)] + a_round.end() == events
    assert (a_round.tokens.output_ids, a_round.tokens.routed_experts) == ([7, 8], "key")


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, {"error": {"message": "too long", "type": "BadRequestError"}}, ("invalid_request_error", "too long")),
        (404, {"error": {"message": "no model", "type": "NotFoundError"}}, ("not_found_error", "no model")),
        (401, {"error": "Unauthorized"}, ("authentication_error", "Unauthorized")),
        (503, "busy", ("api_error", "upstream answered 503")),
    ],
)
def test_upstreams_error_is_told_as_anthropic_would(status: int, body: Any, error: tuple[str, str]) -> None:
    kind, message = error
    envelope = {"type": "error", "error": {"type": kind, "message": message}}

    assert translate_round(IDS, "vllm", stream=False).error(status, body) == envelope
    assert translate_round(IDS, "lmdeploy", stream=False).error(status, envelope) == envelope


def test_an_error_in_a_stream_has_a_status() -> None:
    assert chunk_error(chunk([1], content="Hi")) is None
    assert chunk_error({"error": {"message": "no such id", "code": 400}}) == (
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": "no such id"}},
    )
    assert chunk_error({"error": "gone"}) == (500, {"type": "error", "error": {"type": "api_error", "message": "gone"}})


CHOICE = {"index": 0, "token_ids": [1], "finish_reason": None}


@pytest.mark.parametrize(
    "answer",
    [
        {"choices": 5},
        {"choices": [7]},
        {"choices": [], "usage": {"prompt_tokens": "3"}},
        {"choices": [CHOICE | {"token_ids": ["1"]}]},
        {"choices": [CHOICE | {"token_ids": [True]}]},
        {"choices": [CHOICE | {"delta": {"content": 1}, "message": {"content": 1}}]},
        {"choices": [CHOICE | {"delta": {"tool_calls": [{}]}, "message": {"tool_calls": [{}]}}]},
        {"choices": [CHOICE | {"logprobs": {"content": [{"logprob": "low"}]}}]},
    ],
)
def test_what_has_another_shape_is_no_answer(answer: dict[str, Any]) -> None:
    with pytest.raises(UpstreamBroken, match="another shape"):
        translate_round(IDS, "vllm", stream=True).events(answer)
    with pytest.raises(UpstreamBroken, match="another shape"):
        translate_round(IDS, "vllm", stream=False).message(answer)
    with pytest.raises(UpstreamBroken, match="another shape"):
        translate_round(IDS, "lmdeploy", stream=True).events({"output_token_logprobs": [[1]]})


def test_ids_that_were_not_asked_for_are_read_from_their_log_probabilities() -> None:
    a_round = translate_round(TokenFields(return_logprob=True), "lmdeploy", stream=False)

    a_round.message({"output_ids": None, "output_token_logprobs": [[-0.5, 7], [-0.25, 8]]})

    assert a_round.tokens.output_ids == [7, 8]
