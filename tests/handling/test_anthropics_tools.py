"""Tools that Anthropic defines and the gateway has not, through the whole gateway: declared, and in a history."""

import json
from typing import Any

import pytest
from anthropic.types.beta import BetaMemoryTool20250818Command
from pydantic import TypeAdapter

from tests.support.conversing import converse, converse_on
from tests.support.playbook import BASH, NATIVE, QUESTION, SEARCH
from tests.support.upstream import json_answer, text, tool_use

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("stream", [False, True])]

DONE = [text("Done.")]
MORE = {"role": "user", "content": "Go on."}
COUNT = "/v1/messages/count_tokens"

# --- client tools, declared by type

EDITOR = {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9}
COMPUTER = {"type": "computer_20251124", "name": "computer", "display_width_px": 800, "display_height_px": 600}
CLIENT_TOOLS: list[tuple[dict[str, Any], set[str]]] = [
    ({"type": "bash_20250124", "name": "bash"}, {"command", "restart"}),
    ({"type": "bash_20241022", "name": "bash"}, {"command", "restart"}),
    (
        EDITOR,
        {"command", "path", "view_range", "file_text", "old_str", "new_str", "insert_line", "insert_text"},
    ),
    (
        {"type": "text_editor_20250124", "name": "str_replace_editor"},
        {"command", "path", "view_range", "file_text", "old_str", "new_str", "insert_line"},
    ),
    (
        {"type": "memory_20250818", "name": "memory"},
        {
            *("command", "path", "view_range", "file_text", "old_str", "new_str", "insert_line", "insert_text"),
            *("old_path", "new_path"),
        },
    ),
    ({**COMPUTER, "type": "computer_20241022"}, {"action", "coordinate", "text"}),
    (
        COMPUTER,
        {
            *("action", "coordinate", "text", "start_coordinate", "scroll_direction", "scroll_amount", "duration"),
        },
    ),
]


@pytest.mark.parametrize(("tool", "arguments"), CLIENT_TOOLS, ids=[tool["type"] for tool, _ in CLIENT_TOOLS])
async def test_a_client_tool_has_its_published_schema_upstream(
    tool: dict[str, Any], arguments: set[str], stream: bool
) -> None:
    called = tool_use(tool["name"], {"command": "view"}, id="call-1")
    spoken = await converse({"tools": [BASH, tool]}, [[called]], stream=stream)
    bash, function = spoken.asked[0]["tools"]
    assert bash == BASH
    assert set(function) == {"name", "description", "input_schema"}
    assert function["name"] == tool["name"]
    assert set(function["input_schema"]["properties"]) == arguments
    assert set(function["input_schema"]["required"]) <= arguments
    assert spoken.message["content"] == [called.value]
    assert spoken.message["stop_reason"] == "tool_use"


async def test_what_a_version_can_do_is_what_its_schema_says(stream: bool) -> None:
    tools = [
        EDITOR,
        {"type": "text_editor_20250429", "name": "edit_3"},
        {"type": "text_editor_20241022", "name": "edit_1"},
        {"type": "text_editor_20991231", "name": "edit_9"},
        COMPUTER,
        {**COMPUTER, "name": "computer_zoom", "enable_zoom": True},
        {**COMPUTER, "name": "computer_2", "type": "computer_20250124"},
    ]
    spoken = await converse({"tools": tools}, [DONE], stream=stream)
    schemas = {tool["name"]: tool["input_schema"]["properties"] for tool in spoken.asked[0]["tools"]}
    undoing = {name for name, schema in schemas.items() if "undo_edit" in schema.get("command", {}).get("enum", ())}
    assert undoing == {"edit_1"}
    assert {name for name, schema in schemas.items() if "insert_text" in schema} == {EDITOR["name"], "edit_9"}
    zooming = {name for name, schema in schemas.items() if "zoom" in schema.get("action", {}).get("enum", ())}
    assert zooming == {name for name, schema in schemas.items() if "region" in schema} == {"computer_zoom"}
    assert "800 pixels wide and 600 high" in spoken.asked[0]["tools"][4]["description"]


