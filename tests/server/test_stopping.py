"""The end of a server, and its renewal under load: what is under way is finished, told, or taken over."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import Gateway
from gateway.server import serve as server
from gateway.settings import Settings
from tests.support.eventually import eventually
from tests.support.playbook import SEARCH, asking
from tests.support.raw import post, raw_client
from tests.support.search import Held, ScriptedSearch, found
from tests.support.serving import end, listens, serving, workers
from tests.support.upstream import (
    Answer,
    ScriptedUpstream,
    SeenRequest,
    encode_event,
    json_answer,
    message,
    raw,
    sse,
    sse_answer,
    text,
    tool_use,
)

pytestmark = pytest.mark.anyio

RUST = tool_use("web_search", {"query": "rust"})


# --- patience ends --------------------------------------------------------------------------------------------------


async def stopped_in(body: dict[str, Any], answer: Answer, search: ScriptedSearch | None = None) -> tuple[int, bytes]:
    """Status and bytes of an answer that was under way when the server stopped; the bytes end where they broke off."""
    got = b""
    async with ScriptedUpstream(answer) as upstream, httpx.AsyncClient(timeout=5) as client:

        async def read() -> int:
            nonlocal got
            async with client.stream("POST", url + "/v1/messages", json=body) as response:
                begun.set()
                async for piece in response.aiter_raw():
                    got += piece
            return response.status_code

        begun = asyncio.Event()
        application = Gateway(Settings(upstream=upstream.origin), runners={"web_search": search} if search else {})
        async with server.loopback(application, drain_s=0.05) as url:
            pending = asyncio.create_task(read())
            await upstream.arrived()
            if body["stream"]:
                await begun.wait()
            if search is not None:
                await eventually(lambda: search.calls)
        status = await pending
        if search is None:
            await upstream.closed_by_client(within_s=1)
    return status, got


async def test_a_stream_of_the_loop_ends_in_an_error_event() -> None:
    held = sse_answer(sse(text("one two"))[:4], whole=False, then="stall")
    status, got = await stopped_in(asking(stream=True, tools=[SEARCH]), held)
    assert status == 200
    assert got.startswith(encode_event(sse(text("one two"))[0]))
    *_, name, data = got.decode().strip().split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: ")) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "the gateway is being stopped"},
    }


async def test_a_stream_that_waits_for_a_search_does_too() -> None:
    search = ScriptedSearch(default=Held(found("late")))
    status, got = await stopped_in(asking(stream=True, tools=[SEARCH]), sse_answer(sse(RUST)), search)
    assert status == 200
    assert b"event: error\n" in got
    assert search.cancelled == ["rust"]


async def test_a_json_answer_is_529() -> None:
    status, got = await stopped_in(asking(stream=False, tools=[SEARCH]), raw(then="stall"))
    assert status == 529
    assert json.loads(got)["error"]["type"] == "overloaded_error"


async def test_a_stream_that_passes_through_breaks_off_and_nothing_is_added() -> None:
    held = sse_answer(sse(text("one two"))[:4], whole=False, then="stall")
    with pytest.raises(httpx.RemoteProtocolError):
        await stopped_in(asking(stream=True, tools=[]), held)


# --- SIGTERM --------------------------------------------------------------------------------------------------------


async def test_sigterm_closes_the_port_and_ready_says_so_on_the_connections_that_are_left(tmp_path: Path) -> None:
    gate = asyncio.Event()
    spoken = sse(text("one two"))
    async with (
        asyncio.timeout(60),
        ScriptedUpstream(json_answer({}), sse_answer([spoken[0], gate, *spoken[1:]])) as upstream,
        serving(tmp_path, "--upstream", upstream.origin) as (program, client),
    ):
        port = int(str(client.base_url).rstrip("/").rpartition(":")[2])
        ready = b"GET /ready HTTP/1.1\r\nhost: x\r\n\r\n"
        async with raw_client(port) as probe, raw_client(port) as idle:
            await probe.send(ready)
            assert b" 200 " in await probe.head()
            await probe.until(b"}")
            async with client.stream("POST", "/v1/messages", json=asking(stream=True, tools=[])) as answer:
                chunks = answer.aiter_raw()
                got = await anext(chunks)
                program.process.send_signal(signal.SIGTERM)
                await eventually(lambda: not listens(port))
                # A request that was on its way when the server stopped is answered, and is its connection's last.
                for connection in (probe, idle):
                    await connection.send(ready)
                    head = await connection.head()
                    assert b" 503 " in head
                    assert b"connection: close\r\n" in head
                    assert b"being stopped" in await connection.rest()
                gate.set()
                got += b"".join([chunk async for chunk in chunks])
        assert got == b"".join(map(encode_event, spoken))
        assert await asyncio.to_thread(program.end) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("number", "flags"), [(signal.SIGTERM, []), (signal.SIGHUP, ["--workers", "2"])], ids=["SIGTERM", "SIGHUP"]
)
async def test_a_stream_that_ends_while_the_server_stops_leaves_room_for_one_more_request(
    tmp_path: Path, number: signal.Signals, flags: list[str]
) -> None:
    """Its head had promised it: the client sends the next request on the same connection."""
    gate = asyncio.Event()
    spoken = sse(text("one two"))
    async with (
        asyncio.timeout(60),
        ScriptedUpstream(sse_answer([spoken[0], gate, *spoken[1:]]), json_answer({})) as upstream,
        serving(tmp_path, "--upstream", upstream.origin, *flags) as (program, client),
    ):
        port = int(str(client.base_url).rstrip("/").rpartition(":")[2])
        async with raw_client(port) as kept:
            await kept.send(post(json.dumps(asking(stream=True, tools=[])).encode()))
            await kept.until(encode_event(spoken[0]))
            os.kill(program.process.pid, number)
            if number == signal.SIGHUP:
                await asyncio.to_thread(program.says, "the workers have been replaced")
                await asyncio.sleep(1)  # the last of them looks ten times a second whether it is to stop
            else:
                await eventually(lambda: not listens(port))
            gate.set()
            await kept.until(b"\r\n0\r\n\r\n")
            await kept.send(post(b"{}"))
            head = await kept.head()
            assert b" 200 " in head
            assert b"connection: close\r\n" in head
            assert await kept.rest() == b"{}"
        assert await end(program) in (0, -signal.SIGTERM)


# --- SIGHUP ---------------------------------------------------------------------------------------------------------


async def test_the_workers_are_replaced_under_load_and_no_request_fails(tmp_path: Path) -> None:
    settings = tmp_path / "gateway.toml"
    settings.write_text("workers = 2\nmax_body_bytes = 100_000\n")

    def answer(request: SeenRequest) -> Answer:
        if request.json["stream"]:
            return sse_answer(sse(text("one two three")), pace=0.02)
        return json_answer(message(text("hi")))

    async with (
        asyncio.timeout(60),
        ScriptedUpstream(answer) as upstream,
        serving(tmp_path, "--upstream", upstream.origin, "--config", str(settings)) as (program, client),
    ):
        stays = asyncio.create_task(asyncio.to_thread(program.says, "the workers stay as they are.*"))
        over = asyncio.Event()
        answered = {"kept": 0, "new": 0, "stream": 0}

        async def keep_asking(kind: str) -> None:
            kept = httpx.AsyncClient(base_url=client.base_url, timeout=10, verify=False)
            while not over.is_set():
                response = await kept.post("/v1/messages", json=asking(stream=kind == "stream", tools=[]))
                assert response.status_code == 200
                assert response.content.rstrip().endswith(b"}")
                answered[kind] += 1
                if kind == "new":
                    await kept.aclose()
                    kept = httpx.AsyncClient(base_url=client.base_url, timeout=10, verify=False)
            await kept.aclose()

        await eventually(lambda: len(workers(program)) == 2)
        before = set(workers(program))
        load = [asyncio.create_task(keep_asking(kind)) for kind in answered for _ in range(2)]
        settings.write_text("max_body_bytes = 300\n")
        os.kill(program.process.pid, signal.SIGHUP)
        await eventually(lambda: len(workers(program)) == 2 and not before & set(workers(program)), within_s=30)
        over.set()
        await asyncio.gather(*load)
        assert min(answered.values()) > 0
        # The settings are those of the file as it is now.
        async with httpx.AsyncClient(base_url=client.base_url, verify=False) as new:
            assert (await new.post("/v1/messages", content=b"{" + b" " * 300 + b"}")).status_code == 413

        settings.write_text("max_body_bites = 1\n")
        await eventually(lambda: len(workers(program)) == 2)
        after = set(workers(program))
        os.kill(program.process.pid, signal.SIGHUP)
        assert "max_body_bites" in (await stays)[0]
        assert set(workers(program)) == after
        assert await end(program) == 0
    assert "Traceback" not in program.said


async def test_workers_do_not_outlive_the_process_that_looks_after_them(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(60),
        ScriptedUpstream(json_answer({})) as upstream,
        serving(tmp_path, "--upstream", upstream.origin, "--workers", "2", TMPDIR=str(tmp_path)) as (program, client),
    ):
        port = int(str(client.base_url).rstrip("/").rpartition(":")[2])
        await eventually(lambda: len(workers(program)) == 2)
        left = workers(program)
        program.process.kill()
        await eventually(lambda: not any(Path(f"/proc/{worker}").exists() for worker in left), within_s=30)
        assert not listens(port)
