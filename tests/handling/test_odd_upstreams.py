"""Answers of servers that speak the Messages API in a way of their own, through the whole gateway."""

import json
from typing import Any

import pytest

from tests.support.conversing import converse
from tests.support.playbook import BASH, NATIVE, SEARCH
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import Block, json_answer, sse, sse_answer, text

pytestmark = pytest.mark.anyio

ARGUMENTS = {"query": "rust"}
DONE = [text("Done.")]


def started_whole(*pieces: str, name: str = "web_search") -> Block:
    """A call whose start has its input already; ``pieces`` are its deltas."""
    start = {"type": "tool_use", "id": "call-1", "name": name, "input": ARGUMENTS}
    return Block(start, start, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces])


@pytest.mark.parametrize("pieces", [(), ("",), ('{"query": "rust"}',), ('{"query"', ': "rust"}')], ids=str)
@pytest.mark.parametrize("tool", [SEARCH, NATIVE], ids=["hidden", "native"])
async def test_deltas_take_the_place_of_the_input_that_a_start_has(pieces: tuple[str, ...], tool: Any) -> None:
    search = ScriptedSearch(default=found("It is 1.89."))
    spoken = await converse({"tools": [tool]}, [[started_whole(*pieces)], DONE], stream=True, search=search)
    assert search.queries == ["rust"]
    assert spoken.asked[1]["messages"][1]["content"][0]["input"] == ARGUMENTS
    if tool is NATIVE:
        assert spoken.message["content"][0]["input"] == ARGUMENTS


async def test_what_the_deltas_say_counts_and_not_the_start() -> None:
    search = ScriptedSearch(default=found("It is 1.26."))
    rounds = [[started_whole('{"query": ', '"go"}')], DONE]
    spoken = await converse({"tools": [NATIVE]}, rounds, stream=True, search=search)
    assert search.queries == ["go"]
    assert spoken.message["content"][0]["input"] == {"query": "go"}


async def test_a_call_of_the_clients_own_is_passed_as_it_came() -> None:
    block = started_whole('{"query": "rust"}', name="Bash")
    spoken = await converse({"tools": [SEARCH, BASH]}, [[block]], stream=True)
    assert spoken.message["content"] == [block.value]


WORDS = "The GPU is gone."
ERRORS: list[dict[str, Any]] = [
    {"error": {"message": WORDS, "type": "internal_server_error", "code": 500}},
    {"error": WORDS},
    {"object": "error", "message": WORDS, "type": "InternalServerError", "code": 500},
]


def told(error: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(error).encode() + b"\n\n"


IN_STREAMS = [*map(told, ERRORS), *(b"event: error\n" + told(error) for error in [*ERRORS, {"message": WORDS}])]


@pytest.mark.parametrize("event", IN_STREAMS, ids=bytes.decode)
async def test_an_error_in_the_midst_of_a_stream_keeps_its_words(event: bytes) -> None:
    upstream = sse_answer([*sse(text("It is"))[:3], event])
    spoken = await converse({"tools": [SEARCH]}, [upstream], stream=True)
    assert spoken.error == {"type": "api_error", "message": WORDS}


@pytest.mark.parametrize("error", ERRORS, ids=["openai", "a string", "an object"])
async def test_an_error_that_comes_with_status_200_keeps_its_words(error: dict[str, Any]) -> None:
    spoken = await converse({"tools": [SEARCH]}, [json_answer(error)], stream=False)
    assert spoken.status == 502
    assert spoken.error == {"type": "api_error", "message": WORDS}


async def test_an_error_of_anthropics_own_type_keeps_it() -> None:
    event = {"error": {"type": "overloaded_error", "message": "Busy."}}
    spoken = await converse({"tools": [SEARCH]}, [json_answer(event)], stream=False)
    assert spoken.error == {"type": "overloaded_error", "message": "Busy."}
