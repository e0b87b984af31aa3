"""The request bodies, deterministic filler in the shapes that clients send.

`claude_code` has the shape and size of what Claude Code 2.1 sends: 24 function tools (its own `WebSearch` among them,
which is the client's as long as no alias says otherwise), three system blocks, `cache_control`, adaptive thinking.
`long_session` is the same after many tool calls; `native_history` a conversation full of search results.
"""

import json
import random
from typing import Any

from gateway.turn import Sealer

MODEL = "qwen3"
SEAL_KEY = "bench"  # of the gateway under test, so that it can open what a history here holds

WORDS = (
    *("a", "the", "file", "path", "name", "value", "line", "list", "text", "tool", "call", "result", "state"),
    *("project", "option", "order", "number", "content", "output", "input", "message", "command", "error", "start"),
    *("stop", "open", "close", "read", "write", "check", "run", "change", "use", "keep", "each", "every", "first"),
    *("last", "never", "always", "before", "after", "when", "only", "other", "default", "given", "current", "must"),
    *("should", "more"),
)

# Name: characters of description and of schema, spread as Claude Code's tools are: one is far longer than the rest.
TOOLS = {
    "Agent": (1227, 1249),
    "Bash": (1196, 1395),
    "CronCreate": (2924, 978),
    "CronDelete": (166, 219),
    "CronList": (106, 126),
    "Edit": (360, 584),
    "EnterWorktree": (3030, 627),
    "ExitWorktree": (1922, 495),
    "NotebookEdit": (619, 981),
    "Read": (838, 770),
    "ReportFindings": (574, 1278),
    "ScheduleWakeup": (2802, 820),
    "SendMessage": (655, 450),
    "Skill": (1713, 344),
    "TaskCreate": (2145, 604),
    "TaskGet": (732, 227),
    "TaskList": (998, 126),
    "TaskOutput": (1049, 464),
    "TaskStop": (203, 292),
    "TaskUpdate": (2243, 1162),
    "WebFetch": (374, 336),
    "WebSearch": (311, 499),
    "Workflow": (18780, 1816),
    "Write": (240, 367),
}

NATIVE_SEARCH = {"type": "web_search_20250305", "name": "web_search"}
WEB_SEARCH = {
    "name": "web_search",
    "description": "Search the web for current information.",
    "input_schema": {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "What to search for"}},
        "required": ["query"],
    },
}

QUESTION = {"role": "user", "content": "What is the latest stable Rust release?"}


def small() -> bytes:
    """A JSON request without tools."""
    return _encode({"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": "Say hello."}]})


def stream() -> bytes:
    """The same, streamed: a server passes it on as it is."""
    return _encode(
        {"model": MODEL, "max_tokens": 4096, "stream": True, "messages": [{"role": "user", "content": "Say hello."}]}
    )


def loop() -> bytes:
    """A streamed request that declares `web_search` as a function: a server with a tool loop answers it in the loop."""
    return _encode({"model": MODEL, "max_tokens": 4096, "stream": True, "messages": [QUESTION], "tools": [WEB_SEARCH]})


def native() -> bytes:
    """The same with the typed tool: the client sees the search and its result."""
    return _encode(
        {"model": MODEL, "max_tokens": 4096, "stream": True, "messages": [QUESTION], "tools": [NATIVE_SEARCH]}
    )


def claude_code(*, search: bool = False) -> bytes:
    """A streamed request of Claude Code's shape and size, 75 KB.

    Nothing in it is a server's own, unless `search`: then `web_search` is declared too, and its question is the last.
    """
    return _encode(_claude_code(search))


def long_session(kilobytes: int, *, search: bool = False) -> bytes:
    """The same after as many calls of the client's tools as make that size."""
    filler = random.Random(2)
    body = _claude_code(search)
    room = kilobytes * 1000 - len(_encode(body))
    while room > 0:
        call = f"toolu_{len(body['messages'])}"
        command = {"command": _prose(filler, 80), "description": _prose(filler, 40)}
        step = [
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": _prose(filler, 200)},
                    {"type": "tool_use", "id": call, "name": "Bash", "input": command},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": call, "content": _prose(filler, 3000)}],
            },
        ]
        body["messages"] += step
        room -= len(_encode(step))
    body["messages"].append({"role": "user", "content": "What is the latest stable Rust release?"})
    return _encode(body)


def native_history(messages: int) -> bytes:
    """A streamed request of about 7 KB a message: every second one an answer with a search and its sealed results."""
    filler, sealer = random.Random(3), Sealer([SEAL_KEY])
    said: list[dict[str, Any]] = []
    for number in range(messages // 2):
        call = f"srvtoolu_h{number}"
        pages = [(f"https://example.com/{number}/{page}", _prose(filler, 60)) for page in range(8)]
        sealed = sealer.seal(_prose(filler, 8000), call, pages)
        results = [
            {"type": "web_search_result", "url": url, "title": title, "page_age": None, "encrypted_content": secret}
            for (url, title), secret in zip(pages, sealed, strict=True)
        ]
        search = {"type": "server_tool_use", "id": call, "name": "web_search", "input": {"query": _prose(filler, 40)}}
        answer = [
            search,
            {"type": "web_search_tool_result", "tool_use_id": call, "content": results},
            {"type": "text", "text": _prose(filler, 1000)},
        ]
        said += [{"role": "user", "content": _prose(filler, 200)}, {"role": "assistant", "content": answer}]
    said.append(QUESTION)
    return _encode({"model": MODEL, "max_tokens": 4096, "stream": True, "messages": said, "tools": [NATIVE_SEARCH]})


def _claude_code(search: bool) -> dict[str, Any]:
    filler = random.Random(1)
    cached = {"cache_control": {"type": "ephemeral"}}
    question = [
        {"type": "text", "text": _prose(filler, 600)},
        {"type": "text", "text": "What is the latest stable Rust release? Use web search.", **cached},
    ]
    system = [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=0.0.0; cc_entrypoint=sdk; cch=00000;"},
        {"type": "text", "text": _prose(filler, 61), **cached},
        {"type": "text", "text": _prose(filler, 5560), **cached},
    ]
    tools: list[dict[str, Any]] = [
        {"name": name, "description": _prose(filler, description), "input_schema": _schema(filler, schema)}
        for name, (description, schema) in TOOLS.items()
    ]
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": question}, {"role": "system", "content": _prose(filler, 6061)}],
        "system": system,
        "tools": [*tools, WEB_SEARCH] if search else tools,
        "metadata": {"user_id": '{"device_id":"0","account_uuid":"","session_id":"0"}'},
        "max_tokens": 32000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
    }


def _encode(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _prose(filler: random.Random, characters: int) -> str:
    """Sentences of filler words, exactly that many characters."""
    text = ""
    while len(text) < characters:
        text += " ".join(filler.choices(WORDS, k=filler.randint(4, 14))).capitalize() + ". "
    return text[: characters - 1] + "."


def _schema(filler: random.Random, characters: int) -> dict[str, Any]:
    """A JSON schema of about that many characters: string properties, each with a short description."""
    properties: dict[str, Any] = {}
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": [],
        "additionalProperties": False,
    }
    while (room := characters - len(json.dumps(schema, separators=(",", ":")))) > 80:
        name = f"{filler.choice(WORDS)}_{len(properties)}"
        properties[name] = {"description": _prose(filler, min(room - 60, filler.randint(16, 120))), "type": "string"}
        if len(properties) == 1:
            schema["required"] = [name]
    return schema
