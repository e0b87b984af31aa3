import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from recorder.cassette import Cassette, Turn
from recorder.proxy import RecordingProxy
from recorder.serving import bind, origin, serving
from recorder.writer import CassetteWriter
from tests.recorder.tape import SECRET, asked
from tests.support.eventually import eventually
from tests.support.upstream import (
    Answer,
    ScriptedUpstream,
    SeenRequest,
    json_answer,
    message,
    raw,
    sse,
    sse_answer,
    text,
)

pytestmark = pytest.mark.anyio


@dataclass
class Recording:
    """A recording proxy under way: its client, its file, and what it said."""

    client: httpx.AsyncClient
    path: Path
    said: list[str] = field(default_factory=list)

    @property
    def turns(self) -> list[Turn]:
        return list(Cassette(self.path))

    async def says(self, words: str) -> None:
        await eventually(lambda: any(words in line for line in self.said))


@contextlib.asynccontextmanager
async def recording(path: Path, upstream: str) -> AsyncIterator[Recording]:
    sock = bind("127.0.0.1", 0)
    async with httpx.AsyncClient(base_url=origin(sock), timeout=5) as client:
        session = Recording(client, path)

        def say(name: str, turn: Turn | None) -> None:
            session.said.append(f"{turn and turn.filename} {name}")

        with CassetteWriter(path, {}) as writer:
            proxy = RecordingProxy(upstream, writer, say)
            async with serving(proxy, sock, on_stop=proxy.stop):
                yield session
            await proxy.aclose()


async def test_bytes_pass_unchanged_and_become_a_turn(tmp_path: Path) -> None:
    sent = json.dumps(asked("hi", stream=True).body, indent=1).encode()
    async with ScriptedUpstream(sse_answer(sse(text("Hello ", "you")))) as upstream:
        async with recording(tmp_path / "c.yaml", upstream.origin) as session:
            headers = {"x-api-key": "secret", "anthropic-version": "2023-06-01", "content-type": "application/json"}
            answer = await session.client.post("/v1/messages?beta=true&a=%20b", content=sent, headers=headers)
            (turn,) = session.turns  # it is in the file when the client has the end
        (request,) = upstream.requests
    assert (request.target, request.body) == ("/v1/messages?beta=true&a=%20b", sent)
    assert request.header(b"x-api-key") == b"secret"
    assert request.header(b"accept-encoding") == b"identity"
    assert answer.content == turn.response.content.read()
    assert turn.request.query_params == {"beta": "true", "a": " b"}
    assert turn.request.headers["anthropic-version"] == "2023-06-01"
    assert "x-api-key" not in turn.request.headers
    assert turn.request.body == asked("hi", stream=True).body
    assert len(turn.response.event_ms) == len(sse(text("Hello ", "you")))


async def test_whatever_passes_is_recorded(tmp_path: Path) -> None:
    answers = [
        json_answer({"data": []}, headers=[("x-one", "1")]),
        json_answer(b'{"error" : "no"}', 404),
        raw(b"HTTP/1.1 204 No Content\r\nconnection: x-gone\r\nx-gone: 1\r\n\r\n", then="keep"),
        json_answer(b"\xff\x00", 200),
    ]
    async with (
        ScriptedUpstream(*answers) as upstream,
        recording(tmp_path / "c.yaml", upstream.origin) as session,
    ):
        models = await session.client.get("/v1/models")
        missing = await session.client.post("/v1/messages", content=b"{cut")
        nothing = await session.client.delete("/x")
        odd = await session.client.get("/odd")
        turns = session.turns
    assert (models.json(), models.headers["x-one"]) == ({"data": []}, "1")
    assert (missing.status_code, missing.content) == (404, b'{"error" : "no"}')
    assert (nothing.status_code, "x-gone" in nothing.headers) == (204, False)
    assert odd.content == b"\xff\x00"
    assert [turn.response.content.read() for turn in turns] == [models.content, missing.content, b"", odd.content]
    assert [(turn.request.method, turn.response.status_code) for turn in turns] == [
        ("GET", 200),
        ("POST", 404),
        ("DELETE", 204),
        ("GET", 200),
    ]
    assert turns[1].request.text == "{cut"


