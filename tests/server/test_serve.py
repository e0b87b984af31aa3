"""The real command as a process: its port, its workers, its end."""

import asyncio
import os
import re
import signal
import socket
from pathlib import Path

import httpx
import pytest

from tests.support.eventually import eventually
from tests.support.programs import messages_gateway
from tests.support.serving import end, listens, serving, workers
from tests.support.upstream import ScriptedUpstream, json_answer, raw, sse, sse_answer, text

pytestmark = pytest.mark.anyio


async def test_it_serves_logs_and_ends(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(json_answer({"model": "qwen3"})) as upstream,
        serving(tmp_path, "--upstream", upstream.origin, "--log-format", "json", GATEWAY_ODD="1") as (program, client),
    ):
        assert (await client.post("/v1/messages", json={"model": "qwen3"})).json() == {"model": "qwen3"}
        assert await end(program) == -signal.SIGTERM
    assert "GATEWAY_ODD" in program.said
    assert '"route":"/v1/messages","status":200,"outcome":"ok","model":"qwen3"' in program.said
    assert "Traceback" not in program.said


async def test_a_running_answer_is_finished_before_the_end(tmp_path: Path) -> None:
    gate = asyncio.Event()
    events = sse(text("one two"))
    async with (
        ScriptedUpstream(sse_answer([events[0], gate, *events[1:]])) as upstream,
        serving(tmp_path, "--upstream", upstream.origin) as (program, client),
        client.stream("POST", "/v1/messages", json={}) as answer,
    ):
        chunks = answer.aiter_raw()
        got = await anext(chunks)
        program.process.send_signal(signal.SIGTERM)
        port = int(str(client.base_url).rstrip("/").rpartition(":")[2])
        await eventually(lambda: not listens(port))
        gate.set()
        async for chunk in chunks:
            got += chunk
        assert got.endswith(b'data: {"type":"message_stop"}\n\n')
        assert await asyncio.to_thread(program.end) == -signal.SIGTERM


async def test_an_answer_that_takes_longer_than_that_is_cut(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(raw(then="stall")) as upstream,
        serving(tmp_path, "--upstream", upstream.origin, "--drain-s", "0") as (program, client),
    ):
        pending = asyncio.create_task(client.post("/v1/messages", json={}))
        await upstream.arrived()
        assert await end(program) == -signal.SIGTERM
        assert (await pending).json()["error"]["type"] == "overloaded_error"
        await upstream.closed_by_client()


async def test_workers_share_the_port_and_the_metrics_and_a_dead_one_is_replaced(tmp_path: Path) -> None:
    async with (
        ScriptedUpstream(json_answer({"model": "qwen3"})) as upstream,
        serving(tmp_path, "--upstream", upstream.origin, "--workers", "2", TMPDIR=str(tmp_path)) as (program, client),
    ):

        async def ask() -> None:
            async with httpx.AsyncClient(base_url=client.base_url, verify=False) as one:
                assert (await one.post("/v1/messages", json={})).status_code == 200

        async def counts(expected: float) -> bool:
            async with httpx.AsyncClient(base_url=client.base_url, verify=False) as one:
                shown = (await one.get("/metrics")).text
            found = re.search(r'requests_total\{outcome="ok",route="/v1/messages",status="2xx"\} (\S+)', shown)
            return found is not None and float(found[1]) == expected

        await eventually(lambda: len(workers(program)) == 2)
        for _ in range(8):
            await ask()
        await eventually(lambda: counts(8))

        dead = workers(program)[0]
        os.kill(dead, signal.SIGKILL)
        await eventually(lambda: dead not in workers(program) and len(workers(program)) == 2, within_s=20)
        for _ in range(8):
            await ask()
        await eventually(lambda: counts(16), within_s=20)
        assert await end(program) == 0
    assert program.said.count("GATEWAY_SEAL_KEYS is not set") == 1
    assert not [name for name in os.listdir(tmp_path) if "metrics" in name]


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        messages_gateway("serve", "--port", str(taken.getsockname()[1]), path=tmp_path) as program,
    ):
        assert await asyncio.to_thread(program.end) == 1
    assert "choose another with --port" in program.said
    assert "Traceback" not in program.said


async def test_a_search_key_that_is_missing(tmp_path: Path) -> None:
    with messages_gateway("serve", "--port", "0", "--search-provider", "brave", path=tmp_path) as program:
        assert await asyncio.to_thread(program.end) == 1
    assert "GATEWAY_SEARCH_API_KEY" in program.said
