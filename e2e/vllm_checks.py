"""What must hold between the `anthropic` SDK, the gateway and a real vLLM: one function a subject.

Model answers are judged to the letter only of the tiny model, which answers every time the same (`Stage.exact`).
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from time import perf_counter
from typing import Any

import httpx
from anthropic import AsyncAnthropic, NotFoundError
from anthropic.types.beta import BetaMessage

from e2e.vllm_web import RELEASES, ReleaseSearxng

FUNCTION: dict[str, Any] = {
    "name": "web_search",
    "description": "Search the web.",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
TYPED: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
BASH: dict[str, Any] = {
    "name": "Bash",
    "description": "Run a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}
COUNT: dict[str, Any] = {
    "name": "Count",
    "description": "Counts.",
    "input_schema": {
        "type": "object",
        "properties": {"numbers": {"type": "array", "items": {"type": "integer"}, "minItems": 1000}},
        "required": ["numbers"],
    },
}
"""Forced, it keeps any model busy for as long as `max_tokens` lets it: its schema asks for a thousand numbers."""

ONE = "What is the latest stable Rust release?"
BOTH = "Compare the latest stable releases of Go and Redis."
IN_TURN = "Find the latest Rust release, then the latest Go release."
MIXED = "Find the latest Rust release and run ls."
CONVERSATION = (ONE, "Are you sure?", BOTH, "Find the latest Python release, then the latest Django release.", "hello")

RELEASE_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Check:
    """What was looked at, what it was, and whether that is right."""

    what: str
    seen: object
    right: bool


@dataclass
class Stage:
    """Who is on: the SDK pointed at the gateway, the web behind it, and the upstream's own origin for its metrics."""

    client: AsyncAnthropic
    model: str
    web: ReleaseSearxng
    upstream: str
    exact: bool

    async def ask(self, messages: str | list[Any], *tools: dict[str, Any], stream: bool, **more: Any) -> BetaMessage:
        """One turn by the SDK, in either transport."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        request: dict[str, Any] = {"model": self.model, "max_tokens": 1024, "messages": messages, **more}
        if tools:
            request["tools"] = list(tools)
        if self.exact:
            request["extra_body"] = {"temperature": 0}
        if not stream:
            message: BetaMessage = await self.client.beta.messages.create(**request)
            return message
        async with self.client.beta.messages.stream(**request) as events:
            return await events.get_final_message()

    async def metric(self, name: str) -> float | None:
        """The sum of one of vLLM's own metrics; None where upstream has no such metric."""
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"{self.upstream}/metrics")).text
        values = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
        return sum(float(value) for value in values) if values else None


@dataclass(frozen=True)
class Scenario:
    """One turn, what its answer must say, and what must be in it; `requests` None where nothing native is declared."""

    name: str
    prompt: str
    tools: tuple[dict[str, Any], ...]
    says: tuple[str, ...]
    blocks: tuple[str, ...]
    searches: int
    requests: int | None = None
    stop_reason: str = "end_turn"


PAIR = ("server_tool_use", "web_search_tool_result")
PAIRS = ("server_tool_use", "server_tool_use", "web_search_tool_result", "web_search_tool_result")
RUST, GO, REDIS = RELEASES["Rust"], RELEASES["Go"], RELEASES["Redis"]

SCENARIOS = (
    Scenario("hidden, one search", ONE, (FUNCTION,), (RUST,), ("text",), 1),
    Scenario("hidden, two in one round", BOTH, (FUNCTION,), (GO, REDIS), ("text",), 2),
    Scenario("hidden, one after the other", IN_TURN, (FUNCTION,), (RUST, GO), ("text", "text"), 2),
    Scenario("native, one search", ONE, (TYPED,), (RUST,), (*PAIR, "text"), 1, 1),
    Scenario("native, two in one round", BOTH, (TYPED,), (GO, REDIS), (*PAIRS, "text"), 2, 2),
    Scenario("native, one after the other", IN_TURN, (TYPED,), (RUST, GO), ("text", *PAIR, *PAIR, "text"), 2, 2),
    Scenario("a client's tool beside ours", "Run ls.", (FUNCTION, BASH), (), ("tool_use",), 0, stop_reason="tool_use"),
    Scenario("no tool of ours", "hello", (), (), ("text",), 0),
)


