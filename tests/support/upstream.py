"""An upstream that answers as scripted, on a free loopback port, without an HTTP library: every byte is the test's.

    async with ScriptedUpstream(json_answer(message(text("hi")))) as upstream:
        ...                                   # talk to upstream.origin
        assert upstream.requests[0].json["model"] == "qwen3"

One answer a request, in order of arrival; the last repeats. The builders at the end make messages and event streams as
vLLM shapes them.
"""

import asyncio
import json
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

Then = Literal["keep", "close", "reset", "stall"]
"""After an answer: keep the connection for the next request, close it, reset it (RST), or stay silent for ever."""


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request as it came: header names as sent, chunked bodies joined."""

    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: bytes) -> bytes | None:
        """The first header of that lower-case name."""
        return next((value for key, value in self.headers if key.lower() == name), None)


Piece = bytes | asyncio.Event | float
"""Of an answer: bytes to send at once, an event to wait for first, or seconds to be silent."""


@dataclass(frozen=True, slots=True)
class Scripted:
    """Pieces to send one after the other, then what becomes of the connection."""

    pieces: Sequence[Piece]
    then: Then = "keep"


Answer = Scripted | Callable[[SeenRequest], "Answer | Awaitable[Answer]"]
"""A script, or a function of the request that picks one."""

HeaderPairs = Iterable[tuple[str, str]]


def raw(*pieces: Piece, then: Then = "close") -> Scripted:
    """Exactly these bytes, head included."""
    return Scripted(pieces, then)


def json_answer(value: Any, status: int = 200, headers: HeaderPairs = (), *, then: Then = "keep") -> Scripted:
    """A JSON body (bytes are taken as they are) with its content-length."""
    body = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":")).encode()
    fields = [("content-type", "application/json"), *headers, ("content-length", str(len(body)))]
    return Scripted([head(status, fields) + body], then)


def sse_answer(
    events: Iterable[dict[str, Any] | Piece],
    status: int = 200,
    headers: HeaderPairs = (),
    *,
    pace: float = 0,
    then: Then = "keep",
    whole: bool = True,
) -> Scripted:
    """A chunked event stream, one chunk an event.

    ``events`` may hold raw bytes (sent as one chunk), an ``asyncio.Event`` to hold the stream at, or seconds of
    silence; ``pace`` is a silence before each event but the first. ``whole=False`` leaves the last chunk out: the
    stream is cut.
    """
    fields = [("content-type", "text/event-stream; charset=utf-8"), *headers, ("transfer-encoding", "chunked")]
    pieces: list[Piece] = [head(status, fields)]
    for event in events:
        if isinstance(event, asyncio.Event | float | int):
            pieces.append(event)
            continue
        if pace and len(pieces) > 1:
            pieces.append(pace)
        pieces.append(chunk(event if isinstance(event, bytes) else encode_event(event)))
    if whole:
        pieces.append(b"0\r\n\r\n")
    return Scripted(pieces, then if whole or then != "keep" else "close")


def head(status: int, headers: HeaderPairs) -> bytes:
    """A response head, the blank line included."""
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def encode_event(event: dict[str, Any]) -> bytes:
    """An SSE event named by its ``type``, JSON as compact as vLLM's."""
    return f"event: {event['type']}\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode()


