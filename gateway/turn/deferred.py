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
is not declared any more. ``pass`` changes only what vLLM would raise on: the coming and going of a tool that is not
declared, and of MCP servers' tools.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

import msgspec

from gateway.errors import InvalidRequest
from gateway.turn import jsonvalue
from gateway.turn.references import REFERENCE, Block, Mention, mention_of, mentions, mentions_in

Mode = Literal["expand", "declare", "pass"]
Tool = dict[str, Any]
AsFunction = Callable[[Tool], Tool]

PLACEHOLDER = "DeferredToolPlaceholder"
"""A stub that Claude Code declares so that its tools count as deferred; no model is to see it."""

SEARCH_TYPE = "tool_search_tool_"
"""How the ``type`` of Anthropic's typed tool searches begins."""


def is_deferred(tool: object) -> bool:
    """Whether a declared tool stays out of the prompt's head until it is referenced."""
    return isinstance(tool, dict) and (tool.get("defer_loading") is True or tool.get("name") == PLACEHOLDER)


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


class Deferral:
    """The deferred tools of one request, and every place where its conversation speaks of a tool.

    ``tools`` and ``messages`` are the request's own values. ``as_function`` gives a tool in the form that upstream
    knows (a typed tool of the gateway's as a function); by default each is as it is.
    """

    def __init__(self, tools: object, messages: object, as_function: AsFunction = lambda tool: tool) -> None:
        self._as_function = as_function
        self._tools: list[Any] = tools if isinstance(tools, list) else []
        self._declared: dict[str, Tool] = {}
        for tool in self._tools:
            if isinstance(tool, dict) and isinstance(tool.get("name"), str) and tool["name"] != PLACEHOLDER:
                self._declared[tool["name"]] = tool
        self._known = dict(self._declared)
        self.defined: list[tuple[str, Tool]] = []
        """The definitions that the conversation brings along, each with its path; they count as if in ``tools``."""
        loaded: dict[str, None] = {}
        for path, mention in mentions(messages):
            if mention.definition is not None:
                self.defined.append((f"{path}.tool.definition", mention.definition))
                if mention.server is None:
                    self._known[mention.name] = mention.definition
            if mention.what != "removed" and mention.server is None and mention.name in self._known:
                loaded[mention.name] = None
        self.referenced = tuple(loaded)
        """Names of the tools that the conversation has made known, in the order in which it did."""

    @property
    def deferred(self) -> tuple[Tool, ...]:
        """The deferred tools in the form that upstream knows: what a tool search looks through."""
        return tuple(self._function(tool) for tool in self._known.values() if is_deferred(tool))

    def forced(self, tool_choice: object) -> str | None:
        """The name of the tool that ``tool_choice`` forces, if that is not in the prompt's head."""
        if not isinstance(tool_choice, dict) or tool_choice.get("type") != "tool":
            return None
        name = tool_choice.get("name")
        return name if isinstance(name, str) and self._is_out(name) else None

    def tools(self, mode: Mode, found: Iterable[str] = (), forced: str | None = None) -> list[Any]:
        """The tools for upstream.

        ``found`` are names that were referenced since the request came, ``forced`` is the one that it forces: with
        ``declare`` they are declared as those are that the conversation refers to.
        """
        if mode == "pass":
            return [self._function(tool) for tool in self._tools]
        upstream = [self._function(tool) for tool in self._tools if not is_deferred(tool)]
        if mode == "declare":
            named = dict.fromkeys([*self.referenced, *found, *([] if forced is None else [forced])])
            upstream += [_undeferred(self._function(self._known[name])) for name in named if self._is_out(name)]
        return upstream

    def messages(self, raw: Sequence[msgspec.Raw], mode: Mode) -> list[bytes]:
        """The conversation for upstream, a JSON value a message; one that speaks of no tool is the bytes it was.

        ``raw`` are the request's messages. A ``tool_search_tool_result`` stays: that is a server block of ours.
        """
        telling = _Telling(mode, self._known if mode == "pass" else dict(self._declared), self._function)
        out: list[bytes] = []
        for one in raw:
            changed = telling.messages(jsonvalue.read(one))
            out += [bytes(one)] if changed is None else [jsonvalue.write(message) for message in changed]
        return out

    def loaded(self, names: Iterable[str], mode: Mode) -> str | list[Block]:
        """The content of a ``tool_result`` that refers to these tools, for upstream."""
        if mode == "pass":
            return [{"type": REFERENCE, "tool_name": name} for name in names]
        return _Telling(mode, self._known, self._function).text([Mention("loaded", name) for name in names])

    def _is_out(self, name: str) -> bool:
        """Whether a tool of this name is known, but not by the prompt's head."""
        return name in self._known and (name not in self._declared or is_deferred(self._declared[name]))

    def _function(self, tool: Any) -> Any:
        return self._as_function(tool) if isinstance(tool, dict) else tool


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
            blocks = [self._text_block(side_by_side)] if alone else [self._result(block) for block in side_by_side]
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
                self._known[mention.name] = mention.definition
            known = mention.server is None and self._known.get(mention.name)
            if not known or mention.what == "removed":
                sentences.append(_sentence(mention))
            elif self._mode == "expand":
                functions.append(_function_line(self._as_function(known)))
            else:
                sentences.append(f"The tool {mention.name} is loaded and can be called now.")
        return "\n".join(["<functions>", *functions, "</functions>", *sentences] if functions else sentences)

    def _is_told(self, block: object) -> bool:
        """Whether a block has something to be told in words."""
        if self._mode != "pass":
            return not _is_search_result(block) and any(True for _ in mentions_in(block))
        mention = mention_of(block)
        if mention is None or _type(block) == REFERENCE or mention.definition is not None:
            return False
        return mention.server is not None or mention.name not in self._known

    def _text_block(self, blocks: Iterable[object]) -> Block:
        told = (mention for block in blocks if (mention := mention_of(block)) is not None)
        return {"type": "text", "text": self.text(told)}

    def _result(self, block: Any) -> Any:
        """A ``tool_result`` with its references told; any other block as it is."""
        if _type(block) != "tool_result" or not self._is_told(block):
            return block
        content: list[Any] = []
        for refers, group in groupby(block["content"], lambda item: mention_of(item) is not None):
            side_by_side = list(group)
            content += [self._text_block(side_by_side)] if refers else side_by_side
        return {**block, "content": content}


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


def _is_search_result(block: object) -> bool:
    return _type(block) == "tool_search_tool_result"
