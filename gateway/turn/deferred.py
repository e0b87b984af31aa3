"""Deferred tools, for an upstream whose chat template does not know what a tool reference is.

A tool with ``defer_loading`` is not in the prompt's head; a reference makes it known from its own place on. What
upstream is given of that is the ``Mode``:

==========  ====================================  ==============================================================
mode        ``tools``                             a reference
==========  ====================================  ==============================================================
expand      without the deferred ones             the definition as text: ``<functions>``, one ``<function>{…}``
                                                  a line, ``</functions>``
declare     with the deferred ones that were      a sentence: the tool is loaded
            referenced, behind those never
            deferred, in order of reference
pass        as they are                           as it is
==========  ====================================  ==============================================================

With ``expand`` the prompt grows at its end only, whatever is discovered; with ``declare`` each discovery changes its
head. In both an addition counts as a reference, a removal becomes a sentence, and so does a reference to a tool that
is not declared any more; where the request forces a deferred tool, ``expand`` is ``declare``. ``pass`` changes only
what vLLM would raise on: the coming and going of a tool that is not declared, and of MCP servers' tools. What a tool
search of the gateway's own found is text in any mode, as ``expand`` writes it with ``pass``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from gateway.errors import InvalidRequest
from gateway.turn import jsonvalue
from gateway.turn.references import REFERENCE, SEARCH_RESULT, Block, Mention, mention_of, mentions, mentions_in

Mode = Literal["expand", "declare", "pass"]
Tool = dict[str, Any]
AsFunction = Callable[[Tool], Tool]

PLACEHOLDER = "DeferredToolPlaceholder"
"""A stub that Claude Code declares so that its tools count as deferred; no model is to see it."""

SEARCH_TYPE = "tool_search_tool_"
"""How the ``type`` of Anthropic's typed tool searches begins."""


def is_deferred(tool: object) -> bool:
    """Whether a declared tool stays out of the prompt's head until it is referenced."""
    return isinstance(tool, dict) and is_deferred_as(tool.get("name"), tool.get("defer_loading"))


def is_deferred_as(name: object, defer_loading: object) -> bool:
    """The same, told by these two members of it."""
    return defer_loading is True or name == PLACEHOLDER


def has_deferred(tools: object, messages: object) -> bool:
    """Whether a request is for this module: it has a deferred tool, a reference, an addition or a removal."""
    if isinstance(tools, list) and any(is_deferred(tool) for tool in tools):
        return True
    return any(True for _ in mentions(messages))


def check(tools: object, messages: object) -> None:
    """Refuse what Anthropic's API refuses of a request that declares a typed tool search; any other passes.

    Raises :class:`InvalidRequest` where all tools are deferred, where a deferred one has ``cache_control``, and where a
    ``tool_result`` answers a call that is the server's.
    """
    declared = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    if not any(str(tool.get("type")).startswith(SEARCH_TYPE) for tool in declared):
        return
    if all(is_deferred(tool) for tool in declared):
        raise InvalidRequest("tools: at least one tool must not have defer_loading: true")
    for place, tool in enumerate(tools if isinstance(tools, list) else ()):
        if is_deferred(tool) and tool.get("cache_control") is not None:
            raise InvalidRequest(f"tools.{place}.cache_control: a tool with defer_loading: true cannot have it")
    for place, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for position, block in enumerate(content if isinstance(content, list) else ()):
            if isinstance(block, dict) and block.get("type") == "tool_result":
                call = block.get("tool_use_id")
                if isinstance(call, str) and call.startswith("srvtoolu_"):
                    path = f"messages.{place}.content.{position}.tool_use_id"
                    raise InvalidRequest(f"{path}: {call} is a call of a server tool, which a client does not answer")


def definitions(messages: object) -> list[tuple[str, Tool]]:
    """The definitions that a conversation brings along, each with its path; they count as if in ``tools``."""
    return [
        (f"{path}.tool.definition", mention.definition)
        for path, mention in mentions(messages)
        if mention.definition is not None
    ]