class ScriptedUpstream:
    """The server. ``connections`` are those open now, ``accepted`` all there ever were."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = answers
        self.requests: list[SeenRequest] = []
        self.accepted = 0
        self.origin = ""
        self.port = 0
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._dropped = asyncio.Event()
        self._arrived = asyncio.Condition()
        self._errors: list[BaseException] = []

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.abort()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._errors and error is None:
            raise self._errors[0]

    def stop_listening(self) -> None:
        """Refuse every further connection."""
        self._server.close()

    async def closed_by_client(self, within_s: float = 5) -> None:
        """Wait until a client dropped a request that was not answered whole."""
        await asyncio.wait_for(self._dropped.wait(), within_s)

    async def arrived(self, count: int = 1, within_s: float = 5) -> SeenRequest:
        """Wait until ``count`` requests came; the last of them."""
        async with asyncio.timeout(within_s), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def _answer_to(self, request: SeenRequest) -> Scripted:
        async with self._arrived:
            self.requests.append(request)
            index = min(len(self.requests), len(self.answers)) - 1
            self._arrived.notify_all()
        answer: Answer | Awaitable[Answer] = self.answers[index]
        while not isinstance(answer, Scripted):
            answer = answer(request) if callable(answer) else await answer
        return answer


class _Connection(asyncio.Protocol):
    def __init__(self, upstream: ScriptedUpstream) -> None:
        self._upstream = upstream
        self._reader = asyncio.StreamReader()
        self._answering = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._upstream.accepted += 1
        self._upstream._connections.add(self)
        self._task = asyncio.ensure_future(self._serve())
        self._upstream._tasks.add(self._task)
        self._task.add_done_callback(self._upstream._tasks.discard)

    def data_received(self, data: bytes) -> None:
        self._reader.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._upstream._connections.discard(self)
        if self._answering:
            self._upstream._dropped.set()
        self._task.cancel()

    def abort(self) -> None:
        self._answering = False
        self._transport.abort()

    async def _serve(self) -> None:
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError):
            try:
                while True:
                    request = await _read_request(self._reader)
                    self._answering = True
                    script = await self._upstream._answer_to(request)
                    await self._play(script)
                    self._answering = False
                    if self._end(script.then):
                        return
            except Exception as error:  # noqa: BLE001  (a broken script fails the test when the upstream closes)
                self._upstream._errors.append(error)
                self.abort()

    async def _play(self, script: Scripted) -> None:
        for piece in script.pieces:
            if isinstance(piece, bytes):
                self._transport.write(piece)
                await asyncio.sleep(0)
            elif isinstance(piece, asyncio.Event):
                await piece.wait()
            else:
                await asyncio.sleep(piece)
        if script.then == "stall":
            await asyncio.Event().wait()

    def _end(self, then: Then) -> bool:
        if then == "close":
            self._transport.close()
        elif then == "reset":
            self._reset()
        return then != "keep"

    def _reset(self) -> None:
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()


async def _read_request(reader: asyncio.StreamReader) -> SeenRequest:
    lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
    method, target, _ = lines[0].decode("latin-1").split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(b":") for line in lines[1:])]
    fields = {name.lower(): value for name, value in headers}
    if fields.get(b"transfer-encoding", b"").lower() == b"chunked":
        body = b"".join([piece async for piece in _read_chunks(reader)])
    else:
        body = await reader.readexactly(int(fields.get(b"content-length", b"0")))
    return SeenRequest(method, target, headers, body)


async def _read_chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass


# --- messages as vLLM shapes them -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block:
    """A content block: the JSON form, and what the stream has for it."""

    value: dict[str, Any]
    start: dict[str, Any]
    deltas: list[dict[str, Any]]


def text(*pieces: str) -> Block:
    """A text block; one piece is split at words, several are the deltas as they are."""
    whole = "".join(pieces)
    deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(pieces)]
    return Block({"type": "text", "text": whole}, {"type": "text", "text": ""}, deltas)


def thinking(*pieces: str, signature: str = "f99d3be7a1804f88878277d1c658c9f6") -> Block:
    """A thinking block; as in vLLM, its start in a stream has no signature."""
    whole = "".join(pieces)
    deltas: list[dict[str, Any]] = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(pieces)]
    deltas.append({"type": "signature_delta", "signature": signature})
    value = {"type": "thinking", "thinking": whole, "signature": signature}
    return Block(value, {"type": "thinking", "thinking": ""}, deltas)


def tool_use(name: str, arguments: dict[str, Any] | Sequence[str], id: str = "chatcmpl-tool-1") -> Block:
    """A call. ``arguments`` as strings are the ``input_json_delta`` pieces as they are, whatever they spell."""
    if isinstance(arguments, dict):
        written = json.dumps(arguments)
        pieces: Sequence[str] = [written[at : at + 9] for at in range(0, len(written), 9)]
        given = arguments
    else:
        pieces = arguments
        try:
            given = json.loads("".join(pieces))
        except ValueError:
            given = {}
    start: dict[str, Any] = {"type": "tool_use", "id": id, "name": name}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return Block({**start, "input": given}, {**start, "input": {}}, deltas)


def message(
    *blocks: Block,
    stop_reason: str | None = None,
    id: str = "chatcmpl-1",
    model: str = "qwen3",
    input_tokens: int = 10,
    output_tokens: int = 5,
) -> dict[str, Any]:
    """A JSON answer. The stop reason is ``tool_use`` where the blocks hold a call, else ``end_turn``."""
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "content": [block.value for block in blocks],
        "model": model,
        "stop_reason": stop_reason or _stop_reason(blocks),
        "usage": {"input_tokens": input_tokens, "output_tokens": output_tokens},
    }


def sse(
    *blocks: Block,
    stop_reason: str | None = None,
    id: str = "chatcmpl-1",
    model: str = "qwen3",
    input_tokens: int = 10,
    output_tokens: int = 5,
) -> list[dict[str, Any]]:
    """The events of a streamed answer, from the same blocks as :func:`message`."""
    start: dict[str, Any] = {
        "id": id,
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": model,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": input_tokens, "output_tokens": 0},
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "content_block": block.start, "index": index})
        events += [{"type": "content_block_delta", "delta": delta, "index": index} for delta in block.deltas]
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": stop_reason or _stop_reason(blocks), "stop_sequence": None}
    usage = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    events.append({"type": "message_delta", "delta": stop, "usage": usage})
    events.append({"type": "message_stop"})
    return events


def answering(*blocks: Block, stream: bool, headers: HeaderPairs = (), **more: Any) -> Scripted:
    """What :func:`message` or :func:`sse` makes of the blocks, as upstream answers it in that transport."""
    if stream:
        return sse_answer(sse(*blocks, **more), headers=headers)
    return json_answer(message(*blocks, **more), headers=headers)


def _pieces(pieces: Sequence[str]) -> Sequence[str]:
    return re.findall(r"\s*\S+|\s+", pieces[0]) if len(pieces) == 1 else pieces


def _stop_reason(blocks: Sequence[Block]) -> str:
    return "tool_use" if any(block.value["type"] == "tool_use" for block in blocks) else "end_turn"
