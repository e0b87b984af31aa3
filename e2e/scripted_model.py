"""A script where the model would be: which tools a question takes, and what an open model can know of them.

As with an open model, what counts is the prompt that a chat template makes of a request. A tool can be called where the
prompt has its definition: in the head, where templates print all of ``tools``, or in a text that a tool search gave.
One that is not known yet is looked for with the client's ``ToolSearch``.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

VERSION = re.compile(r"\b1\.\d+\.\d+\b")
CHARS_A_TOKEN = 4


@dataclass(frozen=True)
class Call:
    """One call of a tool."""

    tool: str
    input: dict[str, Any] = field(default_factory=dict)


Script = Mapping[str, tuple[Call, ...]]
"""Words of a user's message, and the calls, one a round, that answering it takes."""


def prompt_of(body: dict[str, Any]) -> str:
    """The prompt as a template that knows nothing of deferred tools writes it: the tools first, each as JSON."""
    head = [json.dumps(tool) for tool in body.get("tools") or []]
    told = [f"<{message['role']}>{text_of(message['content'])}" for message in _conversation(body)]
    return "\n".join([*head, *told])


def text_of(content: Any) -> str:
    """All that a message, or a block's content, says: texts, calls, results; a reference is no more than its name."""
    if isinstance(content, str):
        return content
    return "\n".join(_text_of_block(block) for block in content or [])


def answer(body: dict[str, Any], script: Script) -> list[dict[str, Any]]:
    """The content of the next message: a call the script asks for, or a text that names the version it has found."""
    messages = body["messages"]
    place, calls = _asked(messages, script)
    since = messages[place:]
    called = [block["name"] for block in _blocks(since) if block["type"] == "tool_use"]
    missing = next((call for call in calls if call.tool not in called), None)
    if missing is None:
        return [{"type": "text", "text": _closing(body, since)}]
    declared = {tool["name"] for tool in body.get("tools") or []}
    if missing.tool in declared or _is_told(missing.tool, messages):
        return _call(missing)
    if "ToolSearch" in declared and called.count("ToolSearch") <= calls.index(missing):
        return _call(Call("ToolSearch", {"query": f"select:{missing.tool}"}))
    return [{"type": "text", "text": f"There is no tool {missing.tool}."}]


def _asked(messages: list[dict[str, Any]], script: Script) -> tuple[int, tuple[Call, ...]]:
    """Where the last question of the script stands, and what it takes; the last message where there is none."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place]["role"] == "user":
            said = "\n".join(block["text"] for block in _blocks([messages[place]]) if block["type"] == "text")
            for words, calls in script.items():
                if words in said:
                    return place, calls
    return len(messages) - 1, ()


def _is_told(tool: str, messages: list[dict[str, Any]]) -> bool:
    return any(f'"name":"{tool}"' in text or f"The tool {tool} is loaded" in text for text in _texts(messages))


def _texts(messages: list[dict[str, Any]]) -> Iterator[str]:
    return (text_of(message["content"]) for message in messages)


def _closing(body: dict[str, Any], since: list[dict[str, Any]]) -> str:
    found = [found for text in [*_texts(body["messages"]), *_texts(since)] for found in VERSION.findall(text)]
    if not body.get("tools") and not found:
        return json.dumps({"title": "Latest Rust release"})
    return f"The latest stable Rust release is {found[-1]}." if found else "Nothing names a version."


def _call(call: Call) -> list[dict[str, Any]]:
    return [
        {"type": "thinking", "thinking": "\nI should look this up.\n"},
        {"type": "text", "text": "\n\n"},
        {"type": "tool_use", "name": call.tool, "input": call.input},
    ]


def _conversation(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [*([{"role": "system", "content": body["system"]}] if body.get("system") else []), *body["messages"]]


def _blocks(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for message in messages:
        content = message["content"]
        yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text_of_block(block: dict[str, Any]) -> str:
    match block["type"]:
        case "text":
            return str(block["text"])
        case "tool_use":
            return json.dumps({"call": block["name"], "input": block["input"]})
        case "tool_result":
            return text_of(block.get("content"))
        case "tool_reference":
            return str(block.get("tool_name"))
    return ""
