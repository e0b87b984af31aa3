"""Deferred tools: what upstream gets of them, and that the prompt before a reference never changes."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import InvalidRequest
from gateway.turn.deferred import PLACEHOLDER, Deferral, Mode, check, definitions, has_deferred


def tool(name: str, description: str = "Does it.", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "input_schema": {"type": "object"}, **more}


def deferred(name: str, **more: Any) -> dict[str, Any]:
    return tool(name, defer_loading=True, **more)


def call(name: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": name, "input": {}}]}


def refers(*names: str, before: str = "", after: str = "") -> dict[str, Any]:
    """A client's own tool search has found these."""
    content: list[Any] = [{"type": "tool_reference", "tool_name": name} for name in names]
    content = [*text(before), *content, *text(after)]
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": content}]}


def text(said: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": said}] if said else []


def change(kind: str, tool: dict[str, Any], said: str = "") -> dict[str, Any]:
    return {"role": "system", "content": [*text(said), {"type": kind, "tool": tool}]}


def by_name(name: str) -> dict[str, Any]:
    return {"type": "tool_reference", "name": name}


def by_definition(definition: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_definition", "definition": definition}


def raw(messages: list[Any]) -> list[msgspec.Raw]:
    return msgspec.json.decode(json.dumps(messages), type=list[msgspec.Raw])


def upstream(tools: list[Any], messages: list[Any], mode: Mode) -> list[Any]:
    told = Deferral(tools, messages, mode).messages(raw(messages))
    return messages if told is None else [json.loads(message) for message in told]


def declared(tools: list[Any], messages: list[Any], mode: Mode, *found: str, choice: object = None) -> list[Any]:
    deferral = Deferral(tools, messages, mode, choice)
    deferral.load(found)
    declared = deferral.tools()
    return tools if declared is None else declared


def functions(*names: str) -> str:
    lines = [
        f'<function>{{"description":"Does it.","name":"{name}","parameters":{{"type":"object"}}}}</function>'
        for name in names
    ]
    return "\n".join(["<functions>", *lines, "</functions>"])


def result(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [*content]}]}


MODES: tuple[Mode, ...] = ("expand", "declare", "pass")
QUESTION = {"role": "user", "content": "Search the web."}
SEARCH = tool("ToolSearch")
WEB, FETCH = deferred("WebSearch"), deferred("WebFetch")
TOOLS = [deferred(PLACEHOLDER), SEARCH, WEB, FETCH, tool("Bash")]


# What is declared


def test_expand_declares_what_is_not_deferred() -> None:
    assert declared(TOOLS, [refers("WebSearch")], "expand") == [SEARCH, tool("Bash")]


def test_declare_adds_what_was_referenced_in_the_order_of_first_reference() -> None:
    messages = [refers("WebFetch", "WebSearch"), refers("WebSearch"), refers("WebFetch")]
    assert declared(TOOLS, messages, "declare") == [SEARCH, tool("Bash"), tool("WebFetch"), tool("WebSearch")]


def test_declare_adds_what_a_tool_search_finds() -> None:
    assert declared(TOOLS, [QUESTION], "declare", "WebFetch")[2:] == [tool("WebFetch")]
    assert declared(TOOLS, [QUESTION], "expand", "WebFetch") == [SEARCH, tool("Bash")]


def test_a_forced_tool_is_declared() -> None:
    choice = {"type": "tool", "name": "WebSearch"}
    for mode in MODES[:2]:
        assert declared(TOOLS, [QUESTION], mode, choice=choice)[2:] == [tool("WebSearch")]


def test_pass_declares_all_as_they_are() -> None:
    assert declared(TOOLS, [refers("WebSearch")], "pass") == TOOLS


@pytest.mark.parametrize("choice", [None, {"type": "any"}, {"type": "tool", "name": "Bash"}, {"type": "tool"}, "auto"])
def test_no_other_choice_changes_anything(choice: object) -> None:
    assert declared(TOOLS, [QUESTION], "expand", choice=choice) == [SEARCH, tool("Bash")]


