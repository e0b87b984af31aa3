"""Two replicas behind nginx, as deploy/nginx.conf has it, but for the ports."""

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.wire.sse import SSEReader
from tests.support.eventually import eventually
from tests.support.programs import Running, free_port, messages_gateway
from tests.support.upstream import (
    Answer,
    ScriptedUpstream,
    SeenRequest,
    json_answer,
    message,
    sse,
    sse_answer,
    text,
    tool_use,
)

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
CONFIG = Path(__file__).parents[2] / "deploy" / "nginx.conf"

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(NGINX is None, reason="nginx is not installed")]

NATIVE = {"type": "web_search_20250305", "name": "web_search"}
QUESTION = {"role": "user", "content": "What is the latest stable Rust release?"}
PAGE = {"url": "https://blog.rust-lang.org/", "title": "Rust 1.95", "content": "Only for the model."}


@dataclass(frozen=True)
class Site:
    """nginx, and what is behind it."""

    client: httpx.AsyncClient
    replicas: list[Running]


@asynccontextmanager
async def site(folder: Path, *upstreams: ScriptedUpstream, **env: str) -> AsyncIterator[Site]:
    """A replica for each upstream, behind nginx."""
    ports = [free_port() for _ in upstreams]
    async with AsyncExitStack() as stack:
        replicas = []
        for port, upstream in zip(ports, upstreams, strict=True):
            flags = ["--port", str(port), "--upstream", upstream.origin]
            replicas.append(stack.enter_context(messages_gateway("serve", *flags, path=folder, env=env)))
        for replica in replicas:
            await asyncio.to_thread(replica.says, "listening")
        url = await stack.enter_async_context(nginx(folder, ports))
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=20, trust_env=False))
        yield Site(client, replicas)


@asynccontextmanager
async def nginx(folder: Path, ports: list[int]) -> AsyncIterator[str]:
    """nginx with the shipped configuration, on a free port, before these ports; yields its URL."""
    port = free_port()
    shipped = CONFIG.read_text()
    servers = re.findall(r"^ *server 127.*;\n", shipped, re.M)
    assert len(servers) == len(ports)
    for line, to in zip(servers, ports, strict=True):
        shipped = shipped.replace(line, f"    server 127.0.0.1:{to};\n")
    shipped, listens = re.subn(r"^ *listen 80;$", f"    listen 127.0.0.1:{port};", shipped, flags=re.M)
    assert listens == 1
    (folder / "site.conf").write_text(shipped)
    paths = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"{'user root;' if os.geteuid() == 0 else ''} daemon off; pid {folder}/nginx.pid; worker_processes 2;"
        f"error_log {folder}/error.log; events {{ }} http {{ access_log off; {paths} include {folder}/site.conf; }}"
    )
    program = await asyncio.create_subprocess_exec(str(NGINX), "-c", f"{folder}/nginx.conf", "-p", str(folder))
    try:
        await eventually(lambda: (folder / "nginx.pid").exists())
        yield f"http://127.0.0.1:{port}"
    finally:
        program.terminate()
        await program.wait()


def asked(**more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 99, "messages": [QUESTION], **more}


async def test_what_one_replica_sealed_the_other_reads(tmp_path: Path) -> None:
    rounds = [
        json_answer(message(tool_use("web_search", {"query": "rust"}, id="call-1"), stop_reason="tool_use")),
        json_answer(message(text("1.95."))),
    ]

    def round_of(seen: SeenRequest) -> Answer:
        return rounds[len(seen.json["messages"]) > 1]

    async with (
        ScriptedUpstream(round_of) as one,
        ScriptedUpstream(round_of) as other,
        ScriptedUpstream(json_answer({"results": [PAGE]})) as searxng,
    ):
        env = {"GATEWAY_SEARCH_PROVIDER": "searxng", "GATEWAY_SEARCH_BASE_URL": searxng.origin}
        async with site(tmp_path, one, other, GATEWAY_SEAL_KEYS="one-for-all", **env) as behind:
            first = (await behind.client.post("/v1/messages", json=asked(tools=[NATIVE]))).json()
            searched, idle = (one, other) if one.requests else (other, one)
            assert (len(searched.requests), len(idle.requests)) == (2, 0)

            history = [QUESTION, {"role": "assistant", "content": first["content"]}, QUESTION]
            while not idle.requests:
                await behind.client.post("/v1/messages", json=asked(tools=[NATIVE], messages=history))
    assert "Only for the model." not in json.dumps(first)
    before, after = searched.requests[1].json["messages"], idle.requests[0].json["messages"]
    assert "Only for the model." in json.dumps(before)
    assert after[: len(before)] == before


@pytest.mark.parametrize("tools", [[], [NATIVE]], ids=["proxied", "turn"])
async def test_each_event_comes_before_the_next_one_is_sent(tools: list[dict[str, Any]], tmp_path: Path) -> None:
    words = ["One", " two", " three", " four"]
    gates = iter(may_come := [asyncio.Event() for _ in words])
    script: list[Any] = []
    for event in sse(text(*words)):
        script += [next(gates), event] if event["type"] == "content_block_delta" else [event]
    async with (
        ScriptedUpstream(sse_answer(script)) as upstream,
        site(tmp_path, upstream, upstream) as behind,
        behind.client.stream("POST", "/v1/messages", json=asked(tools=tools, stream=True)) as answer,
    ):
        assert answer.headers["x-accel-buffering"] == "no"
        reader, chunks = SSEReader(), answer.aiter_raw()
        for gate, word in zip(may_come, words, strict=True):
            gate.set()
            come: list[str] = []
            while not come:
                events = [json.loads(frame.data) for frame in reader.feed(await asyncio.wait_for(anext(chunks), 5))]
                come += [event["delta"]["text"] for event in events if event["type"] == "content_block_delta"]
            assert come == [word]


async def test_a_replica_that_is_stopped_under_load_fails_nobody(tmp_path: Path) -> None:
    told = sse(text(*[f" word{number}" for number in range(10)]))
    answered = 0
    stopped = asyncio.Event()

    async def keeps_asking(client: httpx.AsyncClient, number: int) -> None:
        nonlocal answered
        for turn in range(12):
            answer = await client.post("/v1/messages", json=asked(stream=True, mark=f"{number}-{turn}"))
            assert answer.status_code == 200
            assert [frame.event for frame in SSEReader().feed(answer.content)][-1] == "message_stop"
            answered += 1
            if answered == 60:
                stopped.set()

    async with ScriptedUpstream(sse_answer(told, pace=0.005)) as upstream, site(tmp_path, upstream, upstream) as behind:

        async def stops_one() -> int:
            await stopped.wait()
            behind.replicas[0].process.send_signal(signal.SIGTERM)
            return await asyncio.to_thread(behind.replicas[0].end)

        async with asyncio.TaskGroup() as group:
            stop = group.create_task(stops_one())
            for number in range(16):
                group.create_task(keeps_asking(behind.client, number))
        assert stop.result() in (0, -signal.SIGTERM)
        assert answered == len(upstream.requests) == 16 * 12
        assert behind.replicas[1].process.poll() is None
    assert "outcome=ok" in behind.replicas[0].said
    assert not re.search("outcome=(?!ok)", behind.replicas[0].said)