async def test_the_memory_tools_commands_are_the_sdks(stream: bool) -> None:
    spoken = await converse({"tools": [{"type": "memory_20250818", "name": "memory"}]}, [DONE], stream=stream)
    schema = spoken.asked[0]["tools"][0]["input_schema"]["properties"]
    variants = TypeAdapter(BetaMemoryTool20250818Command).json_schema()["$defs"].values()
    assert {variant["properties"]["command"]["const"] for variant in variants} == set(schema["command"]["enum"])
    assert {name for variant in variants for name in variant["properties"]} == set(schema)


async def test_what_holds_for_any_function_is_kept(stream: bool) -> None:
    kept = {"cache_control": {"type": "ephemeral"}, "strict": True}
    spoken = await converse({"tools": [{"type": "bash_20250124", "name": "bash", **kept}]}, [DONE], stream=stream)
    assert kept.items() <= spoken.asked[0]["tools"][0].items()


async def test_a_search_beside_a_client_tool(stream: bool) -> None:
    rounds = [[tool_use("web_search", {"query": "rust"}, id="call-1")], [tool_use("bash", {"command": "ls"}, id="b")]]
    tools = [NATIVE, {"type": "bash_20250124", "name": "bash"}]
    spoken = await converse({"tools": tools}, rounds, stream=stream)
    shown = [block["type"] for block in spoken.message["content"]]
    assert shown == ["server_tool_use", "web_search_tool_result", "tool_use"]


async def test_other_types_are_upstreams_to_judge(stream: bool) -> None:
    tools = [{"type": "computer_toolset_20260801"}, {"type": "odd_20250101", "name": "odd"}]
    spoken = await converse({"tools": tools}, [json_answer({"error": {"message": "no schema"}}, 400)], stream=stream)
    assert spoken.status == 400
    assert spoken.asked[0]["tools"] == tools


# --- server tools, declared

EXECUTION = {"type": "code_execution_20250825", "name": "code_execution"}
UNKNOWN = [
    EXECUTION,
    {"type": "advisor_20260301", "name": "advisor", "model": "m"},
    {"type": "web_fetch_20250910", "name": "web_fetch"},
    {"type": "mcp_toolset", "mcp_server_name": "s"},
]


@pytest.mark.parametrize("path", ["/v1/messages", COUNT])
@pytest.mark.parametrize("tool", UNKNOWN, ids=lambda tool: tool["type"])
async def test_a_server_tool_that_nobody_here_has_is_refused(tool: dict[str, Any], path: str, stream: bool) -> None:
    spoken = await converse({"tools": [BASH, tool]}, [DONE], stream=stream, path=path)
    assert spoken.status == 400
    assert spoken.error["type"] == "invalid_request_error"
    said = spoken.error["message"]
    assert said.startswith(f"tools.1.type: the gateway has no server tool {tool['type']}; it has web_search")
    assert "--unknown-server-tools drop" in said
    assert spoken.asked == []


@pytest.mark.parametrize("tool", UNKNOWN, ids=lambda tool: tool["type"])
async def test_or_it_is_left_out(tool: dict[str, Any], stream: bool) -> None:
    request = {"tools": [tool, BASH], "tool_choice": {"type": "any"}}
    spoken = await converse(request, [DONE], stream=stream, unknown_server_tools="drop")
    assert spoken.asked[0]["tools"] == [BASH]
    assert spoken.asked[0]["tool_choice"] == {"type": "any"}
    assert spoken.message["content"] == [DONE[0].value]


@pytest.mark.parametrize("others", [[], [BASH]], ids=["alone", "beside another"])
async def test_a_choice_of_what_is_left_out_is_left_out(others: list[Any], stream: bool) -> None:
    request = {"tools": [EXECUTION, *others], "tool_choice": {"type": "tool", "name": "code_execution"}}
    for path in ("/v1/messages", COUNT):
        spoken = await converse(
            request, [json_answer({"input_tokens": 1})] if path == COUNT else [DONE],
            stream=stream, path=path, unknown_server_tools="drop",
        )  # fmt: skip
        assert spoken.asked[0].get("tools", []) == others
        assert "tool_choice" not in spoken.asked[0]


