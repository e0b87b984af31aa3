"""The kinds of tool that the gateway has: one line each."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from gateway.turn.kind import Kind
from gateway.turn.server_tools import CALLS, NOTES, OtherServerTools, is_result
from gateway.turn.tool_search import ToolSearchKind
from gateway.turn.web_search import WebSearchKind

COUNTERS = ("web_search_requests", "web_fetch_requests")
"""What ``usage.server_tool_use`` always has, in Anthropic's types."""


class Kinds:
    """A set of kinds: those of the gateway, with others that a turn has found for itself."""

    def __init__(self, kinds: Iterable[Kind], by_name: Collection[str] | None = None) -> None:
        self._kinds = tuple(kinds)
        self.others = OtherServerTools()
        """What stands for the server tools that none of these is, in the history alone."""
        self._results = {kind.result_type: kind for kind in self._kinds}
        self.functions: Mapping[str, Kind] = {name: kind for kind in self._kinds for name in kind.functions}
        """The kind that can take over a client's function, by the function's name."""
        self.by_name = frozenset(self.functions if by_name is None else by_name)
        """The functions that are taken over without an alias, by their name alone: all unless ``by_name`` has less."""
        ours = {"thinking", *self._results, *(kind.call_type for kind in self._kinds)}
        self.block_types = frozenset(ours | CALLS | NOTES)
        """The types of the history's blocks that the gateway may have to read, but for :func:`is_result`'s."""
        self.counters = tuple(dict.fromkeys([*COUNTERS, *(kind.counter for kind in self._kinds if kind.counter)]))
        """The members of ``usage.server_tool_use``."""

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds)

    def taking(self, by_name: Collection[str]) -> "Kinds":
        """The same kinds, of which only the functions ``by_name`` are taken over without an alias."""
        return Kinds(self._kinds, by_name)

    def of_typed(self, entry: Mapping[str, Any]) -> Kind | None:
        """The kind that an entry of ``tools`` is the typed declaration of."""
        for kind in self._kinds:
            if kind.is_typed(entry):
                return kind
        return None

    def of_call(self, block: object) -> Kind | None:
        """The kind that a block of the history is a native call of."""
        if isinstance(block, dict):
            block_type = block.get("type")
            for kind in self._kinds:
                if kind.call_type == block_type and kind.owns_call(block):
                    return kind
            if isinstance(block_type, str) and block_type in CALLS:
                return self.others
        return None

    def of_result(self, block: object) -> Kind | None:
        """The kind that a block of the history is a native call's result of."""
        block_type = block.get("type") if isinstance(block, dict) else None
        if not isinstance(block_type, str):
            return None
        return self._results.get(block_type) or (self.others if is_result(block_type) else None)


KINDS = Kinds(
    [
        WebSearchKind(),
        ToolSearchKind(),
    ]
)
