"""Functions that are only called like one of the gateway's, through the whole gateway."""

import json
from typing import Any

import pytest

from tests.support.conversing import converse, converse_on
from tests.support.playbook import NATIVE, SEARCH
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import text, tool_use

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("stream", [False, True])]

QUERY = {"query": {"type": "string"}}
CALL = tool_use("web_search", {"query": "rust", "search_term": "rust"})
DONE = [text("Done.")]


def function(properties: Any, *required: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": "web_search", "description": "Search.", "input_schema": schema}


NAMESAKES = [
    function({"search_term": {"type": "string"}}, "search_term"),
    function({"query": {"type": "array", "items": {"type": "string"}}}, "query"),
    function({**QUERY, "wiki": {"type": "string"}}, "query", "wiki"),
    function({}),
    {"name": "web_search", "input_schema": {"type": "object"}},
    {"name": "web_search"},
]


@pytest.mark.parametrize("tool", NAMESAKES, ids=json.dumps)
async def test_a_namesake_is_the_clients_and_passes_byte_for_byte(tool: dict[str, Any], stream: bool) -> None:
    search = ScriptedSearch()
    spoken = await converse({"tools": [tool]}, [[CALL]], stream=stream, search=search)
    assert spoken.message["content"] == [CALL.value]
    assert spoken.message["stop_reason"] == "tool_use"
    assert json.loads(spoken.sent[0])["tools"] == [tool]
    assert len(spoken.asked) == 1
    assert search.calls == []


@pytest.mark.parametrize(
    "tool",
    [
        SEARCH,
        function(QUERY),
        function({**QUERY, "allowed_domains": {"type": "array"}}, "query", "allowed_domains"),
        function({**QUERY, "top_k": {"type": "integer"}}, "query"),
        function({"query": {"type": ["string", "null"]}}),
        function({"query": {"anyOf": [{"type": "string"}, {"type": "null"}]}}),
        {"type": "custom", **SEARCH},
    ],
    ids=json.dumps,
)
async def test_a_function_that_takes_a_query_is_taken_over(tool: dict[str, Any], stream: bool) -> None:
    search = ScriptedSearch(default=found("It is 1.89."))
    spoken = await converse({"tools": [tool]}, [[CALL], DONE], stream=stream, search=search)
    assert search.queries == ["rust"]
    assert spoken.message["content"] == [DONE[0].value]


async def test_an_alias_holds_whatever_the_schema_says(stream: bool) -> None:
    search = ScriptedSearch(default=found("It is 1.89."))
    aliases = {"web_search": "web_search"}
    rounds = [[CALL], DONE]
    await converse({"tools": [NAMESAKES[2]]}, rounds, stream=stream, search=search, tool_aliases=aliases)
    assert search.queries == ["rust"]


async def test_the_operator_can_leave_every_name_to_the_client(stream: bool) -> None:
    left, native = await converse_on(
        [{"tools": [SEARCH]}, {"tools": [NATIVE]}], [[CALL], [CALL], DONE], stream=stream, gateway_tools=()
    )
    assert left.message["content"] == [CALL.value]
    assert [block["type"] for block in native.message["content"]] == [
        "server_tool_use",
        "web_search_tool_result",
        "text",
    ]


async def test_the_log_says_once_that_a_function_was_left(stream: bool, capsys: pytest.CaptureFixture[str]) -> None:
    request = {"tools": [{**NAMESAKES[0], "description": "Secret words."}]}
    await converse_on([request, request, request], [[CALL]], stream=stream)
    out, err = capsys.readouterr()
    lines = [line for line in (out + err).splitlines() if "function left to the client" in line]
    assert len(lines) == 1
    assert "web_search" in lines[0]
    assert "Secret words." not in out + err
