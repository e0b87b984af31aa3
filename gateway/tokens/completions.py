"""``input_ids`` on vLLM: the prompt as it is to ``/v1/completions``, the text that comes back as one text block."""

from typing import Any

from gateway.errors import InvalidRequest
from gateway.tokens.answer import (
    first_choice,
    message_of,
    round_tokens,
    stop_of,
    token_answer,
    token_logprobs,
    usage_of,
)
from gateway.tokens.blocks import text_block
from gateway.tokens.chunks import ChunkStream
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
    tokens = round_tokens(choice, fields, choice.get("prompt_token_ids") or fields.input_ids, _logprobs)
    message = message_of(answer, [{"type": "text", "text": choice.get("text") or ""}], stop_of(choice))
    return message | token_answer(tokens, fields), tokens


class CompletionStream(ChunkStream):
    """A completion's chunks. The text block opens at once, so that ids never wait."""

    def _start(self, chunk: Json) -> list[Json]:
        usage = usage_of(chunk.get("usage")) | {"output_tokens": 0}
        events = self._writer.start(chunk.get("id"), chunk.get("model"), usage) + self._writer.open(text_block())
        return events + self._go_on(chunk)

    def _choice(self, choice: Json) -> list[Json]:
        ids = choice.get("token_ids") or []
        logprobs = _logprobs(choice, ids) if self._fields.return_logprob else None
        self.tokens.add(ids, logprobs)
        self._writer.add_ids(ids, logprobs)
        return self._writer.add(choice["text"]) if choice.get("text") else self._writer.flush_ids()

    def _stop(self, usage: Json) -> list[Json]:
        return self._writer.finish(*stop_of(self._finish), usage)


def _logprobs(choice: Json, ids: list[int]) -> list[TokenLogprob]:
    return token_logprobs(ids, (choice.get("logprobs") or {}).get("token_logprobs") or [])
