"""What Claude Code does through the gateway: one function a subject, each a session of its own from start to end.

The question takes a version number to answer, which a web search, a page, a tool or an agent has to bring.
"""

import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from e2e.claude_code import ClaudeCode, defers, install, install_agent_sdk, read_result
from e2e.processes import gateway, serving
from e2e.scripted_model import CHARS_A_TOKEN, Call, text_of
from e2e.scripted_vllm import ScriptedVllm
from e2e.searxng import LINKS, VERSION, CannedSearxng
from e2e.web_page import HOST, URL, CannedWeb

MODEL = "qwen3"
WINDOW = 40_960
QUESTION = "What is the latest stable Rust release? Use web search."
QUERY = {"query": "latest stable Rust release"}
AGENT = {"description": "Find a release", "prompt": QUESTION, "subagent_type": "general-purpose"}
SCRIPT = {
    "Perform a web search": (Call("web_search", QUERY),),
    "Use web search": (Call("WebSearch", QUERY),),
    "Ask an agent": (Call("Agent", AGENT),),
    "Ask the clock": (Call("mcp__clock__now", {"zone": "UTC"}),),
    "Read the page": (Call("WebFetch", {"url": URL, "prompt": "Which version is the latest?"}),),
    "Are you sure": (),
}
CLOCK = {"mcpServers": {"clock": {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_clock.py"))]}}}
WRONG_KEY_MS = 20_000
"""Told not to, Claude Code does not ask again; without that word it takes three minutes."""
TOOLS = ("WebSearch", "WebFetch", "Agent", "mcp__clock__now")
ALIAS = ("--tool-alias", "WebSearch=web_search")


@dataclass(frozen=True)
class Check:
    """What was looked at, what it was, and whether that is right."""

    what: str
    seen: object
    right: bool


@dataclass(frozen=True)
class Session:
    """Claude Code, and the servers behind the gateway."""

    claude: ClaudeCode
    upstream: ScriptedVllm
    search: CannedSearxng

    @property
    def finds(self) -> int:
        """Turns that finding a tool takes: one, where Claude Code hides it."""
        return 1 if defers(self.claude.version) else 0

    async def ask(self, prompt: str, *options: str) -> dict[str, Any]:
        """One run of it; nothing it may do is asked about."""
        return await self.claude.ask(prompt, *options, "--allowedTools", ",".join(TOOLS))

    def answered(self, result: Mapping[str, Any], turns: int | None) -> Iterator[Check]:
        """What holds of every answer that names the version, after so many turns of Claude Code's (None: any)."""
        answer = result.get("result")
        yield Check("is_error", result.get("is_error"), result.get("is_error") is False)
        yield Check("num_turns", result.get("num_turns"), turns is None or result.get("num_turns") == turns)
        yield Check("answer", answer, isinstance(answer, str) and VERSION in answer)
        yield from self.upstream_saw()

    def upstream_saw(self) -> Iterator[Check]:
        """What holds of every session: nothing refused, and nothing of tool references left for a model to read."""
        yield Check("refused by upstream", self.upstream.refusals or "nothing", not self.upstream.refusals)
        bodies = json.dumps(self.upstream.requests)
        left = [word for word in ("tool_reference", "defer_loading", "DeferredToolPlaceholder") if word in bodies]
        yield Check("left of tool references", left or "nothing", not left)
        yield Check("sets of tools in a conversation's prompts", self.heads(), self.heads() == 1)
        yield Check("cost", self.cost(), True)

    def heads(self) -> int:
        """The most sets of tools that one conversation, known by its first message, had in its prompts."""
        heads: dict[str, set[str]] = {}
        for body in self.upstream.requests:
            conversation = text_of(body["messages"][0]["content"])
            heads.setdefault(conversation, set()).add(json.dumps(body.get("tools")))
        return max(len(tools) for tools in heads.values())

    def cost(self) -> str:
        """Requests to upstream, tokens of their prompts, and how many of those no earlier prompt began with."""
        prompts = self.upstream.prompts
        chars = sum(len(prompt) for prompt in prompts)
        fresh = chars - sum(self.upstream.cached)
        return f"{len(prompts)} requests, {chars // CHARS_A_TOKEN} tokens, {fresh // CHARS_A_TOKEN} of them new"


@asynccontextmanager
async def session(
    version: str,
    *flags: str,
    model: str | None = MODEL,
    proxy: CannedWeb | None = None,
    proxy_url: str = "",
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Session]:
    """A gateway started with `flags` and `environment`, between a fresh Claude Code and a fresh upstream."""
    upstream = ScriptedVllm(model=MODEL, max_model_len=WINDOW, script=SCRIPT)
    search = CannedSearxng()
    variables: dict[str, str] = {}
    settings: dict[str, Any] = {}
    if proxy is not None:
        certificate = str(proxy.certificate)
        variables = {"HTTPS_PROXY": proxy_url, "NO_PROXY": "127.0.0.1", "NODE_EXTRA_CA_CERTS": certificate}
        settings = {"skipWebFetchPreflight": True}
    with tempfile.TemporaryDirectory() as folder:
        async with serving(upstream.app) as upstream_origin, serving(search.app) as search_origin:
            backend = ("--search-provider", "searxng", "--search-base-url", search_origin)
            async with gateway("--upstream", upstream_origin, *backend, *flags, environment=environment) as origin:
                claude = ClaudeCode(version, origin, Path(folder), model, variables, settings)
                yield Session(claude, upstream, search)


def searched(result: Mapping[str, Any], here: Session, times: int = 1) -> Iterator[Check]:
    """Claude Code ran the search: it counted it, and it shows its links to the model.

    Of `times` searches of one session the older counts those of its last run only.
    """
    yield Check("searches run", here.search.queries, len(here.search.queries) == times)
    counted = sum(usage.get("webSearchRequests", 0) for usage in (result.get("modelUsage") or {}).values())
    times = times if defers(here.claude.version) else 1
    yield Check("web_search_requests counted by Claude Code", counted, counted == times)
    outer = [text for text in here.upstream.tool_results() if "Links:" in text]
    shown = [link for link in LINKS if any(link in text for text in outer)]
    yield Check("links in the outer tool result", shown, shown == list(LINKS))


async def native(version: str) -> AsyncIterator[Check]:
    """Claude Code's own WebSearch, which asks for Anthropic's server tool in a request of its own."""
    async with session(version) as here:
        result = await here.ask(QUESTION)
        for check in [*here.answered(result, 2 + here.finds), *searched(result, here)]:
            yield check


async def alias(version: str) -> AsyncIterator[Check]:
    """An alias gives WebSearch to the gateway, within the one request."""
    async with session(version, *ALIAS) as here:
        result = await here.ask(QUESTION)
        for check in here.answered(result, 1 + here.finds):
            yield check
        yield Check("searches run", here.search.queries, len(here.search.queries) == 1)


async def default_names(version: str) -> AsyncIterator[Check]:
    """The names and token numbers that Claude Code comes with."""
    async with session(version, "--model-map", f"claude-*={MODEL}", "--max-tokens-cap", "auto", model=None) as here:
        result = await here.ask(QUESTION)
        for check in [*here.answered(result, 2 + here.finds), *searched(result, here)]:
            yield check


async def follow_up(version: str) -> AsyncIterator[Check]:
    """`--continue`: the session goes on, with what it has found; a tool that is known is not looked for again."""
    async with session(version) as here:
        await here.ask(QUESTION)
        for check in here.answered(await here.ask("Are you sure?", "--continue"), 1):
            yield check
        again = await here.ask(QUESTION, "--continue")
        for check in [*here.answered(again, 2), *searched(again, here, 2)]:
            yield check


async def compact(version: str) -> AsyncIterator[Check]:
    """`/compact` puts a summary in place of the conversation, and the session goes on from there."""
    async with session(version) as here:
        await here.ask(QUESTION)
        await here.ask("/compact", "--continue")
        for check in here.answered(await here.ask("Are you sure?", "--continue"), 1):
            yield check
        last = json.dumps(here.upstream.requests[-1]["messages"])
        yield Check("the calls are gone from the prompt", "tool_use" not in last, '"tool_use"' not in last)


async def agent(version: str) -> AsyncIterator[Check]:
    """A sub-agent searches, with the tools that it finds for itself; the newer does not wait for it within a turn."""
    async with session(version) as here:
        result = await here.ask("Ask an agent.")
        for check in here.answered(result, None):
            yield check
        yield Check("searches run", here.search.queries, len(here.search.queries) == 1)


async def mcp(version: str) -> AsyncIterator[Check]:
    """A tool of an MCP server that Claude Code runs."""
    async with session(version) as here:
        result = await here.ask("Ask the clock.", "--mcp-config", json.dumps(CLOCK), "--strict-mcp-config")
        for check in here.answered(result, 2 + here.finds):
            yield check


async def fetch(version: str) -> AsyncIterator[Check]:
    """WebFetch, which Claude Code runs itself; with `skipWebFetchPreflight` it asks nobody about the host."""
    with tempfile.TemporaryDirectory() as folder:
        web = CannedWeb(Path(folder))
        async with web.serving() as proxy_url, session(version, proxy=web, proxy_url=proxy_url) as here:
            result = await here.ask("Read the page.")
            for check in here.answered(result, 2 + here.finds):
                yield check
            yield Check("hosts asked", web.hosts, web.hosts == [HOST])


async def helper(version: str) -> AsyncIterator[Check]:
    """`messages-gateway claude` starts the gateway and sets what suits the model, tool search and its window."""
    program = str(Path(sys.executable).with_name("messages-gateway"))
    executable = install(version)
    async with session(version) as here, serving(here.search.app) as search, serving(here.upstream.app) as upstream:
        flags = ("--port", "0", "--upstream", upstream, "--search-provider", "searxng", "--search-base-url", search)
        asked = ("-p", QUESTION, "--output-format", "json", "--allowedTools", "WebSearch")
        path = f"{executable.parent}:{os.environ['PATH']}"
        claude = replace(here.claude, environment={"PATH": path})
        result = read_result(await claude.run(program, "claude", *flags, "--", *asked))
        for check in [*here.answered(result, 3), *searched(result, here)]:
            yield check
        windows = {usage.get("contextWindow") for usage in result["modelUsage"].values()}
        yield Check("the window that Claude Code counts with", windows, windows == {WINDOW})


async def wrong_key(version: str) -> AsyncIterator[Check]:
    """A key that the gateway does not know is told at once: Claude Code does not ask again and again."""
    async with session(version, environment={"GATEWAY_API_KEYS": "another-key"}) as here:
        result = await here.ask(QUESTION)
        yield Check("is_error", result.get("is_error"), result.get("is_error") is True)
        waited = result.get("duration_ms")
        yield Check("milliseconds", waited, isinstance(waited, int) and waited < WRONG_KEY_MS)
        yield Check("requests to upstream", len(here.upstream.requests), not here.upstream.requests)


async def agent_sdk(version: str) -> AsyncIterator[Check]:
    """The Claude Agent SDK, which runs the same program."""
    program = Path(__file__).with_name("agent_sdk_program.py")
    async with session(version) as here:
        interpreter, executable = str(install_agent_sdk()), str(install(version))
        output = await here.claude.run(interpreter, str(program), executable, QUESTION, *TOOLS)
        result = read_result(output)
        for check in [*here.answered(result, 2 + here.finds), *searched(result, here)]:
            yield check
