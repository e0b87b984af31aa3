"""Whose tool is it, and how is it presented: read from what a request declares, never guessed.

==============================================  =======  ============
the request declares                            owner    presentation
==============================================  =======  ============
``web_search_YYYYMMDD`` named ``web_search``    gateway  native
a function named as a gateway tool              gateway  hidden
a function the operator aliased                 gateway  hidden
any other function, any other typed tool        client   as it is
==============================================  =======  ============
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import InvalidRequest
from gateway.turn.tool import UserLocation

WEB_SEARCH = "web_search"
GATEWAY_TOOLS = frozenset({WEB_SEARCH})
_TYPED = re.compile(r"web_search_\d{8}")

WEB_SEARCH_FUNCTION: dict[str, Any] = {
    "name": WEB_SEARCH,
    "description": "Search the web for current information. Returns numbered results: title, url, date, snippet.",
    "input_schema": {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "The search query."}},
        "required": ["query"],
    },
}
"""What a typed tool, which has no schema of its own, is declared as upstream."""


@dataclass(frozen=True, slots=True)
class NativeTool:
    """The fields of a typed ``web_search`` that have a meaning here."""

    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    user_location: UserLocation | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """A request's tools by owner. ``upstream_tools`` is None where the client's own list can go upstream as it is."""

    native: NativeTool | None = None
    hidden: frozenset[str] = field(default_factory=frozenset)
    upstream_tools: list[Any] | None = None


NOTHING = Declared()


def read_tools(tools: object, aliases: Mapping[str, str]) -> Declared:
    """Read the value of ``tools``; what is not ours, well formed or not, is upstream's to judge.

    Raises :class:`InvalidRequest` for a name of the gateway's declared twice and for a field of a typed tool that
    cannot be read.
    """
    if not isinstance(tools, list):
        return NOTHING
    native: NativeTool | None = None
    seen: dict[str, int] = {}
    hidden: set[str] = set()
    upstream: list[Any] = []
    for place, tool in enumerate(tools):
        name = tool.get("name") if isinstance(tool, dict) else None
        ours = isinstance(name, str) and (name in GATEWAY_TOOLS or name in aliases)
        if isinstance(name, str) and ours and (is_typed(tool) or is_function(tool)):
            if name in seen:
                raise InvalidRequest(f"tools.{place}.name: {name!r} is already declared by tools.{seen[name]}")
            seen[name] = place
            if is_typed(tool):
                native = read_native(tool, f"tools.{place}")
                upstream.append(WEB_SEARCH_FUNCTION)
                continue
            hidden.add(name)
        upstream.append(tool)
    if not seen:
        return NOTHING
    return Declared(native, frozenset(hidden), upstream if native is not None else None)


def is_typed(tool: dict[str, Any]) -> bool:
    """Whether ``tool`` is Anthropic's typed web search, of any date."""
    kind = tool.get("type")
    return isinstance(kind, str) and _TYPED.fullmatch(kind) is not None and tool.get("name") == WEB_SEARCH


def is_function(tool: dict[str, Any]) -> bool:
    """Whether ``tool`` is a function of the client's own (no ``type``, or ``custom``)."""
    return tool.get("type") in (None, "custom")


def read_native(tool: dict[str, Any], path: str) -> NativeTool:
    """The fields of a typed tool; extra ones are let be. Raises :class:`InvalidRequest` with the field's path."""
    max_uses = tool.get("max_uses")
    if max_uses is not None and (isinstance(max_uses, bool) or not isinstance(max_uses, int) or max_uses < 1):
        raise InvalidRequest(f"{path}.max_uses: must be an integer of at least 1")
    allowed = read_domains(tool.get("allowed_domains"), f"{path}.allowed_domains")
    blocked = read_domains(tool.get("blocked_domains"), f"{path}.blocked_domains")
    if allowed and blocked:
        raise InvalidRequest(f"{path}: allowed_domains and blocked_domains cannot both be set")
    return NativeTool(max_uses, allowed, blocked, _location(tool.get("user_location"), f"{path}.user_location"))


def read_domains(value: object, path: str) -> tuple[str, ...]:
    """A list of domains; null and the empty list mean none. Raises :class:`InvalidRequest`."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(domain, str) and domain.strip() for domain in value):
        raise InvalidRequest(f"{path}: must be a list of domains, each a non-empty string")
    return tuple(value)


def _location(value: object, path: str) -> UserLocation | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path}: must be an object")
    parts: dict[str, str | None] = {}
    for name in ("city", "region", "country", "timezone"):
        part = value.get(name)
        if part is not None and not isinstance(part, str):
            raise InvalidRequest(f"{path}.{name}: must be a string")
        parts[name] = part
    return UserLocation(**parts)
