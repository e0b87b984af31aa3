"""What is noticed of a request, for its log line and the metrics."""

import re
import secrets
import string
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter
from typing import Any

import msgspec

from gateway.books.figures import read_figures
from gateway.books.outcome import Outcome, outcome_of, outcome_of_status
from gateway.errors import MessagesGatewayError, RequestError

LONGEST_ID = 100
"""Characters that are kept of an id that is not the gateway's own; most have 36, a traceparent 55."""


_PROCESS = "".join(secrets.choice(string.ascii_lowercase) for _ in range(14))  # no digits: no id looks like a port
_NUMBERS = count(1 << 20)  # all of one length


def new_request_id() -> str:
    """An id that no other request has, of this process or another; it costs a tenth of a random one."""
    return f"req_{_PROCESS}{next(_NUMBERS):x}"


@dataclass(slots=True, eq=False)
class Record:
    """What becomes of one request, for its log line and the metrics. Written by its methods alone.

    ``route`` is one of a fixed few. ``model`` is the client's name for it. ``turn`` says that the loop answers, not the
    proxy. ``rounds`` counts upstream requests, ``tools`` how often each kind of gateway tool was run, ``upstream_ms``
    is the time from sending to the last byte, summed over rounds; token counts are None where upstream gave none.
    ``answered``: the response head has gone to the client, ``status`` in it. ``quiet``: one of the requests that
    probes send all day. ``request_id`` is upstream's (in a turn the first round's) where it gives one in time, else the
    gateway's own; ``client_id`` and ``traceparent`` are what the client calls the request, "" where it does not.

    ``answer_ends`` are the first and last bytes of a proxied answer: :meth:`look` reads the tokens out of them
    when the request is over.
    """

    route: str
    request_id: str = field(default_factory=new_request_id)
    client_id: str = ""
    traceparent: str = ""
    model: str = ""
    turn: bool = False
    quiet: bool = False
    rounds: int = 0
    tools: dict[str, int] = field(default_factory=dict)
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

    # What is asked for

    def comes_with(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """The request's headers, names in lower case."""
        for name, value in headers:
            if name == b"x-request-id":
                self.client_id = value[:LONGEST_ID].decode("latin-1")
            elif name == b"traceparent":
                self.traceparent = value[:LONGEST_ID].decode("latin-1")

    def is_for(self, route: str, *, quiet: bool = False) -> None:
        """The request's route is known."""
        self.route, self.quiet = route, quiet

    def names(self, model: str) -> None:
        """The client asks for ``model``."""
        self.model = model

    def is_turn(self) -> None:
        """The loop answers."""
        self.turn = True

    def passes(self, body: bytes) -> None:
        """The proxy answers; ``body`` names the model, where that is not known yet."""
        if not self.model and body:
            self.model = model_of(body)

    # What upstream and the tools do

    def is_called(self, request_id: bytes | None) -> None:
        """Upstream's id for the request, if any; once the answer's head has gone, it comes too late."""
        if request_id and not self.answered:
            self.request_id = request_id.decode("latin-1")

    def asks(self) -> None:
        """Upstream is asked for a round."""
        self.rounds += 1

    def waited(self, ms: float) -> None:
        """A round took so long, from sending to the last byte."""
        self.upstream_ms += ms

    def counts(self, usage: Mapping[str, Any]) -> None:
        """Take the tokens from a message's ``usage``, where they are numbers of tokens: upstream may say anything."""
        self.input_tokens, self.output_tokens = _tokens(usage.get("input_tokens")), _tokens(usage.get("output_tokens"))

    def keeps(self, first: bytes, last: bytes) -> None:
        """The first and last bytes of a proxied answer."""
        self.answer_ends = first, last

    def runs(self, tool: str) -> None:
        """A gateway tool of the kind ``tool`` runs."""
        self.tools[tool] = self.tools.get(tool, 0) + 1

    # How it ends

    def answers(self, status: int) -> None:
        """The answer's head goes to the client."""
        self.answered = True
        self.status = status
        if not self.left:
            self.outcome = outcome_of_status(status)

    def fails(self, error: MessagesGatewayError) -> None:
        """What was being done for the client ended in ``error``."""
        if not self.left:
            self.outcome = outcome_of(error, begun=self.answered)

    def refuses(self, error: RequestError) -> None:
        """The answer is ``error``."""
        self.fails(error)
        self.answered = True
        self.status = error.status

    @property
    def left(self) -> bool:
        """Whether the client has left."""
        return self.outcome == "client_gone"

    def ends(self) -> None:
        """The request is over."""
        self.total_ms = (perf_counter() - self.started) * 1000
        self.ended_at = time.time()

    def look(self) -> None:
        """Take the tokens from the bytes that were kept, and let go of those."""
        if self.answer_ends is None:
            return
        beginning, end = self.answer_ends
        self.input_tokens, self.output_tokens = read_figures(beginning, end)
        # rfind takes a third of the time that "in" does, and the pattern a hundred times as long
        if self.outcome == "ok" and end.rfind(b"event: error") >= 0 and _ERROR_EVENT.search(end):
            self.outcome = "upstream_error"
        self.answer_ends = None


def model_of(body: bytes) -> str:
    """The model that a Messages body names, empty if none."""
    try:
        return _PROBE.decode(body).model
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _tokens(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 10**15 else None


class _Probe(msgspec.Struct):
    model: str = ""


_PROBE = msgspec.json.Decoder(_Probe)
_ERROR_EVENT = re.compile(rb"(?:^|[\r\n])event: error[\r\n]")