class Deferral:
    """The deferred tools of one request, and every place where its conversation speaks of a tool.

    ``tools`` are the request's, in the form that upstream knows, each with the flag that it was declared with;
    ``messages`` and ``tool_choice`` are the request's own values. ``as_function`` gives a definition of the
    conversation in that form (a typed tool of the gateway's as a function); by default each is as it is.
    """

    def __init__(
        self,
        tools: object,
        messages: list[Any],
        mode: Mode,
        tool_choice: object = None,
        as_function: AsFunction = lambda tool: tool,
    ) -> None:
        self._messages = messages
        self._as_function = as_function
        self._tools: list[Any] = tools if isinstance(tools, list) else []
        self._declared: dict[str, Tool] = {}
        for tool in self._tools:
            if isinstance(tool, dict) and isinstance(tool.get("name"), str) and tool["name"] != PLACEHOLDER:
                self._declared[tool["name"]] = tool
        self._known = dict(self._declared)
        self._loaded: dict[str, None] = {}
        """The names of the tools that were made known, in that order."""
        for _, mention in mentions(messages):
            if mention.definition is not None and mention.server is None:
                self._known[mention.name] = as_function(mention.definition)
            if mention.what != "removed" and mention.server is None and mention.name in self._known:
                self._loaded[mention.name] = None
        forced = self._forced(tool_choice)
        self.mode: Mode = "declare" if mode == "expand" and forced is not None else mode
        if forced is not None:
            self._loaded[forced] = None

    @property
    def deferred(self) -> tuple[Tool, ...]:
        """The deferred tools: what a tool search looks through."""
        return tuple(tool for tool in self._known.values() if is_deferred(tool))

    def load(self, names: Iterable[str]) -> None:
        """These have been found since: from the next request on they count as referenced."""
        self._loaded.update(dict.fromkeys(names))

    def tools(self) -> list[Any] | None:
        """The tools for upstream; None where they are those that were given."""
        if self.mode == "pass":
            return None
        upstream = [tool for tool in self._tools if not is_deferred(tool)]
        if self.mode == "declare":
            upstream += [_undeferred(self._known[name]) for name in self._loaded if self._is_out(name)]
        return None if upstream == self._tools else upstream

    def messages(self, raw: Sequence[msgspec.Raw]) -> list[bytes] | None:
        """The conversation for upstream, a JSON value a message; None where it is the client's own.

        ``raw`` are the request's messages; one that speaks of no tool stays the bytes that it is. What a
        ``tool_search_tool_result`` refers to is told in its place; the block stays: it is a server block of ours.
        """
        telling = _Telling(self.mode, self._known if self.mode == "pass" else dict(self._declared), self._as_function)
        out: list[bytes] = []
        any_told = False
        for one, message in zip(raw, self._messages, strict=True):
            told = telling.messages(message)
            any_told = any_told or told is not None
            out += [bytes(one)] if told is None else [jsonvalue.write(value) for value in told]
        return out if any_told else None

    def told(self, names: Iterable[str]) -> str:
        """What upstream is told where a tool search of the gateway's own has found these."""
        telling = _Telling(self.mode, self._known, self._as_function)
        return telling.text([Mention("loaded", name) for name in names])

    def _forced(self, tool_choice: object) -> str | None:
        """The name of the tool that ``tool_choice`` forces, if that is not in the prompt's head."""
        if not isinstance(tool_choice, dict) or tool_choice.get("type") != "tool":
            return None
        name = tool_choice.get("name")
        return name if isinstance(name, str) and self._is_out(name) else None

    def _is_out(self, name: str) -> bool:
        """Whether a tool of this name is known, but not by the prompt's head."""
        return name in self._known and (name not in self._declared or is_deferred(self._declared[name]))


