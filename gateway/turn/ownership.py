"""Whose tool is it, and how is it presented: read from what a request declares, never guessed.

==============================================  =======  =============================================
the request declares                            owner    presentation
==============================================  =======  =============================================
the typed tool of a kind                        gateway  native
a server tool of Anthropic's that is no kind's  nobody   refused, or left out
a client tool that Anthropic defines by type    client   as it is; upstream gets its published schema
a function that a kind takes over by its name   gateway  hidden
a function the operator aliased                 gateway  hidden
any other function, any other typed tool        client   as it is
==============================================  =======  =============================================
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gateway.errors import InvalidRequest
from gateway.turn.client_tools import published
from gateway.turn.kind import AnyTool, Declaration
from gateway.turn.kinds import Kinds
from gateway.turn.server_tools import is_server_tool


@dataclass(frozen=True, slots=True)
class Declared:
    """The gateway's tools in a request, by the name of the function that upstream sees.

    ``upstream_tools`` is None where the client's own list can go upstream as it is. ``left`` are functions with the
    name of one of the gateway's that stay the client's for their schema, ``dropped`` the types of the server tools that
    were left out because nobody here has them.
    """

    tools: Mapping[str, AnyTool] = field(default_factory=dict)
    upstream_tools: list[Any] | None = None
    left: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    @property
    def concerns(self) -> bool:
        """Whether there is anything for the gateway to do."""
        return bool(self.tools) or self.upstream_tools is not None

    @property
    def hidden(self) -> bool:
        """Whether a hidden tool is among them."""
        return not all(tool.native for tool in self.tools.values())

    @property
    def native(self) -> frozenset[str]:
        """The names of the native ones."""
        return frozenset(name for name, tool in self.tools.items() if tool.native)


NOTHING = Declared()


def read_tools(
    tools: object,
    kinds: Kinds,
    aliases: Mapping[str, str],
    defined: Sequence[tuple[str, Mapping[str, Any]]] = (),
    *,
    drop_unknown: bool = False,
) -> Declared:
    """Read the value of ``tools``; what is not ours, well formed or not, is upstream's to judge.

    ``defined`` are the definitions that the conversation brings along, each with its path: whose they are is told in
    the same way, but they are no part of the list for upstream, and the first of a name counts.
    Raises :class:`InvalidRequest` for a name of the gateway's declared twice, for a field of a typed tool that cannot
    be read, and, unless ``drop_unknown`` has those left out, for a server tool of Anthropic's that is of no kind.
    """
    entries = tools if isinstance(tools, list) else []
    ours: dict[str, AnyTool] = {}
    places: dict[str, int] = {}
    upstream: list[Any] = []
    left: list[str] = []
    dropped: list[str] = []
    changed = False
    for place, entry in enumerate(entries):
        offer = _offered(Declaration(entry, f"tools.{place}", entries), kinds, aliases)
        if offer.unknown:
            if not drop_unknown:
                raise _nobody_has(f"tools.{place}.type", entry["type"], kinds)
            dropped.append(entry["type"])
        changed = changed or offer.upstream is not None
        upstream += [entry] if offer.upstream is None else offer.upstream
        left += [] if offer.left is None else [offer.left]
        for tool in offer.tools:
            if tool.name in ours:
                first = f"tools.{places[tool.name]}"
                raise InvalidRequest(f"tools.{place}.name: {tool.name!r} is already declared by {first}")
            ours[tool.name], places[tool.name] = tool, place
    for path, entry in defined:
        for tool in _offered(Declaration(entry, path, entries), kinds, aliases).tools:
            ours.setdefault(tool.name, tool)
    return Declared(ours, upstream if changed else None, tuple(left), tuple(dropped))


def as_function(entry: dict[str, Any], kinds: Kinds) -> dict[str, Any]:
    """A definition of the conversation in the form that upstream knows: that of a typed tool is its function."""
    for_client = published(entry)
    if for_client is not None:
        return for_client
    kind = kinds.of_typed(entry)
    offered = () if kind is None else kind.read_typed(Declaration(entry, "messages", []))
    function = offered[0].function if offered else None
    return entry if function is None else _deferred_as(entry, function)


class _Offer(NamedTuple):
    """What an entry of ``tools`` comes to.

    ``tools`` are the gateway's that it declares, ``upstream`` what stands upstream in its place (None: it does itself),
    ``left`` the function that it is not taken over for. ``unknown``: it is a server tool that nobody here has.
    """

    tools: Sequence[AnyTool] = ()
    upstream: Sequence[Any] | None = None
    left: str | None = None
    unknown: bool = False


def _offered(declaration: Declaration, kinds: Kinds, aliases: Mapping[str, str]) -> _Offer:
    entry = declaration.entry
    if not isinstance(entry, dict):
        return _Offer()
    function = stands_for(entry.get("type"), entry.get("name"), kinds, aliases)
    if function is not None:
        tool = kinds.functions[function].read_function(entry, aliased=entry["name"] in aliases)
        return _Offer(left=function) if tool is None else _Offer((tool,))
    kind = kinds.of_typed(entry)
    if kind is None and is_server_tool(entry.get("type")):
        return _Offer(upstream=(), unknown=True)
    if kind is None:
        function_for_it = published(entry)
        return _Offer() if function_for_it is None else _Offer(upstream=(function_for_it,))
    tools = kind.read_typed(declaration)
    return _Offer(tools, [_deferred_as(entry, tool.function) for tool in tools])


def _deferred_as(entry: Mapping[str, Any], function: Any) -> Any:
    """The function of a typed declaration, deferred where that is."""
    return {**function, "defer_loading": True} if entry.get("defer_loading") is True else function


def _nobody_has(path: str, declared_type: str, kinds: Kinds) -> InvalidRequest:
    have = ", ".join(kind.name for kind in kinds) or "none"
    return InvalidRequest(
        f"{path}: the gateway has no server tool {declared_type}; it has {have}. Leave the tool out of the request, or "
        "start the gateway with --unknown-server-tools drop, which leaves it out"
    )


def stands_for(declared_type: object, name: object, kinds: Kinds, aliases: Mapping[str, str]) -> str | None:
    """The function of a kind that a declared tool may be taken over for; None where it cannot be.

    Told by its ``type`` (a function has none, or ``custom``) and its ``name``; its schema may still say otherwise.
    """
    if (declared_type is None or declared_type == "custom") and isinstance(name, str):
        return aliases.get(name, name if name in kinds.by_name else None)
    return None
