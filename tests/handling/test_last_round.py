"""The last round of a turn with native tools alone, through the whole gateway."""

from typing import Any

import pytest

from gateway.turn.web_search import NO_SEARCH_LEFT, SearchResult
from tests.support.conversing import Spoken, converse, converse_on
from tests.support.playbook import BASH, NATIVE, QUESTION
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import Block, text, tool_use

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("stream", [False, True])]

RUST = tool_use("web_search", {"query": "rust"}, id="call-rust")
LS = tool_use("Bash", {"command": "ls"}, id="call-ls")
DONE = text("It is 1.89.")
RESULT = SearchResult("Rust", "https://a.example", "Rust is out.")


def kinds(spoken: Spoken) -> list[str]:
    return [block["type"] for block in spoken.message["content"]]


async def asked(
    rounds: list[list[Block]], *, stream: bool, at_max_rounds: str, max_rounds: int = 2, **request: Any
) -> Spoken:
    search = ScriptedSearch(default=found("1. Rust", RESULT))
    return await converse(
        {"tools": [NATIVE, BASH], **request},
        rounds,
        stream=stream,
        search=search,
        max_rounds=max_rounds,
        at_max_rounds=at_max_rounds,
    )


async def test_a_turn_pauses_unless_the_operator_says_otherwise(stream: bool) -> None:
    spoken = await asked([[RUST], [RUST]], stream=stream, at_max_rounds="pause")
    assert spoken.message["stop_reason"] == "pause_turn"
    assert kinds(spoken) == ["server_tool_use", "web_search_tool_result"] * 2
    assert "tool_choice" not in spoken.asked[1]


async def test_the_operator_can_have_an_answer_instead_of_a_pause(stream: bool) -> None:
    spoken = await asked([[RUST], [DONE]], stream=stream, at_max_rounds="answer", tool_choice={"type": "any"})
    assert spoken.message["stop_reason"] == "end_turn"
    assert kinds(spoken) == ["server_tool_use", "web_search_tool_result", "text"]
    assert [body["tool_choice"] for body in spoken.asked] == [{"type": "any"}, {"type": "none"}]
    told = spoken.asked[1]["messages"][-1]["content"][0]["content"]
    assert told == f"1. Rust\n\n{NO_SEARCH_LEFT}"


async def test_a_call_that_comes_all_the_same_is_neither_run_nor_shown(stream: bool) -> None:
    spoken = await asked([[RUST], [DONE, RUST]], stream=stream, at_max_rounds="answer")
    assert spoken.message["stop_reason"] == "end_turn"
    assert kinds(spoken) == ["server_tool_use", "web_search_tool_result", "text"]


async def test_the_clients_own_calls_are_still_its_own(stream: bool) -> None:
    spoken = await asked([[RUST, LS]], stream=stream, at_max_rounds="answer", max_rounds=1)
    assert spoken.message["content"] == [LS.value]
    assert spoken.message["stop_reason"] == "tool_use"


async def test_a_turn_without_tools_of_the_gateways_may_choose_as_it_likes(stream: bool) -> None:
    """A history with a search makes a turn of it; no tool of the gateway's is there to be left out."""
    searched = [
        {"type": "server_tool_use", "id": "srvtoolu_a", "name": "web_search", "input": {"query": "rust"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_a", "content": []},
    ]
    history = [QUESTION, {"role": "assistant", "content": searched}, QUESTION]
    spoken = await asked([[LS]], stream=stream, at_max_rounds="answer", max_rounds=1, tools=[BASH], messages=history)
    assert "tool_choice" not in spoken.asked[0]
    assert spoken.message["content"] == [LS.value]


async def test_the_sentence_is_in_the_seal_and_the_prompt_stays_as_it_was(stream: bool) -> None:
    """The next request of the same client, to a gateway that opens the seal."""
    search = ScriptedSearch(default=found("1. Rust", RESULT))
    settings: dict[str, Any] = {"max_rounds": 2, "at_max_rounds": "answer", "seal_keys": ("k",), "search": search}
    first = await converse({"tools": [NATIVE]}, [[RUST], [DONE]], stream=stream, **settings)
    history = [QUESTION, {"role": "assistant", "content": first.message["content"]}, QUESTION]
    (second,) = await converse_on([{"tools": [NATIVE], "messages": history}], [[DONE]], stream=stream, **settings)
    assert second.asked[0]["messages"][:3] == first.asked[1]["messages"]
