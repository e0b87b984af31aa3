"""A kind of gateway tool: everything that sets one apart, in one class that the turn asks.

The turn itself knows calls, results and rounds, and no tool by name. A :class:`Kind` says how its tool is declared and
how its blocks are read when they come back; a :class:`Tool` is what one request declares of it: one function that
upstream sees, with the restrictions that the request set. What a tool does with IO is its runner's
(:class:`gateway.tools.runner.ToolRunner`): a kind makes the job that it is given, and reads the outcome.

A new kind is a module with these two classes and a line in :mod:`gateway.turn.kinds`; where its calls need IO, also a
runner and a line in :mod:`gateway.tools.runners`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from gateway.turn.deferred import Deferral
from gateway.turn.seal import Sealer

Block = dict[str, Any]
JobT = TypeVar("JobT")
OutcomeT = TypeVar("OutcomeT", bound="Outcome")


class Outcome(Protocol):
    """How a call ended. ``error`` is a short code from a fixed set (a label in the metrics), None if it returned."""

    @property
    def error(self) -> str | None: ...


class Conversation(Protocol):
    """What has been said up to a call, for a tool whose calls depend on it."""

    @property
    def fields(self) -> Mapping[str, bytes]:
        """The client's request but its messages: each member as the bytes it came in."""

    @property
    def messages(self) -> Sequence[bytes]:
        """The conversation as upstream knows it, JSON messages: the client's, then those of this turn's rounds."""

    @property
    def deferral(self) -> Deferral | None:
        """The request's deferred tools; None where it has none."""


@dataclass(frozen=True, slots=True)
class Declaration:
    """A typed tool where a request declares it: the ``entry`` at ``path``, in the whole list of ``tools``."""

    entry: Mapping[str, Any]
    path: str
    tools: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Told:
    """What upstream is told of a call: the content of its ``tool_result``, and whether it is an error.

    ``loads`` are the names of deferred tools that it makes known.
    """

    content: str
    failed: bool = False
    loads: tuple[str, ...] = ()

    def ending_with(self, sentence: str) -> "Told":
        """The same with a ``sentence`` at its end."""
        return replace(self, content=f"{self.content}\n\n{sentence}")


@dataclass(frozen=True, slots=True)
class Settled(Generic[OutcomeT]):
    """A call that nothing has to be run for: it is refused, or its tool knows the answer."""

    outcome: OutcomeT


