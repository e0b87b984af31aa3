"""Request shapes for which a token request must equal what vLLM's own /v1/messages answers.

Written for a small model whose only skill is to call a search tool: what it says does not matter here, only that both
routes say the same.
"""

from typing import Any

Json = dict[str, Any]

# Named as Claude Code names its own: the gateway, which is given no alias, leaves it to the client.
SEARCH: Json = {
    "name": "WebSearch",
    "description": "Search the web.",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
OWNED: Json = SEARCH | {"name": "web_search"}
NATIVE: Json = {"type": "web_search_20250305", "name": "web_search"}
BASH: Json = {
    "name": "Bash",
    "description": "Run a command.",
    "input_schema": {"properties": {"command": {"type": "string"}}, "required": ["command"]},
}
RUST = "What is the latest stable Rust release?"
TWO = "Compare the latest stable releases of Go and Redis."
FOUND = "1. Rust 1.95.0\n   https://blog.rust-lang.org/ (2026-04-16)\n   Announcing Rust 1.95.0"


def ask(content: Any, **more: Any) -> Json:
    return {"max_tokens": 160, "messages": [{"role": "user", "content": content}], **more}


def after_search(result: Any, **more: Any) -> Json:
    """The round after a search: thinking, text, call and result in the history."""
    call = {
        "type": "tool_use",
        "id": "toolu_1",
        "name": "WebSearch",
        "input": {"query": "latest stable Rust ü release"},
    }
    history = [
        {"role": "user", "content": RUST},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "\nI should search.\n", "signature": "s"},
                {"type": "text", "text": "Let me look."},
                call,
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": result}]},
    ]
    return {"max_tokens": 160, "messages": history, "tools": [SEARCH], **more}


SHAPES: dict[str, Json] = {
    "text": ask("hello"),
    "thinking and a call": ask(RUST, tools=[SEARCH]),
    "parallel calls": ask(TWO, tools=[SEARCH]),
    "parallel calls, one allowed": ask(
        TWO, tools=[SEARCH], tool_choice={"type": "auto", "disable_parallel_tool_use": True}
    ),
    "text, then a call": ask("Find the latest Rust release, then the latest Go release.", tools=[SEARCH]),
    "two tools, a schema without its type": ask("List the files.", tools=[BASH, SEARCH]),
    "tool_choice any": ask(RUST, tools=[SEARCH], tool_choice={"type": "any"}),
    "tool_choice tool": ask(RUST, tools=[SEARCH, BASH], tool_choice={"type": "tool", "name": "WebSearch"}),
    "tool_choice none": ask(RUST, tools=[SEARCH], tool_choice={"type": "none"}),
    "tool_choice auto, no tools": ask(RUST, tool_choice={"type": "auto"}),
    "no tools, a call all the same": ask(RUST),
    "tools empty": ask(RUST, tools=[]),
    "a call cut by max_tokens": ask(RUST, tools=[SEARCH], max_tokens=32),
    "a forced call cut by max_tokens": ask(
        RUST, tools=[SEARCH], tool_choice={"type": "tool", "name": "WebSearch"}, max_tokens=32
    ),
    "thinking cut by max_tokens": ask(RUST, tools=[SEARCH], max_tokens=5),
    "stop sequence in the text": ask("hello", stop_sequences=["help you"]),
    "stop sequence in the thinking": ask("hello", stop_sequences=["says"]),
    "stop sequence in a call": ask(RUST, tools=[SEARCH], stop_sequences=["stable"]),
    "system text": ask("hello", system="You are terse."),
    "system blocks, the billing header among them": ask(
        "hello",
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=a1b2;"},
            {"type": "text", "text": "You are terse.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": " Very."},
        ],
        tools=[SEARCH],
    ),
    "a system message among the others": {
        "max_tokens": 60,
        "messages": [
            {"role": "user", "content": "hello"},
            {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "assistant", "content": "Hello!"},
            {"role": "user", "content": RUST},
        ],
    },
    "text blocks, one empty": ask([{"type": "text", "text": ""}, {"type": "text", "text": "hello"}]),
    "a result in words": after_search(FOUND),
    "a result in blocks": after_search([{"type": "text", "text": FOUND}, {"type": "text", "text": "2. nothing"}]),
    "an empty result": after_search([]),
    "a failed result, with words of the user's after it": {
        **after_search("x"),
        "messages": [
            *after_search("x")["messages"][:2],
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "timed out", "is_error": True},
                    {"type": "text", "text": "Try again."},
                ],
            },
        ],
    },
    "an answer, and a doubt": {
        **after_search(FOUND),
        "messages": [
            *after_search(FOUND)["messages"],
            {"role": "assistant", "content": [{"type": "text", "text": "The latest stable Rust release is 1.95.0."}]},
            {"role": "user", "content": "Are you sure?"},
        ],
    },
    "a tool removed on the way": {
        "max_tokens": 60,
        "tools": [SEARCH, BASH],
        "messages": [
            {"role": "user", "content": "hello"},
            {
                "role": "system",
                "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "Bash"}}],
            },
            {"role": "user", "content": "List the files."},
        ],
    },
    "thinking enabled": ask(RUST, tools=[SEARCH], max_tokens=1100, thinking={"type": "enabled", "budget_tokens": 1024}),
    "thinking disabled": ask(RUST, tools=[SEARCH], thinking={"type": "disabled"}),
    "thinking adaptive, effort high": ask(
        RUST, tools=[SEARCH], thinking={"type": "adaptive"}, output_config={"effort": "high"}
    ),
    "output format": ask(
        "hello",
        max_tokens=60,
        output_config={
            "format": {
                "type": "json_schema",
                "schema": {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]},
            }
        },
    ),
    "template arguments": ask("hello", chat_template_kwargs={"enable_thinking": False}),
    "sampling parameters": ask(RUST, tools=[SEARCH], top_p=0.9, top_k=20),
}
"""By name; each without ``model``, ``stream`` and ``temperature``."""

REFUSED: dict[str, Json] = {
    "an image for a model of text": ask(
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}]
    ),
    "a block nobody knows": ask([{"type": "document", "source": {}}]),
    "max_tokens 0": ask("hello", max_tokens=0),
    "max_tokens over the window": ask("hello", max_tokens=10_000_000),
    "a thinking budget over max_tokens": ask("hello", thinking={"type": "enabled", "budget_tokens": 2000}),
    "tool_choice of a tool not declared": ask(RUST, tools=[SEARCH], tool_choice={"type": "tool", "name": "x"}),
    "no messages": {"max_tokens": 10, "messages": []},
    "a tool without a schema": ask(RUST, tools=[{"type": "code_execution_20250825", "name": "code_execution"}]),
}
"""What /v1/messages answers with 400, a token request must be answered 400 too."""
