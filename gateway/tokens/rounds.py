"""One upstream round of a token request, whatever endpoint answers it: request out, Messages message or events in."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from gateway.tokens.answer import error_answer
from gateway.tokens.chat_answer import chat_message
from gateway.tokens.chat_request import chat_request
from gateway.tokens.chat_stream import ChatStream
from gateway.tokens.chunks import ChunkStream
from gateway.tokens.completions import CompletionStream, completion_message, completion_request
from gateway.tokens.dialect import Dialect
from gateway.tokens.fields import TokenFields
from gateway.tokens.shapes import check_answer, check_spoken
from gateway.tokens.trajectory import RoundTokens

Json = dict[str, Any]


class RoundTranslator(Protocol):
    """Between the Messages API and the endpoint that answers a round.

    One object a round: it keeps the stream's state.
    """

    @property
    def path(self) -> str:
        """The endpoint: what the round's request is posted to."""

    @property
    def streams(self) -> bool:
        """Whether upstream answers as a stream. If not, and the client wants one, see :func:`message_events`."""

    @property
    def tokens(self) -> RoundTokens:
        """The tokens of the round, whole once its message is."""

    def request(self, body: Json) -> Json:
        """The upstream body for a Messages body. Raises :class:`~gateway.errors.InvalidRequest`."""

    def message(self, answer: Json) -> Json:
        """The Messages message of a JSON answer, with the token fields that were asked for.

        Raises :class:`~gateway.errors.UpstreamBroken` where the answer is none, and
        :class:`~gateway.errors.InvalidRequest` where upstream cannot return what was asked for.
        """

    def events(self, chunk: Json) -> list[Json]:
        """The Messages events of one ``data`` object of upstream's stream, ``[DONE]`` aside.

        An ``error`` event ends the stream: nothing follows it. Raises :class:`~gateway.errors.UpstreamBroken`.
        """

    def end(self) -> list[Json]:
        """Upstream's stream has ended (``[DONE]``). Raises :class:`~gateway.errors.UpstreamBroken` if too early."""

    def error(self, status: int, body: Any) -> Json:
        """Upstream's decoded error body, in Anthropic's envelope."""


def translate_round(fields: TokenFields, dialect: Dialect, *, stream: bool) -> RoundTranslator:
    """The translator for one round of a request with these token fields; ``stream``: the client wants a stream."""
    if dialect == "lmdeploy":
        return _Spoken(fields, stream)
    return _Made(CHAT if fields.input_ids is None else COMPLETIONS, fields, stream)


@dataclass(frozen=True)
class _Endpoint:
    """One of vLLM's, and how it is talked to."""

    path: str
    request: Callable[..., Json]
    message: Callable[[Json, TokenFields], tuple[Json, RoundTokens]]
    stream: type[ChunkStream]


CHAT = _Endpoint("/v1/chat/completions", chat_request, chat_message, ChatStream)
COMPLETIONS = _Endpoint("/v1/completions", completion_request, completion_message, CompletionStream)


class _Made:
    """vLLM: the answer is made from an endpoint that has the tokens."""

    def __init__(self, endpoint: _Endpoint, fields: TokenFields, stream: bool) -> None:
        self.path = endpoint.path
        # No chunk of a stream has routed experts.
        self.streams = stream and not fields.return_routed_experts
        self._endpoint = endpoint
        self._fields = fields
        self._stream = endpoint.stream(fields)
        self.tokens = self._stream.tokens

    def request(self, body: Json) -> Json:
        return self._endpoint.request(body, self._fields, stream=self.streams)

    def message(self, answer: Json) -> Json:
        check_answer(answer)
        message, self.tokens = self._endpoint.message(answer, self._fields)
        return message

    def events(self, chunk: Json) -> list[Json]:
        check_answer(chunk)
        return self._stream.events(chunk)

    def end(self) -> list[Json]:
        return self._stream.end()

    def error(self, status: int, body: Any) -> Json:
        return error_answer(status, body)


class _Spoken:
    """An upstream that speaks the token fields on ``/v1/messages`` itself (LMDeploy): all passes as it is."""

    path = "/v1/messages"

    def __init__(self, fields: TokenFields, stream: bool) -> None:
        self.streams = stream
        self.tokens = RoundTokens(input_ids=fields.input_ids)

    def request(self, body: Json) -> Json:
        return body

    def message(self, answer: Json) -> Json:
        self._take(answer)
        return answer

    def events(self, chunk: Json) -> list[Json]:
        self._take(chunk)
        return [chunk]

    def end(self) -> list[Json]:
        return []

    def error(self, status: int, body: Any) -> Json:
        return body if isinstance(body, dict) and body.get("type") == "error" else error_answer(status, body)

    def _take(self, answer: Json) -> None:
        """A message, or an event of a stream: the fields have the same names and places."""
        told = check_spoken(answer)
        pairs = told.output_token_logprobs
        ids = told.output_ids
        if ids is None:  # not asked for, but the pairs have them too
            ids = [token for _, token in pairs or ()]
        self.tokens.add(ids, pairs)
        if answer.get("routed_experts") is not None:
            self.tokens.routed_experts = answer["routed_experts"]
