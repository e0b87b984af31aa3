"""Short ways to say what was asked and answered, and to write it down."""

from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from recorder.cassette import Request, Response, compact_json
from recorder.spool import Spool
from recorder.writer import CassetteWriter
from tests.support.upstream import encode_event

Exchange = tuple[Request, Response]

SECRET = "-".join(["sk", "ant", "a1b2c3" * 5])
"""What looks like a key, and is none."""


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def call(call_id: str, query: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "web_search", "input": {"query": query}}


def asked(*messages: Any, **fields: Any) -> Request:
    """A request whose one message is a prompt where it is given as text."""
    said = [user(message) if isinstance(message, str) else message for message in messages]
    return Request("POST", "/v1/messages", {}, {}, {"model": "qwen3", "max_tokens": 64, "messages": said, **fields})


def answered(value: Any, status: int = 200) -> Response:
    """A JSON answer; bytes are taken as they are."""
    data = value if isinstance(value, bytes) else compact_json(value)
    return Response(status, {"content-type": "application/json"}, Spool(data))


def streamed(events: Iterable[dict[str, Any]], event_ms: Sequence[float] = ()) -> Response:
    return streamed_bytes(b"".join(map(encode_event, events)), event_ms)


def streamed_bytes(data: bytes, event_ms: Sequence[float] = ()) -> Response:
    return Response(200, {"content-type": "text/event-stream; charset=utf-8"}, Spool(data), True, array("d", event_ms))


def write(path: Path, *exchanges: Exchange, recorded: dict[str, Any] | None = None) -> Path:
    """A cassette with these turns."""
    with CassetteWriter(path, recorded or {}) as writer:
        for request, response in exchanges:
            writer.append(request, response)
    return path
