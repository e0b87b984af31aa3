"""Deferred tools with a real vLLM: the tokens before a reference are the same when it comes.

A client's conversation, with a tool search of its own and with a tool that is added in its midst, goes through the
gateway; what vLLM was asked is rendered by vLLM itself (`/v1/messages/render`, `--enable-scale-out`) into token ids.
"""

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import httpx

from e2e.vllm_checks import Check

FINDER: dict[str, Any] = {
    "name": "ToolSearch",
    "description": "Finds tools.",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
STUB = {"name": "DeferredToolPlaceholder", "input_schema": {"type": "object"}, "defer_loading": True}
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather of a place, now and for the days to come.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "defer_loading": True,
}
QUESTION: dict[str, Any] = {"role": "user", "content": "What is the weather in Oslo?"}
FOUND: list[dict[str, Any]] = [
    {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": {}}]},
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "toolu_1",
                "content": [{"type": "tool_reference", "tool_name": "get_weather"}],
            }
        ],
    },
]
ADDED: list[dict[str, Any]] = [
    {"role": "assistant", "content": "I cannot tell."},
    {"role": "user", "content": "And now?"},
    {
        "role": "system",
        "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "get_weather"}}],
    },
]
CALLED: list[dict[str, Any]] = [
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_2", "name": "get_weather", "input": {"city": "Oslo"}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_2", "content": "Rain."}]},
]
CONVERSATIONS = {"a client's tool search": FOUND, "a tool that is added": ADDED}


async def converse(origin: str, model: str, discovery: Sequence[dict[str, Any]]) -> None:
    """A client's three requests: the question, what made the tool known, and what it said.

    Raises :class:`httpx.HTTPStatusError` where one is refused.
    """
    steps = [([FINDER, STUB], [QUESTION])]
    steps.append(([FINDER, WEATHER, STUB], [QUESTION, *discovery]))
    steps.append(([FINDER, WEATHER, STUB], [QUESTION, *discovery, *CALLED]))
    async with httpx.AsyncClient(base_url=origin, timeout=60) as client:
        for tools, messages in steps:
            body = {"model": model, "max_tokens": 1, "tools": tools, "messages": messages}
            (await client.post("/v1/messages", json=body)).raise_for_status()


async def prefixes(upstream: str, bodies: Sequence[dict[str, Any]]) -> AsyncIterator[Check]:
    """Each prompt that vLLM made of `bodies` begins with the whole of the one before it."""
    async with httpx.AsyncClient(base_url=upstream, timeout=60) as client:
        prompts = []
        for body in bodies:
            rendered = (await client.post("/v1/messages/render", json=body)).raise_for_status().json()
            prompts.append(rendered["token_ids"])
    for number, (earlier, later) in enumerate(pairwise(prompts), 1):
        same = next((place for place, pair in enumerate(zip(earlier, later, strict=False)) if pair[0] != pair[1]), None)
        kept = len(earlier) if same is None else same
        what = f"tokens of prompt {number} that prompt {number + 1} of {len(later)} tokens begins with"
        yield Check(what, f"{kept} of {len(earlier)}", kept == len(earlier) < len(later))