class _Telling:
    """A walk through the conversation that tells upstream in words what the blocks say.

    ``known`` are the tools known so far, by name; a definition that the conversation brings along joins them.
    """

    def __init__(self, mode: Mode, known: dict[str, Tool], as_function: AsFunction) -> None:
        self._mode = mode
        self._known = known
        self._as_function = as_function

    def messages(self, message: Any) -> list[Block] | None:
        """What stands for a message; None where it stays.

        What a message of role ``system`` says of tools is told in one of role ``user``: servers whose template wants
        its system message first move all of them there, and the prompt's head would change after all.
        """
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, list) or not any(self._is_told(block) for block in content):
            return None
        apart = self._mode != "pass" and message.get("role") == "system"
        parts: list[Block] = []
        for alone, group in groupby(content, lambda block: mention_of(block) is not None and self._is_told(block)):
            side_by_side = list(group)
            blocks = [self._text_block(side_by_side)] if alone else [self._block(block) for block in side_by_side]
            if apart or not parts:
                parts.append({**message, "content": blocks})
            else:
                parts[-1]["content"] += blocks
            if apart and alone:
                parts[-1]["role"] = "user"
        return parts

    def text(self, told: Iterable[Mention]) -> str:
        """What the model reads in place of mentions that stand side by side."""
        functions: list[str] = []
        sentences: list[str] = []
        for mention in told:
            if mention.definition is not None and mention.server is None:
                self._known[mention.name] = self._as_function(mention.definition)
            known = mention.server is None and self._known.get(mention.name)
            if not known or mention.what == "removed":
                sentences.append(_sentence(mention))
            elif self._mode == "declare":
                sentences.append(f"The tool {mention.name} is loaded and can be called now.")
            else:
                functions.append(_function_line(known))
        return "\n".join(["<functions>", *functions, "</functions>", *sentences] if functions else sentences)

    def _is_told(self, block: object) -> bool:
        """Whether a block has something to be told in words."""
        if self._mode != "pass" or _type(block) == SEARCH_RESULT:
            return any(True for _ in mentions_in(block))
        mention = mention_of(block)
        if mention is None or _type(block) == REFERENCE:
            return False
        if mention.definition is not None and self._as_function(mention.definition) is not mention.definition:
            return True
        return mention.server is not None or mention.name not in self._known

    def _text_block(self, blocks: Iterable[object]) -> Block:
        told = (mention for block in blocks if (mention := mention_of(block)) is not None)
        return {"type": "text", "text": self.text(told)}

    def _block(self, block: Any) -> Any:
        """A result with its references told; any other block as it is."""
        match _type(block):
            case "tool_result" if self._is_told(block):
                return {**block, "content": self._listed(block["content"])}
            case "tool_search_tool_result" if self._is_told(block):
                content = block["content"]
                return {**block, "content": {**content, "tool_references": self._listed(content["tool_references"])}}
        return block

    def _listed(self, blocks: list[Any]) -> list[Any]:
        told: list[Any] = []
        for refers, group in groupby(blocks, lambda item: mention_of(item) is not None):
            side_by_side = list(group)
            told += [self._text_block(side_by_side)] if refers else side_by_side
        return told


def _sentence(mention: Mention) -> str:
    if mention.server is None:
        what = f"The tool {mention.name}"
    elif mention.name:
        what = f"The tool {mention.name} of the MCP server {mention.server}"
    else:
        what = f"Each tool of the MCP server {mention.server}"
    if mention.what == "removed":
        return f"{what} has been removed: it cannot be called from here on."
    return f"{what} is not available." if mention.server is None else f"{what} can be called from here on, if declared."


def _function_line(function: Tool) -> str:
    """A definition in the form that Claude Code's own tool search promises the model."""
    parts = {"description": "description", "name": "name", "input_schema": "parameters"}
    shown: Mapping[str, Any] = {said: function[key] for key, said in parts.items() if function.get(key) is not None}
    return f"<function>{jsonvalue.write(shown).decode()}</function>"


def _undeferred(tool: Tool) -> Tool:
    return {key: value for key, value in tool.items() if key != "defer_loading"}


def _type(block: object) -> object:
    return block.get("type") if isinstance(block, dict) else None
