"""A chat completion's JSON answer as the message that vLLM's ``/v1/messages`` makes of it."""

from typing import Any

import msgspec

from gateway.errors import InvalidRequest, UpstreamBroken
from gateway.tokens.answer import first_choice, stop_of, token_answer, token_logprobs, usage_of
from gateway.tokens.blocks import new_signature, text_block
from gateway.tokens.fields import TokenFields
from gateway.tokens.trajectory import RoundTokens

Json = dict[str, Any]

NO_EXPERTS = (
    "return_routed_experts: upstream returned none; start vLLM with --enable-return-routed-experts "
    "(mixture-of-experts models, on a GPU)"
)


def chat_message(answer: Json, fields: TokenFields) -> tuple[Json, RoundTokens]:
    """The message, with the token fields asked for, and all the round's tokens.

    Raises :class:`~gateway.errors.UpstreamBroken` where the answer is no chat completion, or a call's arguments are not
    a JSON object; :class:`~gateway.errors.InvalidRequest` where routed experts were asked for and none came.
    """
    choice = first_choice(answer)
    reply = choice.get("message") or {}
    calls = reply.get("tool_calls") or []
    stop_reason, stop_sequence = stop_of(choice, called=bool(calls), calls_complete=bool(calls))
    tokens = _tokens(answer, choice, fields)
    message: Json = {
        "id": answer.get("id"),
        "type": "message",
        "role": "assistant",
        "content": _content(reply, calls),
        "model": answer.get("model"),
        "stop_reason": stop_reason,
        "stop_sequence": stop_sequence,
        "usage": usage_of(answer.get("usage")),
    }
    for name in ("kv_transfer_params", "ec_transfer_params"):
        if answer.get(name) is not None:
            message[name] = answer[name]
    return message | token_answer(tokens, fields), tokens


def _content(reply: Json, calls: list[Json]) -> list[Json]:
    content: list[Json] = []
    if reply.get("reasoning"):
        content.append({"type": "thinking", "thinking": reply["reasoning"], "signature": new_signature()})
    if reply.get("content"):
        content.append({"type": "text", "text": reply["content"]})
    for call in calls:
        function = call["function"]
        content.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": _input(function)})
    return content or [text_block()]


def _input(function: Json) -> Json:
    try:
        arguments = msgspec.json.decode(function["arguments"])
    except (msgspec.DecodeError, RecursionError) as error:
        raise UpstreamBroken("upstream's tool call has arguments that are not JSON") from error
    if not isinstance(arguments, dict):
        raise UpstreamBroken("upstream's tool call has arguments that are not a JSON object")
    return arguments


def _tokens(answer: Json, choice: Json, fields: TokenFields) -> RoundTokens:
    ids = choice.get("token_ids")
    if ids is None:
        raise UpstreamBroken("upstream's answer has no token ids: this needs a vLLM that knows return_token_ids")
    if fields.return_routed_experts and choice.get("routed_experts") is None:
        raise InvalidRequest(NO_EXPERTS)
    return RoundTokens(
        input_ids=answer.get("prompt_token_ids"),
        output_ids=ids,
        output_token_logprobs=chat_logprobs(choice, ids) if fields.return_logprob else None,
        routed_experts=choice.get("routed_experts") if fields.return_routed_experts else None,
    )


def chat_logprobs(choice: Json, ids: list[int]) -> list[tuple[float, int]]:
    """The log-probabilities of a choice's tokens, of a whole answer or of one chunk."""
    entries = (choice.get("logprobs") or {}).get("content") or []
    return token_logprobs(ids, [entry.get("logprob") for entry in entries])
