"""An upstream that answers as recorded.

A request finds its turn by itself: method, path, query and whole body, history included, apart from what
:mod:`recorder.matching` leaves out. So several conversations, and several cassettes, can be played at once, in any
order and as often as one likes. A request that was not recorded is answered 409, with the difference from the nearest
turn.
"""

import asyncio
import contextlib
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from recorder.cassette import Json, Request, parse_json
from recorder.faults import Fault, error_envelope, malform
from recorder.headers import recorded_headers
from recorder.library import Library, RecordedTurn
from recorder.serving import Receive, Scope, Send, bind, client_gone, origin, query_params, read_body, serving

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came, and what answered it: a recorded ``turn`` of a ``cassette``, or a ``problem`` in words.

    Neither is set where the player answered of itself (``/v1/models``, ``/version``, ``/health``).
    """

    method: str
    path: str
    query_params: dict[str, Any]
    body: Json
    turn: str | None = None
    cassette: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Playing:
    """A player that is serving: its ``origin`` (``http://127.0.0.1:PORT``), and the requests ``seen`` so far."""

    origin: str
    seen: list[Seen]


@contextlib.asynccontextmanager
async def serve_cassettes(
    cassettes: Sequence[str | Path],
    *,
    speed: float = math.inf,
    faults: Sequence[Fault] = (),
    ignore: Sequence[str] = (),
    port: int = 0,
) -> AsyncIterator[Playing]:
    """Play cassettes on a loopback port, inside this event loop, until the end of the block.

    ``speed`` is relative to the recorded pace: 1 as recorded, infinity without waiting. Raises CassetteError where a
    file is no cassette.
    """
    seen: list[Seen] = []
    player = Player(cassettes, speed=speed, faults=faults, ignore=ignore, on_request=seen.append)
    with contextlib.closing(player):
        sock = bind("127.0.0.1", port)
        async with serving(player, sock, on_stop=player.stop):
            yield Playing(origin(sock), seen)


class Player:
    """The ASGI application. ``on_request`` is told of every request. To be closed; raises CassetteError."""

    def __init__(
        self,
        cassettes: Sequence[str | Path],
        *,
        speed: float = math.inf,
        faults: Sequence[Fault] = (),
        ignore: Sequence[str] = (),
        on_request: Callable[[Seen], None],
    ) -> None:
        self.library = Library(cassettes, ignore)
        self._speed = speed
        self._faults = faults
        self._on_request = on_request
        self._answers: set[_Answer] = set()

    def stop(self) -> None:
        """Break off every answer that is still being given."""
        for answer in self._answers:
            answer.gone.set()

    def close(self) -> None:
        """Let the cassettes go; nothing may be asked any more."""
        self.library.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = await _read_request(scope, receive)
        answer = _Answer(send, self._speed)
        self._answers.add(answer)
        watch = asyncio.create_task(_set_when_gone(receive, answer.gone))
        try:
            await self._answer(request, answer)
        finally:
            watch.cancel()
            self._answers.discard(answer)

    async def _answer(self, request: Request, answer: "_Answer") -> None:
        if not self.library.knows(request.method, request.path):
            status, body = self._built_in(request)
            self._tell(request, problem=None if status == 200 else "nothing of that path was recorded")
            await answer.json(status, body)
        elif turn := self.library.find(request):
            self._tell(request, turn)
            await self._play(turn, answer)
        else:
            problem = self.library.explain(request)
            self._tell(request, problem=problem)
            await answer.json(409, error_envelope("invalid_request_error", problem))

    async def _play(self, turn: RecordedTurn, answer: "_Answer") -> None:
        faults: dict[str, float] = {fault.kind: fault.value for fault in self._faults if fault.hits(turn.turn)}
        if "slow" in faults:
            await answer.wait(faults["slow"])
        if "status" in faults:
            status = int(faults["status"])
            kind = _ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
            await answer.json(status, error_envelope(kind, f"status {status}, as asked for"))
        elif turn.is_stream:
            await self._play_stream(turn, answer, faults)
        else:
            await self._play_body(turn, answer, faults)

    async def _play_stream(self, turn: RecordedTurn, answer: "_Answer", faults: dict[str, float]) -> None:
        pace, limit, sent = turn.event_ms or repeat(0.0), _limit(faults), 0
        await answer.pace(turn.event_ms[0] if turn.event_ms else 0.0)
        await answer.head(turn.status_code, turn.headers)
        for event, recorded_ms in zip(self.library.events(turn), pace, strict=False):
            if sent == limit:
                break
            await answer.pace(recorded_ms)
            sent += 1
            await answer.send(malform(event) if faults.get("malformed") == sent else event)
        await answer.finish(faults if sent == limit else {})

    async def _play_body(self, turn: RecordedTurn, answer: "_Answer", faults: dict[str, float]) -> None:
        body = b"".join(self.library.events(turn))
        if "malformed" in faults:
            body = body[: int(faults["malformed"])]
        broken = _limit(faults) < len(body)
        await answer.pace(turn.elapsed_ms or 0.0)
        await answer.head(turn.status_code, {**turn.headers, "content-length": str(len(body))})
        await answer.send(body[: int(_limit(faults))] if broken else body)
        await answer.finish(faults if broken else {})

    def _built_in(self, request: Request) -> tuple[int, bytes]:
        match request.method, request.path:
            case "GET", "/health":
                return 200, b""
            case "GET", "/version":
                return 200, json.dumps({"version": self.library.version or "unknown"}).encode()
            case "GET", "/v1/models":
                return 200, json.dumps({"object": "list", "data": list(self._models())}).encode()
        return 404, error_envelope("not_found_error", f"no recorded turn is a {request.method} {request.path}")

    def _models(self) -> Iterator[Json]:
        for model, window in self.library.models.items():
            limit = {} if window is None else {"max_model_len": window}
            yield {"id": model, "object": "model", "created": 0, "owned_by": "vllm", "root": model, **limit}

    def _tell(self, request: Request, turn: RecordedTurn | None = None, problem: str | None = None) -> None:
        body = request.text if request.body is None else request.body
        name, cassette = (turn.turn, turn.cassette) if turn else (None, None)
        self._on_request(Seen(request.method, request.path, request.query_params, body, name, cassette, problem))


class _Answer:
    """One answer being given. ``gone`` is set when the client has left, or the player stops."""

    def __init__(self, send: Send, speed: float) -> None:
        self.gone = asyncio.Event()
        self._send, self._speed = send, speed
        self._began = time.monotonic()

    async def wait(self, seconds: float) -> None:
        """Be silent; not for longer than there is a client."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.gone.wait()

    async def pace(self, recorded_ms: float) -> None:
        """Be silent until what came ``recorded_ms`` after its request is due."""
        due = self._began + recorded_ms / 1000 / self._speed
        if (left := due - time.monotonic()) > 0:
            await self.wait(left)

    async def head(self, status: int, headers: dict[str, str]) -> None:
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})

    async def send(self, data: bytes) -> None:
        if not self.gone.is_set():
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self, faults: dict[str, float]) -> None:
        """The end. An answer that a fault broke off has none: the server then drops the connection."""
        if "stall" in faults and faults["stall"] == _limit(faults):
            await self.gone.wait()
        if not faults and not self.gone.is_set():
            await self._send({"type": "http.response.body", "body": b""})

    async def json(self, status: int, body: bytes) -> None:
        await self.head(status, {"content-type": "application/json", "content-length": str(len(body))})
        await self.send(body)
        await self.finish({})


def _limit(faults: dict[str, float]) -> float:
    """After how many events, or bytes, the answer breaks off."""
    return min(faults.get("cut", math.inf), faults.get("stall", math.inf))


async def _read_request(scope: Scope, receive: Receive) -> Request:
    data = await read_body(receive)
    body = parse_json(data)
    text = data.decode("utf-8", "replace") if data and body is None else None
    return Request(scope["method"], scope["path"], query_params(scope), recorded_headers(scope["headers"]), body, text)


async def _set_when_gone(receive: Receive, gone: asyncio.Event) -> None:
    await client_gone(receive)
    gone.set()
