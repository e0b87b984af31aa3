"""What the answers of vLLM's chat and completions endpoints have in common, in Messages terms."""

from collections.abc import Callable
from typing import Any

from gateway.errors import InvalidRequest, UpstreamBroken, error_body, error_type
from gateway.tokens.fields import TokenFields
from gateway.tokens.trajectory import RoundTokens, TokenLogprob

Json = dict[str, Any]

MISSING_LOGPROB = -9999.0
"""What vLLM writes for a log-probability it does not have, or one that is lower."""

NO_TOKEN_IDS = "upstream's answer has no token ids: this needs a vLLM that knows return_token_ids"
NO_EXPERTS = (
    "return_routed_experts: upstream returned none; start vLLM with --enable-return-routed-experts "
    "(mixture-of-experts models, on a GPU)"
)


def usage_of(usage: Json | None) -> Json:
    """Anthropic's usage: ``input_tokens`` are without those read from or written to the cache, where upstream tells."""
    usage = usage or {}
    details = usage.get("prompt_tokens_details") or {}
    read, created = details.get("cached_tokens"), details.get("created_cache_tokens")
    answer = {
        "input_tokens": max(0, (usage.get("prompt_tokens") or 0) - (read or 0) - (created or 0)),
        "output_tokens": usage.get("completion_tokens") or 0,
    }
    if created is not None:
        answer["cache_creation_input_tokens"] = created
    if read is not None:
        answer["cache_read_input_tokens"] = read
    return answer


def stop_of(choice: Json, *, called: bool = False, calls_complete: bool = False) -> tuple[str | None, str | None]:
    """``(stop_reason, stop_sequence)`` of a finished choice.

    ``called``: it made a tool call; ``calls_complete``: the arguments of its calls are whole. A stop sequence that cut
    a call short stays a stop sequence, so that nobody runs the call. vLLM reports a stop token as an integer: that, or
    none, is an end of turn.
    """
    finish, matched = choice.get("finish_reason"), choice.get("stop_reason")
    if finish == "length":
        return "max_tokens", None
    if finish not in ("stop", "tool_calls"):
        return None, None
    if calls_complete:
        return "tool_use", None
    if isinstance(matched, str):
        return "stop_sequence", matched
    if finish == "tool_calls" or called:
        return "tool_use", None
    return "end_turn", None


def first_choice(answer: Json) -> Json:
    """The answer's one choice. Raises :class:`~gateway.errors.UpstreamBroken` where there is none."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise UpstreamBroken("upstream's answer has no choices")
    return choices[0]


def message_of(answer: Json, content: list[Json], stop: tuple[str | None, str | None]) -> Json:
    """The message with this content: id, model and usage are the answer's, ``stop`` is what :func:`stop_of` gave."""
    stop_reason, stop_sequence = stop
    return {
        "id": answer.get("id"),
        "type": "message",
        "role": "assistant",
        "content": content,
        "model": answer.get("model"),
        "stop_reason": stop_reason,
        "stop_sequence": stop_sequence,
        "usage": usage_of(answer.get("usage")),
    }


def round_tokens(
    choice: Json,
    fields: TokenFields,
    input_ids: list[int] | None,
    logprobs_of: Callable[[Json, list[int]], list[TokenLogprob]],
) -> RoundTokens:
    """The tokens of a whole answer's choice, as far as they were asked for.

    Raises :class:`~gateway.errors.UpstreamBroken` where it has none, and :class:`~gateway.errors.InvalidRequest` where
    routed experts were asked for and upstream returns none.
    """
    ids, experts = choice.get("token_ids"), choice.get("routed_experts")
    if ids is None:
        raise UpstreamBroken(NO_TOKEN_IDS)
    if fields.return_routed_experts and experts is None:
        raise InvalidRequest(NO_EXPERTS)
    return RoundTokens(
        input_ids=input_ids,
        output_ids=ids,
        output_token_logprobs=logprobs_of(choice, ids) if fields.return_logprob else None,
        routed_experts=experts if fields.return_routed_experts else None,
    )


def token_logprobs(ids: list[int], logprobs: list[float | None]) -> list[TokenLogprob]:
    """Each sampled token with its log-probability; raises :class:`~gateway.errors.UpstreamBroken` if one has none."""
    if len(ids) != len(logprobs):
        raise UpstreamBroken("upstream's log-probabilities are not one for each token")
    return [(MISSING_LOGPROB if one is None else one, token) for one, token in zip(logprobs, ids, strict=True)]


def token_answer(tokens: RoundTokens, fields: TokenFields) -> Json:
    """The token fields of a message: those that were asked for."""
    answer: Json = {}
    if fields.return_token_ids:
        answer["output_ids"] = list(tokens.output_ids)
    if fields.return_logprob:
        answer["output_token_logprobs"] = list(tokens.output_token_logprobs or ())
    if fields.return_routed_experts:
        answer["routed_experts"] = tokens.routed_experts
    return answer


def error_answer(status: int, body: Any) -> Json:
    """Upstream's error body in Anthropic's envelope: the type its status has there, upstream's own message."""
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return error_body(error_type(status), message if isinstance(message, str) else f"upstream answered {status}")


def chunk_error(chunk: Json) -> tuple[int, Json] | None:
    """``(status, error body)`` of what vLLM sends in place of a chunk when it fails inside a stream, else None.

    vLLM answers a stream with 200 before it has looked at the whole request: an id outside the vocabulary is the error
    in place of the first chunk. Where nothing has gone to the client yet, it can still get the status.
    """
    if "error" not in chunk:
        return None
    error = chunk["error"]
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return status, error_answer(status, chunk)