def test_a_reference_to_what_is_in_the_head_adds_nothing_to_it() -> None:
    assert declared(TOOLS, [refers("Bash")], "declare") == [SEARCH, tool("Bash")]


@pytest.mark.parametrize("mode", ["expand", "declare"])
def test_a_placeholder_is_never_declared_and_never_found(mode: Mode) -> None:
    tools, messages = [{"name": PLACEHOLDER}, SEARCH], [refers(PLACEHOLDER)]
    assert declared(tools, messages, mode) == [SEARCH]
    assert Deferral(tools, messages, mode).deferred == ()


# What a reference becomes


def test_expand_tells_the_definitions_where_the_references_stand() -> None:
    messages = [QUESTION, call("ToolSearch"), refers("WebSearch", "WebFetch", before="Two:", after="Call them.")]
    told = result(*text("Two:"), *text(functions("WebSearch", "WebFetch")), *text("Call them."))
    assert upstream(TOOLS, messages, "expand") == [QUESTION, call("ToolSearch"), told]


def test_declare_says_that_they_are_loaded() -> None:
    (told,) = upstream(TOOLS, [refers("WebSearch", "WebFetch")], "declare")
    said = "The tool WebSearch is loaded and can be called now.\nThe tool WebFetch is loaded and can be called now."
    assert told == result(*text(said))


def test_pass_leaves_them() -> None:
    messages = [refers("WebSearch"), refers("Gone"), change("tool_addition", by_name("WebSearch"))]
    assert upstream(TOOLS, messages, "pass") == messages


@pytest.mark.parametrize("mode", ["expand", "declare"])
def test_a_reference_to_a_tool_that_is_not_declared_is_a_sentence(mode: Mode) -> None:
    (told,) = upstream(TOOLS, [refers("Gone")], mode)
    assert told == result(*text("The tool Gone is not available."))


def test_a_reference_beside_the_result_of_another_call() -> None:
    message = {"role": "user", "content": [{"type": "tool_reference", "tool_name": "WebSearch"}, *text("Go on.")]}
    (told,) = upstream(TOOLS, [message], "expand")
    assert told == {"role": "user", "content": [*text(functions("WebSearch")), *text("Go on.")]}


def test_a_result_keeps_what_else_it_has() -> None:
    message = refers("WebSearch")
    message["content"][0] |= {"cache_control": {"type": "ephemeral"}, "is_error": False}
    (told,) = upstream(TOOLS, [message], "expand")
    block = {**message["content"][0], "content": text(functions("WebSearch"))}
    assert told == {"role": "user", "content": [block]}


def test_what_a_search_of_the_gateways_own_has_found() -> None:
    assert Deferral(TOOLS, [QUESTION], "expand").told(["WebSearch"]) == functions("WebSearch")
    assert Deferral(TOOLS, [QUESTION], "pass").told(["WebSearch"]) == functions("WebSearch")
    said = "The tool WebSearch is loaded and can be called now."
    assert Deferral(TOOLS, [QUESTION], "declare").told(["WebSearch"]) == said


