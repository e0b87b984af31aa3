"""A chat completion's JSON answer as the message that vLLM's ``/v1/messages`` makes of it."""

from typing import Any

import msgspec

from gateway.errors import UpstreamBroken
from gateway.tokens.answer import first_choice, message_of, round_tokens, stop_of, token_answer, token_logprobs
from gateway.tokens.blocks import new_signature, text_block
from gateway.tokens.fields import TokenFields
from gateway.tokens.trajectory import RoundTokens, TokenLogprob

Json = dict[str, Any]


def chat_message(answer: Json, fields: TokenFields) -> tuple[Json, RoundTokens]:
    """The message, with the token fields asked for, and all the round's tokens.

    Raises :class:`~gateway.errors.UpstreamBroken` where the answer is no chat completion, or a call's arguments are not
    a JSON object; :class:`~gateway.errors.InvalidRequest` where routed experts were asked for and none came.
    """
    choice = first_choice(answer)
    reply = choice.get("message") or {}
    calls = reply.get("tool_calls") or []
    stop = stop_of(choice, called=bool(calls), calls_complete=bool(calls))
    tokens = round_tokens(choice, fields, answer.get("prompt_token_ids"), chat_logprobs)
    message = message_of(answer, _content(reply, calls), stop)
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


def chat_logprobs(choice: Json, ids: list[int]) -> list[TokenLogprob]:
    """The log-probabilities of a choice's tokens, of a whole answer or of one chunk."""
    entries = (choice.get("logprobs") or {}).get("content") or []
    return token_logprobs(ids, [entry.get("logprob") for entry in entries])
