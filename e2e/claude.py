"""The real Claude Code, through the gateway, against a scripted upstream: `make e2e-claude`.

Every scenario runs on loopback alone: Claude Code, installed by npm, in a clean home; the gateway as its users start
it; an upstream that refuses what vLLM refuses; a search backend with one canned answer. Each is run with an older
Claude Code and a newer one; `--newest` takes the one that npm has today. Exit status 1 when a check fails.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable

from rich.console import Console

from e2e import claude_scenarios as scenarios
from e2e.claude_code import NEWER, OLDER, install, newest
from e2e.claude_scenarios import Check
from e2e.processes import Failure

Scenario = Callable[[str], AsyncIterator[Check]]

SCENARIOS: dict[str, Scenario] = {
    "no configuration: Claude Code's own WebSearch": scenarios.native,
    "an alias gives WebSearch to the gateway": scenarios.alias,
    "Claude Code's default model names": scenarios.default_names,
    "a follow-up in the same session": scenarios.follow_up,
    "/compact": scenarios.compact,
    "a sub-agent": scenarios.agent,
    "a tool of an MCP server": scenarios.mcp,
    "WebFetch": scenarios.fetch,
    "messages-gateway claude": scenarios.helper,
    "a wrong key": scenarios.wrong_key,
}
SDK_SCENARIOS: dict[str, Scenario] = {"the Agent SDK": scenarios.agent_sdk}
"""What only the newer version can do."""


async def main(options: argparse.Namespace) -> int:
    """Run every scenario and print the report; returns the exit status."""
    console = Console(highlight=False, soft_wrap=True)
    versions = [newest()] if options.newest else options.version or [OLDER, NEWER]
    failed = passed = 0
    for version in versions:
        install(version)
        for name, scenario in {**SCENARIOS, **({} if version == OLDER else SDK_SCENARIOS)}.items():
            if options.only not in name:
                continue
            console.print(f"\n[bold]Claude Code {version}: {name}[/bold]")
            async for check in scenario(version):
                failed += not check.right
                passed += check.right
                console.print(
                    "  [green]ok  [/green]" if check.right else "  [red]FAIL[/red]", f"{check.what}: ", end=""
                )
                console.print(str(check.seen), markup=False)
    console.print(f"\n{failed} checks failed" if failed else f"\nall {passed} checks passed")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="e2e-claude", description=__doc__.partition("\n\n")[0] if __doc__ else None)
    parser.add_argument("--version", action="append", help=f"a version of Claude Code; default: {OLDER} and {NEWER}")
    parser.add_argument("--newest", action="store_true", help="the version that npm has today")
    parser.add_argument("--only", metavar="WORDS", default="", help="the scenarios whose names have these words")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(_options())))
    except Failure as failure:
        sys.exit(f"e2e-claude: {failure}")