@pytest.mark.parametrize("mode", ["expand", "pass"])
def test_what_it_found_before_is_told_where_it_stands(mode: Mode) -> None:
    references = [{"type": "tool_reference", "tool_name": name} for name in ("WebSearch", "Gone")]
    found = {"type": "tool_search_tool_search_result", "tool_references": references}
    block = {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": found}
    (told,) = upstream(TOOLS, [{"role": "assistant", "content": [block]}], mode)
    said = f"{functions('WebSearch')}\nThe tool Gone is not available."
    assert told["content"] == [{**block, "content": {**found, "tool_references": text(said)}}]


# What comes and goes in the midst of a conversation


def test_an_addition_is_told_by_the_user_where_it_stands() -> None:
    """Servers whose template wants the system message first move all of that role there."""
    message = change("tool_addition", by_name("WebSearch"), said="Now the web.")
    told = [
        {"role": "system", "content": text("Now the web.")},
        {"role": "user", "content": text(functions("WebSearch"))},
    ]
    assert upstream(TOOLS, [QUESTION, message], "expand") == [QUESTION, *told]


def test_an_addition_by_definition_counts_as_declared() -> None:
    added = change("tool_addition", by_definition(tool("Clock")))
    messages = [QUESTION, added, refers("Clock")]
    assert definitions(messages) == [("messages.1.content.0.tool.definition", tool("Clock"))]
    assert declared([SEARCH], messages, "expand") == [SEARCH]
    assert declared([SEARCH], messages, "declare") == [SEARCH, tool("Clock")]
    told = upstream([SEARCH], [QUESTION, added, refers("Clock")], "expand")
    assert told == [QUESTION, {"role": "user", "content": text(functions("Clock"))}, result(*text(functions("Clock")))]


def test_a_definition_holds_from_its_place_on() -> None:
    second = tool("Clock", "Does it better.")
    messages = [
        change("tool_addition", by_definition(tool("Clock"))),
        refers("Clock"),
        change("tool_addition", by_definition(second)),
        refers("Clock"),
    ]
    first, then, after, last = (json.dumps(message) for message in upstream([SEARCH], messages, "expand"))
    assert ["better" in said for said in (first, then, after, last)] == [False, False, True, True]
    assert declared([SEARCH], messages, "declare") == [SEARCH, second]


@pytest.mark.parametrize("mode", ["expand", "declare"])
@pytest.mark.parametrize("name", ["WebSearch", "Bash", "Gone"])
def test_a_removal_is_a_sentence(mode: Mode, name: str) -> None:
    (told,) = upstream(TOOLS, [change("tool_removal", by_name(name))], mode)
    said = f"The tool {name} has been removed: it cannot be called from here on."
    assert told == {"role": "user", "content": text(said)}


MCP_TOOL = {"type": "mcp_tool_reference", "server_name": "wiki", "name": "ask"}
MCP_SERVER = {"type": "mcp_toolset_reference", "server_name": "wiki"}


@pytest.mark.parametrize("kind", ["tool_addition", "tool_removal"])
@pytest.mark.parametrize("named", [by_name("Gone"), MCP_TOOL, MCP_SERVER])
def test_pass_tells_in_words_what_upstream_would_refuse(kind: str, named: dict[str, Any]) -> None:
    (told,) = upstream(TOOLS, [change(kind, named, said="Mind:")], "pass")
    assert told["role"] == "system"
    assert [block["type"] for block in told["content"]] == ["text", "text"]
    assert named.get("name", named.get("server_name")) in told["content"][1]["text"]


def test_pass_leaves_a_tool_that_the_conversation_defined() -> None:
    messages = [change("tool_addition", by_definition(tool("Clock"))), change("tool_removal", by_name("Clock"))]
    assert upstream(TOOLS, messages, "pass") == messages


# What is left alone


MALFORMED: list[Any] = [
    "text",
    {"role": "user"},
    {"role": "user", "content": [None, 7, "x", {"type": "tool_result"}, {"type": "tool_result", "content": [3]}]},
    {"role": "system", "content": [{"type": "tool_addition"}, {"type": "tool_removal", "tool": {"type": "x"}}]},
    {"role": "user", "content": [{"type": "tool_result", "content": [{"type": "tool_reference"}]}]},
    {"role": "system", "content": [{"type": "tool_removal", "tool": by_definition(tool("Clock"))}]},
]


@pytest.mark.parametrize("mode", ["expand", "declare", "pass"])
@pytest.mark.parametrize("message", MALFORMED)
def test_what_is_malformed_is_upstreams_to_judge(mode: Mode, message: Any) -> None:
    assert not has_deferred([SEARCH, {"defer_loading": "yes"}, None], [message])
    assert upstream([SEARCH, None, 5], [message], mode) == [message]


def test_other_messages_stay_byte_for_byte() -> None:
    body = b'[ {"role": "user", "content": [ {"type":"text","text":"\\u00e9"} ], "x": 1.0}, %b]'
    body %= json.dumps(refers("WebSearch")).encode()
    kept, told = msgspec.json.decode(body, type=list[msgspec.Raw])
    translated = Deferral(TOOLS, json.loads(body), "expand").messages([kept, told])
    assert translated is not None
    assert translated[0] == bytes(kept)


@pytest.mark.parametrize(
    ("tools", "messages"),
    [
        ([WEB], []),
        ([{"name": PLACEHOLDER}], []),
        ([SEARCH], [refers("X")]),
        (None, [change("tool_addition", by_name("X"))]),
        (None, [change("tool_removal", by_name("X"))]),
    ],
)
def test_a_request_that_is_for_this(tools: Any, messages: Any) -> None:
    assert has_deferred(tools, messages)


# The prompt before a reference


SYSTEM_NOTE = {"role": "system", "content": text("Be brief.")}
NAMES = ["A", "B", "C"]
steps = st.one_of(
    st.sampled_from([QUESTION, SYSTEM_NOTE, call("A")]),
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(lambda names: refers(*names)),
    st.sampled_from(NAMES).map(lambda name: change("tool_addition", by_name(name))),
    st.sampled_from(NAMES).map(lambda name: change("tool_removal", by_name(name), said="Note.")),
    st.sampled_from(NAMES).map(lambda name: change("tool_addition", by_definition(tool(name, "Another.")))),
)


@given(st.lists(steps, max_size=8), st.integers(0, 8))
def test_with_expand_the_prompt_grows_at_its_end_only(messages: list[Any], cut: int) -> None:
    """A client declares a deferred tool once it has been found: neither that nor a reference changes what was said."""
    tools = [deferred(PLACEHOLDER), SEARCH, *(deferred(name) for name in NAMES)]
    found = {name for message in messages[:cut] for name in NAMES if f'"{name}"' in json.dumps(message)}
    known = [one for one in tools if not (one["name"] in NAMES and one["name"] not in found)]
    assert declared(known, messages[:cut], "expand") == declared(tools, messages, "expand")
    told = upstream(known, messages[:cut], "expand")
    assert upstream(tools, messages, "expand")[: len(told)] == told


@given(st.lists(steps, max_size=8), st.integers(0, 8))
def test_with_declare_the_tools_grow_at_their_end_only(messages: list[Any], cut: int) -> None:
    tools = [*(deferred(name) for name in NAMES), SEARCH]
    before = [one["name"] for one in declared(tools, messages[:cut], "declare")]
    after = [one["name"] for one in declared(tools, messages, "declare")]
    assert after[: len(before)] == before


# What Anthropic refuses


TYPED = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
ANSWERED = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "srvtoolu_1", "content": "x"}]}


@pytest.mark.parametrize(
    ("tools", "messages", "told"),
    [
        ([{**TYPED, "defer_loading": True}, WEB], [QUESTION], "tools: at least one"),
        ([TYPED, {**WEB, "cache_control": {"type": "ephemeral"}}], [QUESTION], "tools.1.cache_control: "),
        ([TYPED, WEB], [QUESTION, ANSWERED], "messages.1.content.0.tool_use_id: srvtoolu_1"),
    ],
)
def test_what_cannot_be_is_refused_where_a_tool_search_is_declared(tools: Any, messages: Any, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        check(tools, messages)
    check([SEARCH, *(one for one in tools if one.get("name") != TYPED["name"])], messages)


def test_nothing_else_is_refused() -> None:
    check([TYPED, WEB], [QUESTION, refers("Gone")])
    check([{**WEB, "cache_control": {"type": "ephemeral"}}], [QUESTION])
    check(None, None)
