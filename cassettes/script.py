"""What is recorded, as data: conversations.yaml, for the script that records and for the tests that replay."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gateway.tools.web_search.text import clean, render
from gateway.turn.web_search import FUNCTION, WEB_SEARCH, SearchOutcome, SearchResult

HERE = Path(__file__).parent
RESULT_MAX_CHARS = 20_000


@cache
def _read() -> dict[str, Any]:
    script: dict[str, Any] = yaml.safe_load((HERE / "conversations.yaml").read_text(encoding="utf-8"))
    return script


@dataclass(frozen=True, slots=True)
class Scripted:
    """One conversation: what is asked, with which flags of the recorder's, what its tools find, and how it goes.

    ``calls`` names the tools called in each round, ``status`` is upstream's.
    """

    name: str
    shows: str
    prompt: str
    model: str
    max_tokens: int
    tools: list[dict[str, Any]] | None
    flags: dict[str, str]
    found: SearchOutcome
    command_output: str
    calls: list[list[str]]
    status: int
    thinking_parsed: bool

    @property
    def is_error(self) -> bool:
        """Whether upstream refuses it."""
        return self.status != 200

    def cassette(self, *, stream: bool) -> Path:
        """Where it is, or will be, recorded."""
        return HERE / "messages" / f"messages-{self.name}-{'streaming' if stream else 'nonstreaming'}.yaml"


def conversations() -> list[Scripted]:
    """All of them, in the file's order."""
    script = _read()
    return [_scripted(script, entry) for entry in script["conversations"]]


def _scripted(script: dict[str, Any], entry: dict[str, Any]) -> Scripted:
    results = [clean(SearchResult(**result)) for topic in entry.get("finds", []) for result in script["results"][topic]]
    text, shown = render(results, RESULT_MAX_CHARS)
    return Scripted(
        name=entry["name"],
        shows=entry["shows"],
        prompt=entry["prompt"],
        model=entry.get("model", script["model"]),
        max_tokens=entry.get("max_tokens", 1024),
        tools=[_tool(script, name) for name in entry["tools"]] if "tools" in entry else None,
        flags={name: str(entry[name]) for name in ("tool_choice", "thinking") if name in entry},
        found=SearchOutcome(text, shown),
        command_output=script["command_output"],
        calls=entry.get("calls", []),
        status=entry.get("status", 200),
        thinking_parsed=entry.get("reasoning_parser", True),
    )


def _tool(script: dict[str, Any], name: str) -> dict[str, Any]:
    tool: dict[str, Any] = FUNCTION if name == WEB_SEARCH else script["tools"][name]
    return tool
