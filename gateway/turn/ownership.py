"""Whose tool is it, and how is it presented: read from what a request declares, never guessed.

==============================================  =======  ============
the request declares                            owner    presentation
==============================================  =======  ============
the typed tool of a kind                        gateway  native
a function that a kind takes over by its name   gateway  hidden
a function the operator aliased                 gateway  hidden
any other function, any other typed tool        client   as it is
==============================================  =======  ============
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import InvalidRequest
from gateway.turn.kind import AnyTool, Declaration
from gateway.turn.kinds import Kinds


@dataclass(frozen=True, slots=True)
class Declared:
    """The gateway's tools in a request, by the name of the function that upstream sees.

    ``upstream_tools`` is None where the client's own list can go upstream as it is.
    """

    tools: Mapping[str, AnyTool] = field(default_factory=dict)
    upstream_tools: list[Any] | None = None

    @property
    def hidden(self) -> bool:
        """Whether a hidden tool is among them."""
        return not all(tool.native for tool in self.tools.values())

    @property
    def native(self) -> frozenset[str]:
        """The names of the native ones."""
        return frozenset(name for name, tool in self.tools.items() if tool.native)


NOTHING = Declared()


def read_tools(tools: object, kinds: Kinds, aliases: Mapping[str, str]) -> Declared:
    """Read the value of ``tools``; what is not ours, well formed or not, is upstream's to judge.

    Raises :class:`InvalidRequest` for a name of the gateway's declared twice and for a field of a typed tool that
    cannot be read.
    """
    if not isinstance(tools, list):
        return NOTHING
    ours: dict[str, AnyTool] = {}
    places: dict[str, int] = {}
    upstream: list[Any] = []
    typed = False
    for place, entry in enumerate(tools):
        declared: Sequence[AnyTool] = ()
        kind = None
        if isinstance(entry, dict):
            function = stands_for(entry.get("type"), entry.get("name"), kinds, aliases)
            if function is not None:
                tool = kinds.functions[function].read_function(entry, aliased=entry["name"] in aliases)
                declared = () if tool is None else (tool,)
            else:
                kind = kinds.of_typed(entry)
        if kind is None:
            upstream.append(entry)
        else:
            typed = True
            declared = kind.read_typed(Declaration(entry, f"tools.{place}", tools))
            upstream += [tool.function for tool in declared]
        for tool in declared:
            if tool.name in ours:
                first = f"tools.{places[tool.name]}"
                raise InvalidRequest(f"tools.{place}.name: {tool.name!r} is already declared by {first}")
            ours[tool.name], places[tool.name] = tool, place
    return Declared(ours, upstream if typed else None) if ours or typed else NOTHING


def stands_for(declared_type: object, name: object, kinds: Kinds, aliases: Mapping[str, str]) -> str | None:
    """The function of a kind that a declared tool may be taken over for; None where it cannot be.

    Told by its ``type`` (a function has none, or ``custom``) and its ``name``; its schema may still say otherwise.
    """
    if (declared_type is None or declared_type == "custom") and isinstance(name, str):
        return aliases.get(name, name if name in kinds.functions else None)
    return None
