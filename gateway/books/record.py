"""What is noticed of a request, for its log line and the metrics."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal

import msgspec

Outcome = Literal[
    "ok",
    "client_error",
    "upstream_error",
    "upstream_unreachable",
    "timeout",
    "cut",
    "client_gone",
    "overloaded",
    "gateway_error",
]
"""How a request ended; exactly one each.

``client_error``: a 4xx, ours or upstream's. ``upstream_error``: upstream answered 5xx, or no message. ``timeout``:
upstream stalled, or a turn took too long. ``cut``: the answer broke off after it had begun. ``overloaded``: the gateway
has too many turns, or is being stopped.
"""


def outcome_of(status: int) -> Outcome:
    """How a request ended that upstream answered with ``status``."""
    if status < 400:
        return "ok"
    return "client_error" if status < 500 else "upstream_error"


@dataclass(slots=True)
class Record:
    """What becomes of one request, for its log line and the metrics.

    ``route`` is one of a fixed few. ``model`` is the client's name for it. ``turn`` says that the loop answers, not the
    proxy; ``quiet``, that its line is for debugging unless something failed. ``rounds`` counts upstream requests,
    ``tools`` has the name of each gateway tool run, ``upstream_ms`` is the time from sending to the last byte, summed
    over rounds; token counts are None where upstream gave none.
    ``answered``: the response head has gone to the client, ``status`` in it.

    ``answer_ends`` are the first and last bytes of a proxied answer, ``request`` the body where that may be needed:
    :meth:`look` reads the figures out of them when the request is over.
    """

    route: str
    model: str = ""
    turn: bool = False
    quiet: bool = False
    rounds: int = 0
    tools: list[str] = field(default_factory=list)
    upstream_ms: float = 0.0
    total_ms: float = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None
    outcome: Outcome = "ok"
    status: int = 0
    answered: bool = False
    started: float = field(default_factory=perf_counter)
    ended_at: float = 0.0
    answer_ends: tuple[bytes, bytes] | None = None
    request: bytes = b""

    def count(self, usage: Mapping[str, Any]) -> None:
        """Take the tokens from a message's ``usage``, where they are numbers of tokens: upstream may say anything."""
        self.input_tokens, self.output_tokens = _tokens(usage.get("input_tokens")), _tokens(usage.get("output_tokens"))

    def look(self) -> None:
        """Take model and tokens from the bytes that were kept, and let go of those.

        A quote inside a JSON string is escaped, so that generated text cannot be taken for a member.
        """
        if self.answer_ends is not None:
            beginning, end = self.answer_ends
            self.input_tokens = _last_number(end, *_INPUT_TOKENS)
            self.output_tokens = _last_number(end, *_OUTPUT_TOKENS)
            # rfind takes a third of the time that "in" does, and the pattern a hundred times as long
            if self.outcome == "ok" and end.rfind(b"event: error") >= 0 and _ERROR_EVENT.search(end):
                self.outcome = "upstream_error"
            if not self.model:
                at = beginning.find(b'"model"')
                found = _NAME.match(beginning, at + len(b'"model"')) if at >= 0 else None
                self.model = found[1].decode("utf-8", "replace") if found else ""
        if not self.model and self.request:
            self.model = model_of(self.request)
        self.answer_ends, self.request = None, b""


def model_of(body: bytes) -> str:
    """The model that a Messages body names, empty if none."""
    try:
        return _PROBE.decode(body).model
    except (msgspec.DecodeError, RecursionError):
        return ""


def _tokens(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 10**15 else None


def _last_number(end: bytes, *patterns: re.Pattern[bytes]) -> int | None:
    for pattern in patterns:
        found = pattern.match(end)
        if found:
            return int(found[1])
    return None


def _member(name: bytes) -> re.Pattern[bytes]:
    """The last member of that name whose value is a number."""
    return re.compile(rb'.*"%b"\s*:\s*(\d{1,15})' % name, re.DOTALL)


class _Probe(msgspec.Struct):
    model: str = ""


_PROBE = msgspec.json.Decoder(_Probe)
_INPUT_TOKENS = _member(b"input_tokens"), _member(b"prompt_tokens")
_OUTPUT_TOKENS = _member(b"output_tokens"), _member(b"completion_tokens")
"""As the Messages API calls them, or else as OpenAI's routes do."""
_NAME = re.compile(rb'\s*:\s*"([^"\\]{1,200})"')
_ERROR_EVENT = re.compile(rb"(?:^|[\r\n])event: error[\r\n]")