async def test_requests_at_once_become_turns_in_the_order_they_finished(tmp_path: Path) -> None:
    held = asyncio.Event()

    def answer(request: SeenRequest) -> Answer:
        prompt = request.json["messages"][0]["content"]
        events = sse(text(f"I heard {prompt}"))
        return sse_answer([*events[:3], held, *events[3:]] if prompt == "slow" else events)

    async with (
        ScriptedUpstream(answer) as upstream,
        recording(tmp_path / "c.yaml", upstream.origin) as session,
    ):
        slow = asyncio.create_task(session.client.post("/v1/messages", json=asked("slow").body))
        await upstream.arrived()
        fast = await session.client.post("/v1/messages", json=asked("fast").body)
        held.set()
        answers = [fast, await slow]
        turns = session.turns
    assert [turn.request.body["messages"][0]["content"] for turn in turns] == ["fast", "slow"]
    assert [turn.response.content.read() for turn in turns] == [answer.content for answer in answers]


async def test_a_token_passes_when_it_comes(tmp_path: Path) -> None:
    held, events = asyncio.Event(), sse(text("Hello you"))
    async with (
        ScriptedUpstream(sse_answer([*events[:3], held, *events[3:]])) as upstream,
        recording(tmp_path / "c.yaml", upstream.origin) as session,
        session.client.stream("POST", "/v1/messages", json=asked("hi").body) as answer,
    ):
        seen = b""
        async for data in answer.aiter_raw():
            seen += data
            if b"Hello" in seen:
                held.set()
    assert seen.endswith(b'{"type":"message_stop"}\n\n')


async def test_a_client_that_leaves_lets_the_upstream_go_and_leaves_no_turn(tmp_path: Path) -> None:
    events = sse(text("Hello you"))
    async with (
        ScriptedUpstream(sse_answer([*events[:3], asyncio.Event()])) as upstream,
        recording(tmp_path / "c.yaml", upstream.origin) as session,
    ):
        async with session.client.stream("POST", "/v1/messages", json=asked("hi").body) as answer:
            await anext(answer.aiter_raw())
        await upstream.closed_by_client()
        await session.says("None POST /v1/messages: broken off before its end, not recorded")
        assert session.turns == []


async def test_a_client_that_hangs_up_after_the_last_event_has_its_turn(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(sse_answer([*sse(text("Hello you")), asyncio.Event()])) as upstream,
        recording(tmp_path / "c.yaml", upstream.origin) as session,
    ):
        async with session.client.stream("POST", "/v1/messages", json=asked("hi").body) as answer:
            seen = b""
            async for data in answer.aiter_raw():
                seen += data
                if b"message_stop" in seen:
                    break
        await session.says("t1 POST /v1/messages")
        (turn,) = session.turns
    assert turn.response.content.read() == seen


async def test_an_upstream_that_breaks_off_breaks_off_for_the_client_too(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(sse_answer(sse(text("Hello you"))[:3], whole=False)) as upstream,
        recording(tmp_path / "c.yaml", upstream.origin) as session,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await session.client.post("/v1/messages", json=asked("hi").body)
        await session.says("the upstream broke off (RemoteProtocolError), not recorded")
        assert session.turns == []


async def test_an_upstream_out_of_reach(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as nobody:
        gone = origin(nobody)
    async with recording(tmp_path / "c.yaml", gone) as session:
        answer = await session.client.post("/v1/messages", json=asked("hi").body)
        assert (answer.status_code, answer.json()["error"]["type"]) == (502, "api_error")
        assert session.turns == []


async def test_stopping_breaks_off_what_is_under_way(tmp_path: Path) -> None:
    held = sse_answer([*sse(text("a"))[:3], asyncio.Event()])
    async with ScriptedUpstream(held) as upstream, httpx.AsyncClient() as client, asyncio.timeout(5):
        async with recording(tmp_path / "c.yaml", upstream.origin) as session:
            request = client.build_request("POST", f"{session.client.base_url}/v1/messages", json=asked("hi").body)
            answer = await client.send(request, stream=True)
        with pytest.raises(httpx.RemoteProtocolError):
            await answer.aread()


async def test_credentials_do_not_reach_the_file(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(json_answer(message(text(f"It is {SECRET}")))) as upstream,
        recording(tmp_path / "c.yaml", upstream.origin) as session,
    ):
        answer = await session.client.post(
            "/v1/messages?key=abc", json=asked(SECRET).body, headers={"authorization": f"Bearer {SECRET}"}
        )
    assert SECRET in answer.text
    assert SECRET.encode() not in (tmp_path / "c.yaml").read_bytes()
    assert len(session.turns[0].redacted) == 4