async def loop(stage: Stage, scenario: Scenario) -> AsyncIterator[Check]:
    """One scenario in both transports, which must give one and the same message."""
    contents = {}
    for transport, stream in (("json", False), ("sse ", True)):
        stage.web.queries.clear()
        message = await stage.ask(scenario.prompt, *scenario.tools, stream=stream)
        contents[stream] = _comparable(message)
        for check in _checks(stage, scenario, message):
            yield Check(f"{transport} {check.what}", check.seen, check.right)
    if stage.exact:
        same = contents[False] == contents[True]
        yield Check("the same message in both", "yes" if same else contents, same)


def _checks(stage: Stage, scenario: Scenario, message: BetaMessage) -> Iterator[Check]:
    said = text_of(message)
    yield Check("answer", said, all(words in said for words in scenario.says))
    yield Check("stop_reason", message.stop_reason, message.stop_reason == scenario.stop_reason)
    blocks = tuple(block.type for block in message.content if block.type != "thinking")
    right = blocks == scenario.blocks if stage.exact else set(scenario.blocks) <= set(blocks)
    yield Check("blocks", " ".join(blocks), right)
    searches = stage.web.queries
    yield Check("searches", searches, len(searches) == scenario.searches or (not stage.exact and bool(searches)))
    if scenario.requests is not None:
        counted = message.usage.server_tool_use.web_search_requests if message.usage.server_tool_use else 0
        yield Check("web_search_requests", counted, counted == len(searches))


def text_of(message: BetaMessage) -> str:
    """What the message says, without its thoughts."""
    return " ".join(block.text.strip() for block in message.content if block.type == "text")


def _comparable(message: BetaMessage) -> list[Any]:
    """The content without what no two runs share: ids, signatures, sealed results."""
    varying = {"id", "tool_use_id", "signature", "encrypted_content"}

    def bare(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: bare(item) for key, item in value.items() if key not in varying}
        return [bare(item) for item in value] if isinstance(value, list) else value

    return [bare(block.model_dump(exclude_none=True)) for block in message.content]


async def mixed(stage: Stage, *, stream: bool) -> AsyncIterator[Check]:
    """A search of ours and a call of the client's in one round: the client answers its own, and the turn goes on."""
    stage.web.queries.clear()
    first = await stage.ask(MIXED, TYPED, BASH, stream=stream)
    blocks = [block.type for block in first.content if block.type != "thinking"]
    yield Check("first answer", " ".join(blocks), blocks == ["server_tool_use", "tool_use", "web_search_tool_result"])
    yield Check("stop_reason", first.stop_reason, first.stop_reason == "tool_use")
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "notes.txt"}
        for block in first.content
        if block.type == "tool_use"
    ]
    messages = [
        {"role": "user", "content": MIXED},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": results},
    ]
    second = await stage.ask(messages, TYPED, BASH, stream=stream)
    said = text_of(second)
    yield Check("second answer", said, RUST in said and "notes.txt" in said)
    yield Check("searches", stage.web.queries, len(stage.web.queries) == 1)


async def counting(stage: Stage) -> AsyncIterator[Check]:
    """count_tokens of a typed tool, and of a history with server blocks, is what vLLM then says it read."""
    question: list[Any] = [{"role": "user", "content": ONE}]
    tools: list[Any] = [TYPED]
    answer = await stage.ask(question, TYPED, stream=False)
    for what, messages in (
        ("a typed tool", question),
        ("server blocks", [*question, {"role": "assistant", "content": answer.content}, *question]),
    ):
        counted = await stage.client.beta.messages.count_tokens(model=stage.model, messages=messages, tools=tools)
        asked = await stage.ask(messages, TYPED, stream=False)
        first = (asked.usage.iterations or [])[0].model_dump()
        read = first["input_tokens"] + first["cache_read_input_tokens"] + first["cache_creation_input_tokens"]
        yield Check(f"{what}: counted, read", (counted.input_tokens, read), counted.input_tokens == read)


