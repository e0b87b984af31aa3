"""What vLLM's ``/v1/messages`` accepts, read into types.

Source of the shapes: vLLM's Messages endpoint, 0.32.0. Unknown fields are ignored there, so they are here; a field of
the wrong type, or a block of a type it does not know, is a 400 there, so it is here.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from gateway.errors import InvalidRequest


class ToolDefinition(msgspec.Struct, kw_only=True):
    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class NamedTool(msgspec.Struct, tag="tool_reference"):
    """A tool change that names a declared tool."""

    name: str


class DefinedTool(msgspec.Struct, tag="tool_definition"):
    """A tool change that brings its own definition."""

    definition: ToolDefinition


class Block(msgspec.Struct, kw_only=True):
    type: Literal[
        "text",
        "image",
        "tool_use",
        "tool_result",
        "tool_reference",
        "thinking",
        "redacted_thinking",
        "tool_addition",
        "tool_removal",
    ]
    text: str | None = None
    source: dict[str, Any] | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[dict[str, Any]] | None = None
    thinking: str | None = None
    tool: NamedTool | DefinedTool | None = None


class Message(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class ToolChoice(msgspec.Struct, kw_only=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputFormat(msgspec.Struct):
    type: Literal["json_schema"] = "json_schema"
    schema: dict[str, Any] | None = None


class OutputConfig(msgspec.Struct):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class Thinking(msgspec.Struct):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None


class Sampling(msgspec.Struct, kw_only=True):
    """What a Messages request says about sampling and output, whatever its prompt is."""

    model: str
    max_tokens: int
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    # vLLM's own, taken over by the chat and completions endpoints under the same names
    cache_salt: str | None = None
    watermarking: bool | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def common(self) -> dict[str, Any]:
        """The parameters that the chat and completions endpoints share; those not given are left out."""
        thinking = self.thinking
        given = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "stop": self.stop_sequences,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "cache_salt": self.cache_salt,
            "watermarking": self.watermarking,
            "kv_transfer_params": self.kv_transfer_params,
            "ec_transfer_params": self.ec_transfer_params,
            "vllm_xargs": self.vllm_xargs,
            "response_format": self._response_format(),
            "thinking_token_budget": thinking.budget_tokens if thinking and thinking.type == "enabled" else None,
        }
        return {name: value for name, value in given.items() if value is not None}

    def _response_format(self) -> dict[str, Any] | None:
        output_format = self.output_config.format if self.output_config else None
        if output_format is None or not output_format.schema:
            return None
        return {"type": "json_schema", "json_schema": {"name": "json_schema", "schema": output_format.schema}}

    def check(self) -> None:
        """The rules that types cannot say. Raises :class:`~gateway.errors.InvalidRequest`."""
        if not self.model:
            raise InvalidRequest("model: must not be empty")
        if self.max_tokens <= 0:
            raise InvalidRequest("max_tokens: must be positive")
        if self.thinking is not None and self.thinking.type == "enabled":
            budget = self.thinking.budget_tokens
            if budget is None or budget < 1024:
                raise InvalidRequest("thinking.budget_tokens: must be at least 1024")
            # A prefill-only request of disaggregated serving asks for one token and decodes elsewhere.
            prefill_only = bool((self.kv_transfer_params or {}).get("do_remote_decode"))
            if budget >= self.max_tokens and not prefill_only:
                raise InvalidRequest("thinking.budget_tokens: must be less than max_tokens")


class MessagesBody(Sampling, kw_only=True):
    messages: list[Message]
    system: str | list[Block] | None = None
    tools: list[ToolDefinition] | None = None
    tool_choice: ToolChoice | None = None

    def check(self) -> None:
        super().check()
        if self.tool_choice is not None and self.tool_choice.type == "tool" and not self.tool_choice.name:
            raise InvalidRequest("tool_choice.name: required when the type is tool")
        for position, message in enumerate(self.messages):
            if isinstance(message.content, str):
                continue
            for index, block in enumerate(message.content):
                if block.type in ("tool_addition", "tool_removal"):
                    _check_tool_change(block, message.role, f"messages.{position}.content.{index}")


def read_messages_body(body: Mapping[str, Any]) -> MessagesBody:
    """A decoded Messages request in types; raises :class:`~gateway.errors.InvalidRequest` naming what is wrong."""
    return _read(body, MessagesBody)


def read_sampling(body: Mapping[str, Any]) -> Sampling:
    """The sampling half of a Messages request whose prompt is ``input_ids``; raises as above."""
    return _read(body, Sampling)


Body = TypeVar("Body", bound=Sampling)
MISSING_FIELD = re.compile(r"Object missing required field `(?P<name>\w+)`")


def _read(body: Mapping[str, Any], shape: type[Body]) -> Body:
    try:
        read = msgspec.convert(body, shape)
    except msgspec.ValidationError as error:
        raise InvalidRequest(_complaint(str(error))) from error
    read.check()
    return read


def _complaint(message: str) -> str:
    """msgspec's message, the path first: ``messages.0.role: Expected `str`, got `int```."""
    what, _, where = message.partition(" - at `$")
    path = where.rstrip("`").replace("[", ".").replace("]", "").strip(".")
    missing = MISSING_FIELD.fullmatch(what)
    if missing:
        return ".".join(filter(None, (path, missing["name"]))) + ": required"
    return f"{path}: {what}"


def _check_tool_change(block: Block, role: str, where: str) -> None:
    if role != "system":
        raise InvalidRequest(f"{where}: {block.type} blocks belong to messages with role system")
    if block.tool is None:
        raise InvalidRequest(f"{where}.tool: required for {block.type} blocks")
    if block.type == "tool_removal" and not isinstance(block.tool, NamedTool):
        raise InvalidRequest(f"{where}.tool: a tool_removal takes a tool_reference")