async def test_the_log_says_once_what_was_left_out(stream: bool, capsys: pytest.CaptureFixture[str]) -> None:
    request = {"tools": [EXECUTION]}
    await converse_on([request, request], [DONE], stream=stream, unknown_server_tools="drop")
    out, err = capsys.readouterr()
    (line,) = [line for line in (out + err).splitlines() if "server tool left out" in line]
    assert "code_execution_20250825" in line


# --- histories that began elsewhere


def call(name: str, arguments: dict[str, Any], *, kind: str = "server_tool_use", id: str = "srvtoolu_01A") -> Any:
    return {"type": kind, "id": id, "name": name, "input": arguments}


def result(kind: str, content: Any, *, id: str = "srvtoolu_01A", **more: Any) -> Any:
    return {"type": f"{kind}_tool_result", "tool_use_id": id, "content": content, **more}


PAGE = {"type": "document", "title": "Rust", "source": {"type": "text", "media_type": "text/plain", "data": "1.95.0"}}
RAN = {"type": "bash_code_execution_result", "stdout": "hi", "stderr": "", "return_code": 0, "content": []}
PAIRS: list[tuple[str, Any, Any, str, bool]] = [
    ("bash_code_execution", {"command": "ls"}, result("bash_code_execution", RAN), "hi\nreturn_code: 0", False),
    (
        "code_execution",
        {"code": "1/0"},
        result("code_execution", {"type": "code_execution_tool_result_error", "error_code": "unavailable"}),
        "error_code: unavailable",
        True,
    ),
    (
        "text_editor_code_execution",
        {"command": "view"},
        result(
            "text_editor_code_execution",
            {"type": "text_editor_code_execution_view_result", "file_type": "text", "content": "a = 1"},
        ),
        "file_type: text\na = 1",
        False,
    ),
    ("advisor", {}, result("advisor", {"type": "advisor_result", "text": "Test it."}), "Test it.", False),
    (
        "advisor",
        {},
        result("advisor", {"type": "advisor_redacted_result", "encrypted_content": "QUJD"}),
        "(Nothing of the result can be seen here.)",
        False,
    ),
    (
        "web_fetch",
        {"url": "https://a.example"},
        result("web_fetch", {"type": "web_fetch_result", "url": "https://a.example", "content": PAGE}),
        "https://a.example\nRust\nmedia_type: text/plain\n1.95.0",
        False,
    ),
    (
        "future_tool",
        {"x": 1},
        result("future", [{"type": "future_result", "answer": 42}, {"type": "text", "text": "So it is."}]),
        "answer: 42\nSo it is.",
        False,
    ),
]


async def asked(messages: list[Any], *, stream: bool, **more: Any) -> list[Any]:
    """What upstream was told, in a message and in a count alike."""
    spoken = await converse({"messages": messages, "tools": [BASH], **more}, [DONE], stream=stream)
    assert spoken.status == 200
    assert spoken.message["content"] == [DONE[0].value]
    request = {"messages": messages, "tools": [BASH], **more}
    counted = await converse(request, [json_answer({"input_tokens": 1})], stream=False, path=COUNT)
    told: list[Any] = spoken.asked[0]["messages"]
    assert counted.asked[0]["messages"] == told
    return told


@pytest.mark.parametrize(("name", "arguments", "answer", "told", "failed"), PAIRS, ids=lambda value: str(value)[:20])
async def test_a_pair_becomes_a_call_and_its_result(
    name: str, arguments: dict[str, Any], answer: Any, told: str, failed: bool, stream: bool
) -> None:
    history = [QUESTION, {"role": "assistant", "content": [call(name, arguments), answer, DONE[0].value]}, MORE]
    ours = {"type": "tool_result", "tool_use_id": "srvtoolu_01A", "content": told}
    assert await asked(history, stream=stream) == [
        QUESTION,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "srvtoolu_01A", "name": name, "input": arguments}],
        },
        {"role": "user", "content": [ours | {"is_error": True} if failed else ours]},
        {"role": "assistant", "content": [DONE[0].value]},
        MORE,
    ]


