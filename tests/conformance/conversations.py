"""Turns of every kind a client can meet, for the SDK to judge."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from gateway.turn import TurnRules
from gateway.turn.web_search import ERROR_SENTENCES, SearchOutcome
from tests.support.playbook import BASH, NATIVE, SEALER, SEARCH, Round, found
from tests.support.upstream import Block, text, thinking, tool_use

RUST = tool_use("web_search", {"query": "rust"}, id="chatcmpl-tool-1")
GO = tool_use("web_search", {"query": "go"}, id="chatcmpl-tool-2")
ZIG = tool_use("web_search", {"query": "zig"}, id="chatcmpl-tool-3")
LS = tool_use("Bash", {"command": "ls"}, id="chatcmpl-tool-4")
HM = thinking("Hm.")
DONE: list[Block] = [HM, text("\n\nThere it is.")]


@dataclass(frozen=True)
class Conversation:
    """A request's tools, what upstream says, what searches give."""

    rounds: list[list[Block] | Round]
    tools: list[dict[str, Any]] = field(default_factory=lambda: [NATIVE, BASH])
    outcomes: Callable[[str], SearchOutcome] = found
    max_rounds: int = 10

    @property
    def rules(self) -> TurnRules:
        return TurnRules(SEALER, max_rounds=self.max_rounds)


def failing(code: Any) -> Callable[[str], SearchOutcome]:
    return lambda query: SearchOutcome("It failed.", error=code)


CONVERSATIONS: dict[str, Conversation] = {
    "one search": Conversation([[HM, text("\n\n"), RUST], DONE]),
    "three in one round": Conversation([[text("Looking."), RUST, GO, ZIG], DONE]),
    "three rounds": Conversation([[RUST], [text("And."), GO], [ZIG], DONE]),
    "a mixed round": Conversation([[HM, RUST, LS, GO]]),
    "a client call only": Conversation([[HM, LS]]),
    "pause_turn": Conversation([[RUST], [GO]], max_rounds=2),
    "no results": Conversation([[RUST], DONE], outcomes=lambda query: SearchOutcome("Nothing.")),
    "uses spent": Conversation([[RUST, GO], DONE], tools=[{**NATIVE, "max_uses": 1}]),
    "bad arguments": Conversation([[tool_use("web_search", {"q": 1})], DONE]),
    "cut inside a call": Conversation([Round([HM, RUST], stop_reason="max_tokens")]),
    "no search": Conversation([DONE]),
    "think text": Conversation([[text("<think>\nHm.\n</think>\n\nLook."), RUST], [text("<think>It is")]]),
    "hidden": Conversation([[HM, RUST], DONE], tools=[SEARCH]),
    "hidden, mixed": Conversation([[HM, RUST, LS]], tools=[SEARCH, BASH]),
    "hidden, nothing visible": Conversation([Round([RUST], stop_reason="max_tokens")], tools=[SEARCH]),
    "hidden, round cap": Conversation([[RUST], [text("So."), GO]], tools=[SEARCH], max_rounds=2),
} | {f"error {code}": Conversation([[RUST], DONE], outcomes=failing(code)) for code in ERROR_SENTENCES}
