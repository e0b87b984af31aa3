"""The largest bodies there can be, of every make: refused, or read at a bounded cost, while others are answered."""

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import Settings
from gateway.turn import KINDS, Kinds
from gateway.turn.kind import AnyTool, Block, Declaration, Kind, Told
from gateway.turn.seal import Sealer
from gateway.wire.weight import WEIGHT_MAX
from tests.support.events import events_in
from tests.support.gateway import running_gateway
from tests.support.playbook import BASH, NATIVE, QUESTION, SEARCH, asking
from tests.support.programs import Running
from tests.support.search import ScriptedSearch, found
from tests.support.serving import serving
from tests.support.upstream import Scripted, ScriptedUpstream, answering, json_answer, message, raw, text, tool_use

pytestmark = pytest.mark.anyio

MIB = 1 << 20
TYPED = json.dumps(NATIVE)


def body(messages: str, tools: str = TYPED, more: str = "") -> bytes:
    return f'{{"model":"m","max_tokens":9,"messages":[{messages}],"tools":[{tools}]{more}}}'.encode()


def listed(value: str, count: int) -> str:
    return ",".join([value] * count)


def user(content: str) -> str:
    return f'{{"role":"user","content":[{content}]}}'


HEAVY: dict[str, Callable[[str], bytes]] = {
    "messages that are numbers": lambda tools: body(listed("1", 2_100_000), tools),
    "messages that are lists": lambda tools: body(listed("[]", 600_000), tools),
    "messages": lambda tools: body(listed('{"role":"user","content":"q"}', 250_000), tools),
    "blocks": lambda tools: body(user(listed('{"type":"text","text":"a"}', 250_000)), tools),
    "blocks that are numbers": lambda tools: body(user(listed("1", 2_100_000)), tools),
    "tools": lambda tools: body("", f"{tools}," * bool(tools) + listed('{"name":"a"}', 400_000)),
    "members": lambda tools: body("", tools, "".join(f',"k{number}":1' for number in range(700_000))),
    "nesting": lambda tools: body("[" * 700_000 + "]" * 700_000, tools),
    "strings": lambda tools: body(user(listed('"ab"', 2_100_000)), tools),
    "token ids": lambda tools: body("", tools, f',"input_ids":[{listed("1", 2_100_000)}]'),
}