async def test_an_mcp_call_becomes_one_of_that_name(stream: bool) -> None:
    used = {**call("list_files", {"path": "/"}, kind="mcp_tool_use", id="mcptoolu_01"), "server_name": "files"}
    content = [{"type": "text", "text": "a.txt"}]
    answer = result("mcp", content, id="mcptoolu_01", is_error=True)
    told = await asked([QUESTION, {"role": "assistant", "content": [used, answer]}, MORE], stream=stream)
    assert told[1]["content"] == [
        {"type": "tool_use", "id": "mcptoolu_01", "name": "list_files", "input": {"path": "/"}}
    ]
    ours = {"type": "tool_result", "tool_use_id": "mcptoolu_01", "content": "a.txt", "is_error": True}
    assert told[2:] == [{"role": "user", "content": [ours, {"type": "text", "text": "Go on."}]}]


async def test_a_result_that_opens_the_next_message_belongs_to_its_call(stream: bool) -> None:
    bash = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
    listed = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"}
    history = [
        QUESTION,
        {"role": "assistant", "content": [call("bash_code_execution", {"command": "ls"}), bash]},
        {"role": "user", "content": [listed]},
        {"role": "assistant", "content": [result("bash_code_execution", RAN), DONE[0].value]},
        MORE,
    ]
    told = await asked(history, stream=stream)
    assert [block["type"] for block in told[1]["content"]] == ["tool_use", "tool_use"]
    ours = {"type": "tool_result", "tool_use_id": "srvtoolu_01A", "content": "hi\nreturn_code: 0"}
    assert told[2:] == [
        {"role": "user", "content": [ours, listed]},
        {"role": "assistant", "content": [DONE[0].value]},
        MORE,
    ]


ALONE: list[tuple[Any, str]] = [
    (call("advisor", {"q": 1}), '[advisor was called, and there is no result: {"q":1}]'),
    (result("bash_code_execution", RAN), "[bash_code_execution answered]\nhi\nreturn_code: 0"),
    ({"type": "server_tool_use"}, "[A tool was called, and there is no result: null]"),
    ({"type": "advisor_tool_result"}, "[advisor answered]\n(Nothing of the result can be seen here.)"),
    (
        {"type": "container_upload", "file_id": "file_1"},
        "[A file was uploaded, to where it cannot be seen from here: file_1]",
    ),
    ({"type": "compaction", "content": "We spoke of Rust."}, "[Summary of the conversation so far]\nWe spoke of Rust."),
    (
        {"type": "fallback", "from": {"model": "claude-a"}, "to": {"model": "claude-b"}},
        "[From here on claude-b answers in place of claude-a.]",
    ),
    ({"type": "fallback"}, "[From here on another model answers.]"),
    ({"type": "mcp_tool_listing", "server_name": "files"}, "[mcp_tool_listing]\nserver_name: files"),
]


@pytest.mark.parametrize(("block", "words"), ALONE, ids=lambda value: str(value)[:30])
async def test_what_stands_alone_becomes_text(block: Any, words: str, stream: bool) -> None:
    history = [QUESTION, {"role": "assistant", "content": [block, DONE[0].value], "extra": 1}, MORE]
    assert await asked(history, stream=stream) == [
        QUESTION,
        {"role": "assistant", "content": [{"type": "text", "text": words}, DONE[0].value], "extra": 1},
        MORE,
    ]


async def test_a_file_that_a_user_uploaded_is_told_of(stream: bool) -> None:
    upload = {"type": "container_upload", "file_id": "file_1"}
    words = {"type": "text", "text": "[A file was uploaded, to where it cannot be seen from here: file_1]"}
    asking = [{"role": "user", "content": [upload, {"type": "text", "text": "Read it."}]}]
    assert await asked(asking, stream=stream) == [
        {"role": "user", "content": [words, {"type": "text", "text": "Read it."}]}
    ]


