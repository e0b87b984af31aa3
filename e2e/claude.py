"""The real Claude Code, through the gateway, against a scripted upstream: `make e2e-claude`.

Every scenario asks the same question, needs a web search to answer it, and runs on loopback alone: Claude Code,
installed by npm, in a clean home; the gateway as its users start it; an upstream that refuses what vLLM refuses; a
search backend with one canned answer. Exit status 1 when a check fails.
"""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from e2e.processes import Failure, ask_claude_code, gateway, install_claude_code, serving
from e2e.scripted_vllm import ScriptedVllm
from e2e.searxng import LINKS, VERSION, CannedSearxng

CLAUDE_CODE_VERSION = "2.1.197"
PROMPT = "What is the latest stable Rust release? Use web search."
MODEL = "qwen3"
WINDOW = 40_960


@dataclass(frozen=True)
class Scenario:
    """One way to run Claude Code through the gateway, and what must come of it.

    `model` None leaves Claude Code its own default names. `native` says who runs the search: Claude Code's own
    WebSearch, which asks for Anthropic's server tool in a request of its own, or the gateway within the one request.
    """

    name: str
    flags: tuple[str, ...]
    model: str | None
    native: bool


SCENARIOS = (
    Scenario("an alias gives WebSearch to the gateway", ("--tool-alias", "WebSearch=web_search"), MODEL, native=False),
    Scenario("no configuration: Claude Code's own WebSearch", (), MODEL, native=True),
    Scenario(
        "Claude Code's default model names",
        ("--model-map", f"claude-*={MODEL}", "--max-tokens-cap", "auto"),
        None,
        native=True,
    ),
)


@dataclass(frozen=True)
class Check:
    """What was looked at, what it was, and whether that is right."""

    what: str
    seen: object
    right: bool


async def run(scenario: Scenario, executable: Path) -> list[Check]:
    """Run one scenario from start to stop."""
    upstream = ScriptedVllm(model=MODEL, max_model_len=WINDOW)
    search = CannedSearxng()
    async with serving(upstream.app) as upstream_origin, serving(search.app) as search_origin:
        backend = ("--search-provider", "searxng", "--search-base-url", search_origin)
        async with gateway("--upstream", upstream_origin, *backend, *scenario.flags) as origin:
            result = await ask_claude_code(executable, origin, PROMPT, model=scenario.model)
    return list(checks(scenario, result, upstream, search))


def checks(
    scenario: Scenario, result: dict[str, Any], upstream: ScriptedVllm, search: CannedSearxng
) -> Iterator[Check]:
    """What Claude Code printed, and what the servers behind the gateway saw."""
    turns = 2 if scenario.native else 1
    answer = result.get("result")
    yield Check("is_error", result.get("is_error"), result.get("is_error") is False)
    yield Check("num_turns", result.get("num_turns"), result.get("num_turns") == turns)
    yield Check("answer", answer, isinstance(answer, str) and VERSION in answer)
    yield Check("searches run", search.queries, len(search.queries) == 1)
    yield Check("refused by upstream", upstream.refusals or "nothing", not upstream.refusals)
    if scenario.native:
        counted = sum(usage.get("webSearchRequests", 0) for usage in result.get("modelUsage", {}).values())
        yield Check("web_search_requests counted by Claude Code", counted, counted == 1)
        outer = [text for text in upstream.tool_results() if "Links:" in text]
        shown = [link for link in LINKS if any(link in text for text in outer)]
        yield Check("links in the outer tool result", shown, shown == list(LINKS))


async def main() -> int:
    """Run every scenario and print the report; returns the exit status."""
    console = Console(highlight=False, soft_wrap=True)
    executable = install_claude_code(CLAUDE_CODE_VERSION)
    failed = 0
    for scenario in SCENARIOS:
        console.print(f"\n[bold]{scenario.name}[/bold]")
        console.print(f"  gateway {' '.join(scenario.flags) or '(no flags)'}", style="dim")
        for check in await run(scenario, executable):
            failed += not check.right
            mark = "[green]ok  [/green]" if check.right else "[red]FAIL[/red]"
            console.print(f"  {mark} {check.what}: ", end="")
            console.print(str(check.seen), markup=False)
    console.print(f"\n{failed} checks failed" if failed else f"\nall {len(SCENARIOS)} scenarios passed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except Failure as failure:
        sys.exit(f"e2e-claude: {failure}")
