"""The shapes of what vLLM's chat and completions endpoints answer, as far as they are read here.

Checked before anything is read, so that what reads them need not doubt them. Source: vLLM 0.32.0.
"""

from typing import Any, TypeVar

import msgspec

from gateway.errors import UpstreamBroken


class CallPart(msgspec.Struct):
    """Of a function, in a chunk: what came of its name and arguments."""

    name: str | None = None
    arguments: str | None = None


class CallDelta(msgspec.Struct):
    index: int
    id: str | None = None
    function: CallPart | None = None


class Delta(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallDelta] | None = None


class CalledFunction(msgspec.Struct):
    name: str
    arguments: str


class WholeCall(msgspec.Struct):
    id: str
    function: CalledFunction


class Reply(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[WholeCall] | None = None


class ChatLogprob(msgspec.Struct):
    """Of one sampled token of a chat completion."""

    logprob: float | None = None


class Logprobs(msgspec.Struct):
    """``content``: of a chat completion; ``token_logprobs``: of a completion."""

    content: list[ChatLogprob] | None = None
    token_logprobs: list[float | None] | None = None


class Choice(msgspec.Struct):
    """Of an answer (``message``, or a completion's ``text``) or of a chunk (``delta``, or ``text``)."""

    message: Reply | None = None
    delta: Delta | None = None
    text: str | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    logprobs: Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None
    created_cache_tokens: int | None = None


class Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None


class Completion(msgspec.Struct):
    """A whole answer, or one chunk of a stream."""

    choices: list[Choice] | None = None
    prompt_token_ids: list[int] | None = None
    usage: Usage | None = None


class Spoken(msgspec.Struct):
    """The token fields on a message, or on an event of its stream, where upstream speaks them itself."""

    output_ids: list[int] | None = None
    output_token_logprobs: list[tuple[float, int]] | None = None


Shape = TypeVar("Shape")


def check_answer(answer: dict[str, Any]) -> None:
    """Raises :class:`~gateway.errors.UpstreamBroken` for an answer or a chunk of another shape."""
    _check(answer, Completion)


def check_spoken(answer: dict[str, Any]) -> Spoken:
    """The token fields beside a message or an event; raises as above."""
    return _check(answer, Spoken)


def _check(answer: dict[str, Any], shape: type[Shape]) -> Shape:
    try:
        return msgspec.convert(answer, shape)
    except msgspec.ValidationError as error:
        raise UpstreamBroken(f"upstream's answer has another shape than expected: {error}") from None
