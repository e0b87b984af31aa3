"""How upstream's answers are read, and what they say of its parsers."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from gateway.commands.doctor.check import Check
from gateway.commands.vllm.families import family_of
from gateway.model_server.listing import ServedModel

_DOCS = "https://docs.vllm.ai/en/latest/features"
_MARKUP = re.compile(
    r"<tool_call|<function=|<invoke |<\|tool|<\uff5c|\[TOOL_CALLS]|<\|python_tag\|>|<\|channel\|>"
    r"|\"name\"\s*:\s*\"web_search\""
)
"""A call as models write it, before a parser takes it out of the text."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Upstream's answer to a Messages request: its blocks, or ``trouble`` in upstream's words; status 0: none came.

    ``timed_out``: none came in time.
    """

    status: int
    blocks: Sequence[dict[str, Any]] = field(default_factory=tuple)
    stop_reason: str | None = None
    trouble: str = ""
    timed_out: bool = False

    @property
    def is_message(self) -> bool:
        return not self.trouble

    @property
    def text(self) -> str:
        return "".join(block.get("text", "") for block in self.blocks if block.get("type") == "text")

    @property
    def calls(self) -> bool:
        return any(block.get("type") == "tool_use" for block in self.blocks)


def read_answer(answer: httpx.Response) -> Heard:
    """A Messages answer, or what upstream says is wrong."""
    if answer.status_code in (401, 403):
        return Heard(answer.status_code, trouble=f"HTTP {answer.status_code}: the key is refused")
    value = _json(answer)
    if not isinstance(value, dict):
        return Heard(answer.status_code, trouble=f"HTTP {answer.status_code}, and no JSON object")
    if answer.status_code == 200 and value.get("type") == "message" and isinstance(value.get("content"), list):
        blocks = [block for block in value["content"] if isinstance(block, dict)]
        return Heard(200, blocks, value.get("stop_reason"))
    error = value.get("error")
    words = error.get("message") if isinstance(error, dict) else None
    return Heard(answer.status_code, trouble=f"HTTP {answer.status_code}: {str(words or 'no message')[:300]}")


def tool_calls(model: ServedModel, free: Heard, forced: Heard) -> Check:
    """Whether calls come back as ``tool_use``: one that the model may make, and one that it must."""
    refused = next((answer for answer in (free, forced) if not answer.is_message), None)
    if refused is not None and "tool-call-parser" in refused.trouble:
        return Check("tool calls", "problem", "the model server runs without a tool call parser", _tool_fix(model))
    if refused is not None and refused.timed_out:
        return _late(refused)
    if refused is not None:
        return Check("tool calls", "problem", f"a request with a tool failed: {refused.trouble}", _tool_fix(model))
    if any(not answer.calls and _MARKUP.search(answer.text) for answer in (free, forced)):
        what = "the model calls a tool, and the call comes back as text: the parser is missing, or not this model's"
        return Check("tool calls", "problem", what, _tool_fix(model))
    if not forced.calls and forced.stop_reason == "max_tokens":
        return Check("tool calls", "note", "a forced call was cut off before it began; the model thinks for long")
    if not forced.calls:
        return Check("tool calls", "problem", "a forced call does not come back as tool_use", _tool_fix(model))
    if not free.calls:
        return Check("tool calls", "ok", "a forced call comes back as tool_use; left to itself the model made none")
    return Check("tool calls", "ok", "a call comes back as tool_use, forced or not")


def _late(answer: Heard) -> Check:
    what = f"{answer.trouble} to a request with a tool: the model thinks for long, or the server is busy"
    return Check("tool calls", "note", what, "try again when the model server has less to do")


def reasoning(model: ServedModel, answers: Sequence[Heard]) -> Check:
    """Whether thinking stays out of the text."""
    if any("<think>" in answer.text or "</think>" in answer.text for answer in answers):
        family = family_of(model.id, model.root)
        parser = family.reasoning_parser if family else None
        fix = _restart(
            model, f"--reasoning-parser {parser or 'NAME'}", None if parser else f"{_DOCS}/reasoning_outputs/"
        )
        return Check("reasoning", "problem", "thinking comes back as <think> text", fix)
    if any(block.get("type") == "thinking" for answer in answers for block in answer.blocks):
        return Check("reasoning", "ok", "thinking comes back in blocks of its own")
    return Check("reasoning", "ok", "no <think> in the text, and no thinking")


def _tool_fix(model: ServedModel) -> str:
    family = family_of(model.id, model.root)
    if family is None:
        flags, names = "--enable-auto-tool-choice --tool-call-parser NAME", f"{_DOCS}/tool_calling/"
        return _restart(model, flags, names)
    return _restart(model, " ".join(family.tool_flags), None)


def _restart(model: ServedModel, flags: str, names: str | None) -> str:
    if model.owner != "vllm":
        return f"restart the model server with its parser for this model (vLLM: {flags})"
    return f"restart vLLM with {flags}" + (f" (NAME for your model: {names})" if names else "")


def _json(answer: httpx.Response) -> Any:
    try:
        return json.loads(answer.content)
    except (ValueError, RecursionError):
        return None
