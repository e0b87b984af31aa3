"""What the loop needs from whatever runs the calls of a kind of tool."""

from typing import Any, Protocol, TypeVar

from gateway.turn import Outcome

JobT = TypeVar("JobT", contravariant=True)
OutcomeT = TypeVar("OutcomeT", bound=Outcome, covariant=True)


class ToolRunner(Protocol[JobT, OutcomeT]):
    """What runs the calls of one kind of tool: :class:`gateway.tools.web_search.WebSearch`, or a stand-in.

    A job is what the kind makes of a call's arguments (:meth:`gateway.turn.kind.Tool.read`).
    """

    async def run(self, job: JobT, /) -> OutcomeT:
        """Run one call. Raises nothing but cancellation: a failure is an outcome with ``error`` set."""

    async def aclose(self) -> None:
        """Cancel what still runs and close connections."""


AnyRunner = ToolRunner[Any, Outcome]
