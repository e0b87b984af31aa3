"""The one round of a token request that is no turn: from the endpoint that has the tokens to a message.

It is asked for and read as a turn's rounds are (:class:`gateway.turn.rounds.Rounds`), and shares none of the turn's
rules: no block is dropped, split or numbered anew.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.errors import Refused, UpstreamBroken
from gateway.tokens import TokenFields, chunk_error, message_events, translate_round
from gateway.turn import jsonvalue
from gateway.turn.kind import Call
from gateway.turn.lifecycle import Event, read_answer, read_event, stream_error
from gateway.turn.presentation import Out
from gateway.turn.rounds import DONE, refusal
from gateway.wire.sse import read_frame


class TokenRound:
    """A request with the token ``fields``, on vLLM. ``body`` is the whole of it, decoded.

    ``stream`` and ``model`` are the client's.
    ``renamed`` is the name the message is to carry where it is not upstream's. An answer whose tokens take more than
    ``max_bytes`` ends as :class:`UpstreamBroken`. Raises :class:`~gateway.errors.InvalidRequest` for what vLLM would
    not accept either.
    """

    head_waits = True
    can_ask_otherwise = False

    def __init__(
        self,
        fields: TokenFields,
        body: Event,
        *,
        stream: bool,
        model: str,
        renamed: str | None,
        max_bytes: int,
    ) -> None:
        self.stream = stream
        self.model = model
        self.over = False
        self._done = False
        self._translator = translate_round(fields, "vllm", stream=self.stream)
        self.streams = self._translator.streams
        self.target = self._translator.path
        self._body = jsonvalue.write(self._translator.request(body))
        self._renamed = renamed
        self._max_bytes = max_bytes
        self._began = False
        self._message: Event | None = None
        self._answer: dict[str, Any] = {}

    @property
    def held(self) -> int:
        return len(self._body) + self._translator.tokens.size

    def late_calls(self) -> list[Call]:
        return []

    def request(self) -> bytes:
        return self._body

    def read(self, events: Iterable[bytes], out: Out) -> bool:
        if self._translator.tokens.size > self._max_bytes:
            raise UpstreamBroken(f"The answer has grown over {self._max_bytes} bytes.")
        for frame in filter(None, map(read_frame, events)):
            if frame.data == DONE:
                out += self._translator.end()
                return False
            self._read(read_event(frame.data), out)
        return not self._done

    def _read(self, chunk: Event, out: Out) -> None:
        failed = chunk_error(chunk)
        if failed is not None and not self._began:  # nothing has been shown: it can still be an answer of its own
            status, body = failed
            raise Refused(status, [(b"content-type", b"application/json")], jsonvalue.write(body))
        for event in self._translator.events(chunk):
            match event["type"]:
                case "error":
                    raise stream_error(event)
                case "message_start":
                    self._take_head(event["message"])
                case "message_delta":
                    self._take_end(event["delta"].get("stop_reason"), event["usage"])
                case "message_stop":
                    self._done = True
            self._began = True
            out.append(event)

    def read_whole(self, body: bytes, out: Out) -> None:
        message = self._message = self._translator.message(read_answer(body))
        self._take_head(message)
        self._take_end(message.get("stop_reason"), message["usage"])
        if self.stream:
            out += message_events(message)

    def asks_otherwise(self, status: int, body: bytes) -> bool:
        return False

    def refusal(self, status: int, body: bytes) -> bytes:
        return refusal(self._translator, status, body)

    def end(self, out: Out) -> list[Call]:
        if self.streams:
            self._translator.end()
        self.over = True
        return []

    def answer(self) -> Mapping[str, Any]:
        return self._answer

    def take(self, call: Call, outcome: Any, out: Out) -> None:
        raise AssertionError("a token request that is no turn has no calls")

    def usage(self) -> Mapping[str, Any]:
        usage: dict[str, Any] = self._answer.get("usage", {})
        return usage

    def finish(self, out: Out) -> None:
        """The message has ended itself."""

    def message(self) -> Event | None:
        return self._message

    def _take_head(self, message: Event) -> None:
        """Name the model as the client did, where a model map changed the name."""
        self._answer |= {"id": message.get("id"), "model": message.get("model")}
        if self._renamed is not None:
            message["model"] = self._renamed

    def _take_end(self, stop_reason: object, usage: Event) -> None:
        self._answer |= {"stop_reason": stop_reason, "usage": usage}
