"""What a message says of the tokens it took."""

from typing import Any

from tests.support.playbook import NATIVE, SEARCH, Playbook, Round
from tests.support.upstream import text, tool_use

RUST = tool_use("web_search", {"query": "rust"}, id="call-rust")
ROUNDS = [Round([RUST], usage=(10, 5)), Round([RUST], usage=(30, 6)), Round([text("Done.")], usage=(50, 7))]


def usages(tool: dict[str, Any]) -> list[dict[str, Any]]:
    """In JSON, and in the last event of a stream that has one."""
    play = Playbook({"tools": [tool]}, ROUNDS)
    return [play.json["usage"], next(event["usage"] for event in play.events if event["type"] == "message_delta")]


def test_without_a_native_tool_the_context_is_the_last_rounds() -> None:
    for usage in usages(SEARCH):
        assert (usage["input_tokens"], usage["output_tokens"]) == (50, 18)
        assert [one["input_tokens"] for one in usage["iterations"]] == [10, 30, 50]


def test_with_a_native_tool_the_context_is_the_sum() -> None:
    for usage in usages(NATIVE):
        assert (usage["input_tokens"], usage["output_tokens"]) == (90, 18)
        assert [one["input_tokens"] for one in usage["iterations"]] == [10, 30, 50]