async def errors(stage: Stage) -> AsyncIterator[Check]:
    """What upstream refuses reaches the client as upstream said it, through the loop too."""
    for name, tools in (("proxy", ()), ("loop", (TYPED,))):
        nobody = replace(stage, model="no-such-model")
        try:
            await nobody.ask(ONE, *tools, stream=True)
        except NotFoundError as error:
            yield Check(f"{name}: unknown model", error.message, "no-such-model" in error.message)
        else:
            yield Check(f"{name}: unknown model", "no error", False)


async def leaving(stage: Stage, tools: tuple[dict[str, Any], ...], *, stream: bool) -> AsyncIterator[Check]:
    """The client goes in the middle of a generation: vLLM stops at once."""
    metric = "vllm:num_requests_running"
    before = await stage.metric(metric)
    if before is None:
        yield Check(metric, "upstream has no such metric", False)
        return
    asking = asyncio.create_task(_long_answer(stage, tools, stream))
    running = await _until(stage, metric, lambda value: value > before)
    asking.cancel()
    left = perf_counter()
    await asyncio.wait([asking])
    released = await _until(stage, metric, lambda value: value <= before)
    seen = f"{running} running, {released} after {perf_counter() - left:.2f} s"
    yield Check(metric, seen, asking.cancelled() and running > before and released <= before)


async def _long_answer(stage: Stage, tools: tuple[dict[str, Any], ...], stream: bool) -> None:
    request: dict[str, Any] = {
        "model": stage.model,
        "max_tokens": 3000,
        "messages": [{"role": "user", "content": "Count."}],
        "tools": [*tools, COUNT],
        "tool_choice": {"type": "tool", "name": "Count"},
    }
    if stream:
        # Read as raw events: the numbers of a model that cannot count need not add up to an `input`.
        async for _ in await stage.client.messages.create(**request, stream=True):
            pass
    else:
        await stage.client.messages.create(**request)


async def _until(stage: Stage, metric: str, holds: Any) -> float:
    deadline = perf_counter() + RELEASE_TIMEOUT_S
    while True:
        value = await stage.metric(metric) or 0.0
        if holds(value) or perf_counter() > deadline:
            return value
        await asyncio.sleep(0.05)


async def conversation(stage: Stage, *, stream: bool) -> AsyncIterator[Check]:
    """Five turns, each answer sent back as it was received; yields what each answered and what vLLM's cache made of it.

    The caller sees to it that what upstream was sent is recorded, and checks it with :func:`history`.
    """
    names = ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total")
    before = [await stage.metric(name) for name in names]
    messages: list[Any] = []
    for turn, prompt in enumerate(CONVERSATION, 1):
        messages.append({"role": "user", "content": prompt})
        answer = await stage.ask(messages, TYPED, stream=stream)
        messages.append({"role": "assistant", "content": answer.content})
        yield Check(f"turn {turn}", text_of(answer), answer.stop_reason == "end_turn")
    after = [await stage.metric(name) for name in names]
    if None in before or None in after:
        yield Check("prefix cache", "upstream has no prefix cache metrics", False)
        return
    asked, hit = (
        late - early for early, late in zip(before, after, strict=True) if late is not None and early is not None
    )
    yield Check("prefix cache", f"{hit:.0f} of {asked:.0f} prompt tokens were cached", hit > asked / 2)


def history(bodies: list[dict[str, Any]]) -> Iterator[Check]:
    """Every request upstream got goes on from the one before it, word for word."""
    for number, (earlier, later) in enumerate(pairwise(bodies), 1):
        kept = [_exact(message) for message in later["messages"][: len(earlier["messages"])]]
        if kept != [_exact(message) for message in earlier["messages"]]:
            yield Check("history", f"request {number + 1} does not go on from request {number}", False)
            return
    yield Check("history", f"{len(bodies)} requests, each goes on from the one before", len(bodies) > len(CONVERSATION))


def _exact(message: dict[str, Any]) -> str:
    """The message as JSON in one order of keys, but inside a call's `input`, whose own order the model reads."""

    def ordered(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: item if key == "input" else ordered(item) for key, item in sorted(value.items())}
        return [ordered(item) for item in value] if isinstance(value, list) else value

    return json.dumps(ordered(message))
