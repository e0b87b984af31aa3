"""``input_ids`` on vLLM: the prompt as it is to ``/v1/completions``, the text that comes back as one text block."""

from typing import Any

from gateway.errors import InvalidRequest, UpstreamBroken
from gateway.tokens.answer import chunk_error, first_choice, stop_of, token_answer, token_logprobs, usage_of
from gateway.tokens.blocks import BlockWriter, text_block
from gateway.tokens.chat_answer import NO_EXPERTS
from gateway.tokens.fields import TokenFields
from gateway.tokens.messages_body import read_sampling
from gateway.tokens.trajectory import RoundTokens, TokenLogprob

Json = dict[str, Any]


def completion_request(body: Json, fields: TokenFields, *, stream: bool) -> Json:
    """The body for ``POST /v1/completions``.

    Raises :class:`~gateway.errors.InvalidRequest`, also for a field that only a chat template could follow: the prompt
    was rendered without it.
    """
    if fields.image_data is not None:
        raise InvalidRequest("image_data: vLLM takes no images beside token ids; send messages with image blocks")
    request = read_sampling(body)
    if request.thinking is not None and request.thinking.type == "disabled":
        raise InvalidRequest("thinking: disabled has no effect beside input_ids; render the prompt without thinking")
    if request.output_config is not None and request.output_config.effort is not None:
        raise InvalidRequest("output_config.effort: has no effect beside input_ids, which are rendered already")
    if request.chat_template_kwargs is not None:
        raise InvalidRequest("chat_template_kwargs: have no effect beside input_ids, which are rendered already")
    completion = request.common() | {"prompt": fields.input_ids, "return_token_ids": True}
    if fields.return_logprob:
        completion["logprobs"] = 0
    if fields.include_stop_str_in_output:
        completion["include_stop_str_in_output"] = True
    if stream:
        completion |= {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    return completion


def completion_message(answer: Json, fields: TokenFields) -> tuple[Json, RoundTokens]:
    """The message of a JSON answer, with the token fields asked for, and all the round's tokens.

    Raises :class:`~gateway.errors.UpstreamBroken` where the answer is no completion, and
    :class:`~gateway.errors.InvalidRequest` where routed experts were asked for and upstream returns none.
    """
    choice = first_choice(answer)
    ids = choice.get("token_ids")
    if ids is None:
        raise UpstreamBroken("upstream's answer has no token ids: this needs a vLLM that knows return_token_ids")
    if fields.return_routed_experts and choice.get("routed_experts") is None:
        raise InvalidRequest(NO_EXPERTS)
    tokens = RoundTokens(
        input_ids=choice.get("prompt_token_ids") or fields.input_ids,
        output_ids=ids,
        output_token_logprobs=_logprobs(choice, ids) if fields.return_logprob else None,
        routed_experts=choice.get("routed_experts") if fields.return_routed_experts else None,
    )
    stop_reason, stop_sequence = stop_of(choice)
    message: Json = {
        "id": answer.get("id"),
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": choice.get("text") or ""}],
        "model": answer.get("model"),
        "stop_reason": stop_reason,
        "stop_sequence": stop_sequence,
        "usage": usage_of(answer.get("usage")),
    }
    return message | token_answer(tokens, fields), tokens


class CompletionStream:
    """Chunks in, events out; one object a round. The text block opens at once, so that ids never wait."""

    def __init__(self, fields: TokenFields) -> None:
        self.tokens = RoundTokens(input_ids=fields.input_ids)
        self._fields = fields
        self._writer = BlockWriter(fields)
        self._started = self._over = False
        self._finish: Json = {"finish_reason": "stop"}

    def events(self, chunk: Json) -> list[Json]:
        """The events of one chunk."""
        if self._over:
            return []
        failed = chunk_error(chunk)
        if failed is not None:
            self._over = True
            return [failed[1]]
        events: list[Json] = []
        if not self._started:
            self._started = True
            usage = usage_of(chunk.get("usage")) | {"output_tokens": 0}
            events += self._writer.start(chunk.get("id"), chunk.get("model"), usage)
            events += self._writer.open(text_block())
        choices = chunk.get("choices")
        return events + (self._choice(choices[0]) if choices else self._end_of_message(chunk))

    def end(self) -> list[Json]:
        """``[DONE]`` came. Raises :class:`~gateway.errors.UpstreamBroken` if the message had not ended."""
        if not self._over:
            raise UpstreamBroken("upstream's stream ended before its message did")
        return []

    def _choice(self, choice: Json) -> list[Json]:
        if choice.get("finish_reason") is not None:
            self._finish = choice
        ids = choice.get("token_ids") or []
        logprobs = _logprobs(choice, ids) if self._fields.return_logprob else None
        self.tokens.add(ids, logprobs)
        self._writer.add_ids(ids, logprobs)
        return self._writer.add(choice["text"]) if choice.get("text") else self._writer.flush_ids()

    def _end_of_message(self, chunk: Json) -> list[Json]:
        self._over = True
        usage = usage_of(chunk.get("usage"))
        if usage["output_tokens"] and not self.tokens.output_ids:
            raise UpstreamBroken("upstream's stream has no token ids: this needs a vLLM that knows return_token_ids")
        return [*self._writer.finish(*stop_of(self._finish), usage), {"type": "message_stop"}]


def _logprobs(choice: Json, ids: list[int]) -> list[TokenLogprob]:
    return token_logprobs(ids, (choice.get("logprobs") or {}).get("token_logprobs") or [])