async def test_a_summary_that_failed_is_nothing(stream: bool) -> None:
    history = [
        QUESTION,
        {"role": "assistant", "content": [{"type": "compaction", "content": None}, DONE[0].value]},
        MORE,
    ]
    assert (await asked(history, stream=stream))[1] == {"role": "assistant", "content": [DONE[0].value]}
    history[1] = {"role": "assistant", "content": [{"type": "compaction", "content": None}]}
    assert (await asked(history, stream=stream))[1]["content"] == [{"type": "text", "text": ""}]


@pytest.mark.parametrize(
    "content",
    [
        [call("a", {}), call("a", {}), result("a", "x"), result("a", "x")],
        [result("a", "x"), call("a", {})],
        [call("a", {}), {"type": "tool_use", "id": "srvtoolu_01A", "name": "Bash", "input": {}}, result("a", "x")],
        [{**call("a", {}), "id": [1]}, {**result("a", "x"), "tool_use_id": {}}],
        [{**call("a", {}), "input": "x"}, {**call("a", {}), "name": 7}, result("a", "x")],
        [{"type": "tool_use", "id": [], "name": "Bash", "input": {}}, result("a", {"a": [[None], True, 1.5]})],
    ],
    ids=["twice", "the wrong way round", "an id of the client's", "no ids", "no call", "an odd client call"],
)
async def test_nothing_of_it_is_refused_whatever_it_is(content: list[Any], stream: bool) -> None:
    told = await asked([QUESTION, {"role": "assistant", "content": content}, MORE], stream=stream)
    kinds = {
        block["type"] for message in told[1:] if isinstance(message["content"], list) for block in message["content"]
    }
    assert kinds <= {"text", "tool_use", "tool_result"}


async def test_searches_of_anthropics_beside_other_tools_are_read_as_ever(stream: bool) -> None:
    found = {"type": "web_search_result", "url": "https://a.example", "title": "A", "encrypted_content": "QUJD"}
    content = [
        call("web_search", {"query": "a"}, id="srvtoolu_01S"),
        result("web_search", [found], id="srvtoolu_01S"),
        call("bash_code_execution", {"command": "ls"}),
        result("bash_code_execution", RAN),
    ]
    told = await asked([QUESTION, {"role": "assistant", "content": content}, MORE], stream=stream)
    assert [message["role"] for message in told] == ["user", "assistant", "user", "assistant", "user"]
    assert told[2]["content"][0]["content"] == "1. A\nhttps://a.example"
    assert told[4]["content"][0]["content"] == "hi\nreturn_code: 0"


async def test_a_turn_that_began_elsewhere_can_search_here(stream: bool) -> None:
    history = [QUESTION, {"role": "assistant", "content": [call("advisor", {}), result("advisor", "Search.")]}, MORE]
    rounds = [[tool_use("web_search", {"query": "rust"}, id="call-1")], DONE]
    spoken = await converse({"messages": history, "tools": [SEARCH]}, rounds, stream=stream)
    assert spoken.message["content"] == [DONE[0].value]
    assert spoken.asked[1]["messages"][2]["content"][0]["content"] == "Search."


async def test_a_history_with_nothing_of_this_passes_byte_for_byte(stream: bool) -> None:
    history = [
        QUESTION,
        {"role": "assistant", "content": [{"type": "text", "text": "  "}, {"type": "odd", "x": 1}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "server_tool_use"}]},
    ]
    spoken = await converse({"messages": history, "tools": [BASH]}, [DONE], stream=stream)
    body = {"model": "qwen3", "max_tokens": 64, "stream": stream, "tools": [BASH], "messages": history}
    assert json.loads(spoken.sent[0]) == body
    assert b'"messages":' + json.dumps(history, separators=(",", ":")).encode() in spoken.sent[0]
