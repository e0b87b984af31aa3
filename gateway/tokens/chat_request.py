"""A Messages request as the chat completion request that vLLM's own ``/v1/messages`` makes of it.

Source: vLLM's Messages endpoint, 0.32.0, followed field by field, so that both routes render the same prompt and sample
the same tokens. Two things vLLM decides by looking at its chat template, which nobody can from outside: it may merge
``system`` messages that are not first into the first, and it may turn ``thinking: disabled`` into a low effort. Here
such messages stay where they stand, and disabled is ``reasoning_effort: none``.
"""

import json
from collections.abc import Iterable
from typing import Any

from gateway.errors import InvalidRequest
from gateway.tokens.fields import TokenFields
from gateway.tokens.messages_body import (
    Block,
    DefinedTool,
    Message,
    MessagesBody,
    ToolDefinition,
    read_messages_body,
)

BILLING_HEADER = "x-anthropic-billing-header"
"""How a text of Claude Code's begins that vLLM drops: it changes with every request, and the prompt cache with it."""

Json = dict[str, Any]


def chat_request(body: Json, fields: TokenFields, *, stream: bool) -> Json:
    """The body for ``POST /v1/chat/completions``.

    Raises :class:`~gateway.errors.InvalidRequest` for what vLLM's ``/v1/messages`` would not accept either.
    """
    request = read_messages_body(body)
    chat = request.common() | {
        "messages": [*_system(request), *(entry for message in request.messages for entry in _entries(message))],
        "max_completion_tokens": request.max_tokens,
        "return_token_ids": True,
    }
    if request.chat_template_kwargs is not None:
        chat["chat_template_kwargs"] = request.chat_template_kwargs
    effort = _reasoning_effort(request)
    if effort is not None:
        chat["reasoning_effort"] = effort
    if fields.return_logprob:
        chat |= {"logprobs": True, "top_logprobs": 0}
    if fields.include_stop_str_in_output:
        chat["include_stop_str_in_output"] = True
    if stream:
        chat |= {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    return chat | _tool_parameters(request)


def _reasoning_effort(request: MessagesBody) -> str | None:
    if request.thinking is not None and request.thinking.type == "disabled":
        return "none"
    return request.output_config.effort if request.output_config else None


def _tool_parameters(request: MessagesBody) -> Json:
    tools = _tools_in_effect(request)
    choice = request.tool_choice
    parameters: Json = {}
    if choice is not None:
        parameters["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    if tools:
        parameters["tools"] = [_function(tool) for tool in tools]
    if choice is None or choice.type == "auto":
        # null, not left out: left out is "none", and then vLLM gives the text of a call back as text.
        parameters["tool_choice"] = "auto" if tools else None
    elif choice.type == "any":
        parameters["tool_choice"] = "required"
    elif choice.type == "none":
        parameters["tool_choice"] = "none"
    else:
        parameters["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    return parameters


def _function(tool: ToolDefinition) -> Json:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.input_schema if "type" in tool.input_schema else tool.input_schema | {"type": "object"},
            "strict": tool.strict,
            "defer_loading": tool.defer_loading,
        },
    }


def _tools_in_effect(request: MessagesBody) -> list[ToolDefinition]:
    """The declared tools after the conversation's ``tool_addition`` and ``tool_removal`` blocks."""
    tools = {tool.name: tool for tool in request.tools or ()}
    changes = [block for block in _blocks(request.messages) if block.type in ("tool_addition", "tool_removal")]
    if not changes:
        return request.tools or []
    removed: set[str] = set()
    for change in changes:
        if isinstance(change.tool, DefinedTool):
            name = change.tool.definition.name
            tools[name] = change.tool.definition
        else:
            name = change.tool.name if change.tool else ""
            if name not in tools:
                raise InvalidRequest(f"messages: a {change.type} names {name!r}, which tools does not declare")
            if change.type == "tool_addition":
                tools[name].defer_loading = None
        if change.type == "tool_removal":
            removed.add(name)
        else:
            removed.discard(name)
    return [tool for name, tool in tools.items() if name not in removed]


def _blocks(messages: Iterable[Message]) -> Iterable[Block]:
    return (block for message in messages if not isinstance(message.content, str) for block in message.content)


def _system(request: MessagesBody) -> list[Json]:
    # A top-level string is kept whole; of blocks, those with the billing header go.
    text = request.system if isinstance(request.system, str) else _joined_texts(request.system or [])
    return [{"role": "system", "content": text}] if text else []


def _joined_texts(content: str | list[Block]) -> str:
    texts = [content] if isinstance(content, str) else [block.text or "" for block in content if block.type == "text"]
    return "".join(text for text in texts if not text.startswith(BILLING_HEADER))


def _entries(message: Message) -> list[Json]:
    """One Messages message as the chat messages it becomes: a tool result is one of its own, before the rest."""
    if message.role == "system":
        text = _joined_texts(message.content)
        return [{"role": "system", "content": text}] if text else []
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]

    results: list[Json] = []
    parts: list[Json] = []
    calls: list[Json] = []
    reasoning: list[str] = []
    for block in message.content:
        if block.type == "text" and block.text:
            parts.append({"type": "text", "text": block.text})
        elif block.type == "image" and block.source:
            parts.append(_image(block.source))
        elif block.type == "thinking" and block.thinking is not None:
            reasoning.append(block.thinking)
        elif block.type == "tool_use":
            calls.append(_call(block))
        elif block.type == "tool_result" and message.role == "user":
            results += _tool_result(block)
        elif block.type == "tool_result":
            parts.append({"type": "text", "text": f"Tool result: {str(block.content) if block.content else ''}"})

    entry: Json = {"role": message.role}
    if reasoning:
        entry["reasoning"] = "".join(reasoning)
    if calls:
        entry["tool_calls"] = calls
    if parts:
        alone = len(parts) == 1 and parts[0]["type"] == "text"
        entry["content"] = parts[0]["text"] if alone else parts
    if message.role == "user" and not parts:
        return results
    return [*results, entry]


def _call(block: Block) -> Json:
    function = {"name": block.name or "", "arguments": json.dumps(block.input or {})}
    return {"id": block.id or "call_0", "type": "function", "function": function}


def _image(source: Json) -> Json:
    if source.get("type") == "url":
        url = source.get("url", "")
    else:
        url = f"data:{source.get('media_type', 'image/jpeg')};base64,{source.get('data', '')}"
    return {"type": "image_url", "image_url": {"url": url}}


def _tool_result(block: Block) -> list[Json]:
    """A result's text, then its images as a user message, then its tool references as a second result."""
    content = block.content or []
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    text = "\n".join(item.get("text", "") for item in content if item.get("type") == "text")
    images = [_image(item.get("source", {})) for item in content if item.get("type") == "image"]
    images = [image for image in images if image["image_url"]["url"]]
    names = [item.get("tool_name") or item.get("name") for item in content if item.get("type") == "tool_reference"]
    references = [{"type": "tool_reference", "name": name} for name in names if name]

    call_id = block.tool_use_id or ""
    entries: list[Json] = [{"role": "tool", "tool_call_id": call_id, "content": text}]
    if images:
        entries.append({"role": "user", "content": images})
    if references:
        entries.append({"role": "tool", "tool_call_id": call_id, "content": references})
    return entries
