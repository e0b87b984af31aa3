from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx

from recorder.cassette import Cassette, Turn
from recorder.check import check
from recorder.conversation import Script
from recorder.errors import RecordingError
from recorder.provenance import provenance
from recorder.record import record
from recorder.writer import CassetteWriter
from tests.recorder.tape import result, streamed, user
from tests.support.upstream import message, sse, text, thinking, tool_use

UPSTREAM = "http://upstream.test"
SEARCH = [thinking("I should search."), text("\n\n"), tool_use("web_search", {"query": "rust"}, id="call-1")]
ANSWER = [text("It is 1.89.0.")]


@pytest.fixture
def upstream() -> Iterator[respx.MockRouter]:
    with respx.mock(base_url=UPSTREAM) as router:
        yield router


def stream(*events: dict[str, Any]) -> httpx.Response:
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=streamed(events).content.read())


def run(path: Path, *prompts: str, **fields: Any) -> list[str]:
    """Record a conversation; what was said of each turn."""
    said: list[str] = []

    def say(turn: Turn, problem: str) -> None:
        said.append(f"{turn.filename} {problem}".strip())

    script = Script(prompts, 9, {"model": "qwen3", "messages": [], **fields}, {"web_search": "1.89.0"})
    with httpx.Client(base_url=UPSTREAM) as client, CassetteWriter(path, {}) as writer:
        record(script, client, writer, say)
    return said


@pytest.mark.parametrize("streaming", [True, False])
def test_a_search_becomes_two_turns(streaming: bool, upstream: respx.MockRouter, tmp_path: Path) -> None:
    rounds = [SEARCH, ANSWER]
    upstream.post("/v1/messages").mock(
        side_effect=[
            stream(*sse(*blocks)) if streaming else httpx.Response(200, json=message(*blocks)) for blocks in rounds
        ]
    )
    assert run(tmp_path / "c.yaml", "Latest Rust?", stream=streaming) == ["t1", "t2"]
    first, second = Cassette(tmp_path / "c.yaml")
    assert first.response.is_stream == streaming
    assert first.request.headers["content-type"] == "application/json"
    assert second.request.body["messages"][1]["content"] == [SEARCH[0].value, SEARCH[2].value]
    assert second.request.body["messages"][2] == user([result("call-1", "1.89.0")])
    assert second.response.elapsed_ms is not None
    assert list(check(Cassette(tmp_path / "c.yaml"))) == []


def test_an_upstream_error_is_recorded_and_said(upstream: respx.MockRouter, tmp_path: Path) -> None:
    error = {"error": {"type": "NotFoundError", "message": "no such model"}}
    upstream.post("/v1/messages").mock(
        side_effect=[httpx.Response(404, json=error), httpx.Response(200, json=message(*ANSWER))]
    )
    assert run(tmp_path / "c.yaml", "hi", "again") == ["t1 404: no such model", "t2"]
    first, second = Cassette(tmp_path / "c.yaml")
    assert (first.response.status_code, first.response.json()) == (404, error)
    assert second.request.body["messages"] == [user("again")]


FAILURES = {
    "an error event": ([*sse(*ANSWER)[:2], {"type": "error", "error": {"message": "engine died"}}], "t1 engine died"),
    "no end": (sse(*ANSWER)[:-1], "t1 the stream ended before its message"),
    "no message": (sse(*ANSWER)[1:], "t1 event 1: content_block_start before message_start"),
}


@pytest.mark.parametrize(("events", "said"), FAILURES.values(), ids=FAILURES)
def test_a_stream_without_a_message_is_recorded_and_said(
    events: list[dict[str, Any]], said: str, upstream: respx.MockRouter, tmp_path: Path
) -> None:
    upstream.post("/v1/messages").mock(return_value=stream(*events))
    assert run(tmp_path / "c.yaml", "hi", stream=True) == [said]
    (turn,) = Cassette(tmp_path / "c.yaml")
    assert turn.response.content.read() == streamed(events).content.read()


def test_an_upstream_that_breaks_off_ends_the_recording(upstream: respx.MockRouter, tmp_path: Path) -> None:
    upstream.post("/v1/messages").mock(
        side_effect=[httpx.Response(200, json=message(*ANSWER)), httpx.RemoteProtocolError("gone")]
    )
    with pytest.raises(RecordingError, match="the upstream broke off: RemoteProtocolError gone"):
        run(tmp_path / "c.yaml", "one", "two")
    assert len(list(Cassette(tmp_path / "c.yaml"))) == 1


def told(**routes: httpx.Response | Exception) -> dict[str, Any]:
    with respx.mock(base_url=UPSTREAM) as router, httpx.Client(base_url=UPSTREAM) as client:
        for path, answer in {"version": httpx.Response(404), "models": httpx.Response(404), **routes}.items():
            route = router.get("/version" if path == "version" else "/v1/models")
            route.mock(side_effect=answer) if isinstance(answer, Exception) else route.mock(return_value=answer)
        found = provenance(client, "qwen3", "messages-recorder record")
    found.pop("at")
    return found


def test_where_a_cassette_comes_from() -> None:
    models = {"data": [{"id": "other"}, {"id": "qwen3", "owned_by": "vllm", "max_model_len": 4096}]}
    assert told(version=httpx.Response(200, json={"version": "0.32.0"}), models=httpx.Response(200, json=models)) == {
        "server": "vllm",
        "version": "0.32.0",
        "model": "qwen3",
        "max_model_len": 4096,
        "how": "messages-recorder record",
    }


def test_an_upstream_that_tells_nothing_of_itself() -> None:
    assert told(models=httpx.Response(200, text="<html>")) == {"model": "qwen3", "how": "messages-recorder record"}


def test_an_upstream_out_of_reach() -> None:
    with pytest.raises(RecordingError, match="cannot reach the upstream"):
        told(version=httpx.ConnectError("refused"))