class Kind(ABC):
    """What all tools of one kind share.

    ``name`` is how the runners, the log and the metrics call it. ``functions`` are the client's functions that are
    taken over by their name, and what an alias can stand for; none, where the kind is native alone. A native call is a
    ``call_type`` block with an id that begins with ``id_prefix``, its result a ``result_type`` block. ``counter`` is
    the member of ``usage.server_tool_use`` that counts the native calls that returned, None where there is none.
    ``none_left`` is the sentence that ends the results before a last round that must answer.
    """

    name: str
    result_type: str
    none_left: str
    call_type: str = "server_tool_use"
    id_prefix: str = "srvtoolu_"
    counter: str | None = None
    functions: frozenset[str] = frozenset()

    @abstractmethod
    def is_typed(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry of ``tools`` is the typed declaration of this kind. Looks at ``type`` and ``name`` alone."""

    @abstractmethod
    def read_typed(self, declaration: Declaration) -> "Sequence[AnyTool]":
        """The native tools that a typed declaration offers the model; there may be none.

        Raises :class:`gateway.errors.InvalidRequest` with the path of a field that cannot be read.
        """

    def read_function(self, entry: Mapping[str, Any], *, aliased: bool) -> "AnyTool | None":
        """The hidden tool that a client's function becomes; None where the function stays the client's.

        It has one of the names in ``functions``, or the operator gave it to this kind (``aliased``), whose word holds
        whatever the function's schema says. By its name alone a function is no more than a namesake: :func:`takes`.
        """
        return None

    def owns_call(self, block: Mapping[str, Any]) -> bool:
        """Whether a ``call_type`` block of the history is a call of this kind. Looks at ``type`` and ``name`` alone."""
        return block.get("name") == self.name

    def function_of(self, block: Block) -> str:
        """The name by which upstream knows the function that a call of the history called."""
        name: str = block["name"]
        return name

    @abstractmethod
    def read_result(self, block: Block, path: str, sealer: Sealer) -> Told:
        """What upstream was told of the call whose ``result_type`` block came back.

        Raises :class:`gateway.errors.InvalidRequest` with the path of what cannot be read.
        """

    @abstractmethod
    def without_result(self) -> Told:
        """What upstream is told of a call that came back without a result."""


@dataclass(frozen=True, slots=True)
class Tool(ABC, Generic[JobT, OutcomeT]):
    """A gateway tool as one request declares it: the function ``name`` that upstream sees.

    ``native``: the client sees the calls and their results. ``function`` stands upstream in place of a typed
    declaration; None for a hidden tool, where the client's own function does. ``max_uses`` bounds the calls of one
    request, None: they are not bounded.
    """

    kind: Kind
    name: str
    native: bool = False
    function: Block | None = None
    max_uses: int | None = None

    def call_block(self, call_id: str) -> Block:
        """The block that opens a native call, its ``input`` still empty."""
        return {"type": self.kind.call_type, "id": call_id, "name": self.name, "input": {}}

    @abstractmethod
    def read(self, arguments: dict[str, Any] | None, conversation: Conversation) -> JobT | Settled[OutcomeT]:
        """The job that a call's ``arguments`` ask for (None: they were no JSON object), or what it comes to without."""

    @abstractmethod
    def one_too_many(self) -> OutcomeT:
        """The outcome of a call over ``max_uses``."""

    @abstractmethod
    def told(self, outcome: OutcomeT) -> Told:
        """What upstream is told of an outcome."""

    def seals(self, outcome: OutcomeT) -> bool:
        """Whether the result block of a native call carries, sealed, the very text that upstream was told.

        Only then can ``none_left`` be added to it: it would be missing when the block comes back.
        """
        return False

    @abstractmethod
    def shown(self, outcome: OutcomeT, told: Told, call_id: str, sealer: Sealer) -> Block:
        """A native call's result block for the client, but for its ``type`` and ``tool_use_id``."""


AnyTool = Tool[Any, Any]


def takes(entry: Mapping[str, Any], argument: str, *others: str) -> bool:
    """Whether a client's function can be answered by a tool that has a text ``argument``, and maybe ``others``.

    It can where its schema has that argument as a string and requires none besides them: what it calls otherwise, or
    wants to know beyond, is another tool of the same name.
    """
    match entry.get("input_schema"):
        case {"properties": {**properties}, **rest} if _may_be_text(properties.get(argument)):
            required = rest.get("required")
            return not isinstance(required, list) or all(name in (argument, *others) for name in required)
    return False


def _may_be_text(schema: object) -> bool:
    if not isinstance(schema, dict):
        return False
    types = schema.get("type")
    if types is not None:
        return types == "string" or (isinstance(types, list) and "string" in types)
    variants = [schema.get(name) for name in ("anyOf", "oneOf")]
    return any(_may_be_text(one) for some in variants if isinstance(some, list) for one in some)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a gateway tool: the ``job`` for the runner of its kind, or, where nothing has to be run, the outcome.

    ``call_id`` is the client's id of a native call, None for a hidden one.
    """

    tool: AnyTool
    upstream_id: str
    call_id: str | None
    job: Any = None
    settled: Outcome | None = None

    @property
    def kind(self) -> str:
        """The name of its kind."""
        return self.tool.kind.name


def make_call(
    tool: AnyTool,
    upstream_id: str,
    call_id: str | None,
    arguments: dict[str, Any] | None,
    conversation: Conversation,
) -> Call:
    """The call that a model made with these ``arguments`` (None: they were no JSON object)."""
    work = tool.read(arguments, conversation)
    if isinstance(work, Settled):
        return Call(tool, upstream_id, call_id, settled=work.outcome)
    return Call(tool, upstream_id, call_id, work)


def refuse(call: Call) -> Call:
    """The call, one too many to be run."""
    return Call(call.tool, call.upstream_id, call.call_id, settled=call.tool.one_too_many())


def tool_result(upstream_id: str, told: Told) -> Block:
    """A ``tool_result`` block as the gateway sends it upstream."""
    block: Block = {"type": "tool_result", "tool_use_id": upstream_id, "content": told.content}
    if told.failed:
        block["is_error"] = True
    return block


def result_block(call: Call, outcome: Any, told: Told, sealer: Sealer) -> Block | None:
    """The block in which the client sees the result; None for a hidden call."""
    if call.call_id is None:
        return None
    head = {"type": call.tool.kind.result_type, "tool_use_id": call.call_id}
    return head | call.tool.shown(outcome, told, call.call_id, sealer)