@pytest.mark.parametrize("tools", [TYPED, ""], ids=["a turn", "proxied"])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("shape", HEAVY)
async def test_a_body_of_very_many_small_values_is_refused(shape: str, path: str, tools: str) -> None:
    async with (
        ScriptedUpstream(json_answer(message(text("hi")))) as upstream,
        running_gateway(Settings(upstream=upstream.origin, model_map={"m": "n"})) as gateway,
    ):
        headers = {"content-type": "application/json"}
        answer = await gateway.client.post(path, content=HEAVY[shape](tools), headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert answer.json()["error"]["message"] == "the request is made of too many small values"
    assert upstream.requests == []


CALL = '{"type":"server_tool_use","id":"srvtoolu_%d","name":"web_search","input":{}}'
ABSURD = {
    "messages: must be no more than 100000": body(listed(json.dumps(QUESTION), 100_001)),
    "messages: must hold no more than 10000 calls of server tools": body(
        f'{{"role":"assistant","content":[{",".join(CALL % number for number in range(10_001))}]}}'
    ),
    "the request has more than 10000 members": body("", TYPED, "".join(f',"k{number}":1' for number in range(10_001))),
}


@pytest.mark.parametrize("words", ABSURD)
async def test_what_no_conversation_has_is_refused(words: str) -> None:
    async with (
        ScriptedUpstream(json_answer(message(text("hi")))) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        headers = {"content-type": "application/json"}
        answer = await gateway.client.post("/v1/messages", content=ABSURD[words], headers=headers)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, words)
    assert upstream.requests == []


async def test_a_long_text_is_no_heavy_body() -> None:
    csv = {"role": "user", "content": '[{"a":1},' * (WEIGHT_MAX // 4)}
    async with (
        ScriptedUpstream(json_answer(message(text("hi")))) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        for tools in ([SEARCH], []):
            asked = asking(stream=False, tools=tools, messages=[csv])
            assert (await gateway.client.post("/v1/messages", json=asked)).status_code == 200
    assert [request.json["messages"] for request in upstream.requests] == [[csv]] * 2


class Slow(Kind):
    """A kind whose declarations are read only once the test has seen that others are answered."""

    name = "slow"
    result_type = "slow_result"
    none_left = ""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.ended_in_time: list[bool] = []

    def is_typed(self, entry: Mapping[str, Any]) -> bool:
        if entry.get("name") == "slow":
            self.begun.set()
            self.ended_in_time.append(self.may_end.wait(5))
        return False

    def read_typed(self, declaration: Declaration) -> Sequence[AnyTool]:
        raise AssertionError("nothing is of this kind")

    def read_result(self, block: Block, path: str, sealer: Sealer) -> Told:
        raise AssertionError("nothing is of this kind")

    def without_result(self) -> Told:
        raise AssertionError("nothing is of this kind")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("tools", [[NATIVE], []], ids=["a turn", "proxied"])
async def test_others_are_answered_while_a_large_body_is_read(path: str, tools: list[dict[str, Any]]) -> None:
    kind = Slow()
    tools = [{"type": "slow_1", "name": "slow"}, *tools]
    asked = asking(stream=False, tools=tools, messages=[{"role": "user", "content": "q" * MIB}])
    async with (
        ScriptedUpstream(json_answer(message(text("hi")))) as upstream,
        running_gateway(Settings(upstream=upstream.origin), kinds=Kinds([*KINDS, kind])) as gateway,
    ):
        large = asyncio.ensure_future(gateway.client.post(path, json=asked))
        await asyncio.to_thread(kind.begun.wait, 5)
        assert (await gateway.client.get("/health")).status_code == 200
        kind.may_end.set()
        assert (await large).status_code == 200
    assert kind.ended_in_time
    assert all(kind.ended_in_time)


# As much as is not refused, of each make, in a body of 32 MiB.
LARGEST: dict[str, Callable[[], str]] = {
    "one text": lambda: user('{"type":"text","text":"a"}'),
    "blocks": lambda: user(listed('{"type":"text","text":"a"}', 160_000)),
    "strings": lambda: user(listed('"abcdefgh"', 1_900_000)),
    "numbers": lambda: user(listed("1234567", 1_900_000)),
    "calls": lambda: f'{{"role":"assistant","content":[{",".join(CALL % number for number in range(10_000))}]}}',
}


def memory(program: Running, name: str) -> int:
    """Bytes of the process, as Linux calls them: ``VmRSS`` now, ``VmHWM`` at most."""
    status = Path(f"/proc/{program.process.pid}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024


@pytest.mark.parametrize("tools", [TYPED, ""], ids=["a turn", "proxied"])
@pytest.mark.parametrize("shape", LARGEST)
async def test_what_a_large_body_takes(shape: str, tools: str, tmp_path: Path) -> None:
    small = body(LARGEST[shape](), tools)
    asked = small[:-1] + b',"metadata":"' + b"x" * (32 * MIB - len(small) - 14) + b'"}'
    waits = Scripted([asyncio.Event()])
    async with (
        ScriptedUpstream(json_answer(message(text("hi"))), waits) as upstream,
        serving(tmp_path, "--upstream", upstream.origin, "--model-map", "m=n") as (program, client),
    ):
        headers = {"content-type": "application/json"}
        assert (await client.post("/v1/messages", json=asking(stream=False))).status_code == 200
        before = memory(program, "VmRSS")
        large = asyncio.ensure_future(client.post("/v1/messages", content=asked, headers=headers, timeout=30))
        await upstream.arrived(2, within_s=30)
        held, peak = memory(program, "VmRSS") - before, memory(program, "VmHWM") - before
        large.cancel()
    assert (held < 4 * 32 * MIB, peak < 8 * 32 * MIB) == (True, True), (held // MIB, peak // MIB)


async def test_turns_hold_so_much_together() -> None:
    released = asyncio.Event()
    waiting = raw(json_answer(message(text("hi"))).pieces[0], then="keep")
    held = Scripted([released, *waiting.pieces])
    large = asking(stream=False, messages=[{"role": "user", "content": "q" * 100_000}])
    async with (
        ScriptedUpstream(held, json_answer(message(text("hi")))) as upstream,
        running_gateway(Settings(upstream=upstream.origin, max_held_bytes=300_000)) as gateway,
    ):
        first = asyncio.ensure_future(gateway.client.post("/v1/messages", json=large))
        await upstream.arrived(1)
        second = await gateway.client.post("/v1/messages", json=large)
        proxied = await gateway.client.post("/v1/messages", json=large | {"tools": [BASH]})
        released.set()
        assert (await first).status_code == proxied.status_code == 200
        assert (second.status_code, second.json()["error"]["type"]) == (529, "overloaded_error")
        assert "retry-after" in second.headers
        assert (await gateway.client.post("/v1/messages", json=large)).status_code == 200
        assert await gateway.outcomes() == {"ok": 3, "overloaded": 1}


@pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])
async def test_what_a_turn_grows_by_counts(stream: bool) -> None:
    rounds = answering(tool_use("web_search", {"query": "q"}), stream=stream), answering(text("hi"), stream=stream)
    search = ScriptedSearch(default=found("x" * 10_000))
    async with (
        ScriptedUpstream(*rounds) as upstream,
        running_gateway(Settings(upstream=upstream.origin, max_held_bytes=10_000), search=search) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", json=asking(stream=stream))
    if stream:
        assert events_in(answer.content)[-1]["error"]["type"] == "overloaded_error"
    else:
        assert (answer.status_code, answer.json()["error"]["type"]) == (529, "overloaded_error")
    assert len(upstream.requests) == 1
