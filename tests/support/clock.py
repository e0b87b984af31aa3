"""A second kind of tool, for tests: a clock. This module is all of it; a gateway that has it is given a line more.

    kinds, runners = Kinds([*KINDS, ClockKind()]), {"clock": Clock()}

Declared as ``{"type": "clock_20260101", "name": "clock"}`` it is native; as a function ``clock`` that needs nothing but
a ``zone`` it is hidden. Nothing of it is sealed: the time that the model read stands in the result block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.errors import InvalidRequest
from gateway.turn.kind import AnyTool, Block, Conversation, Declaration, Kind, Settled, Told, Tool
from gateway.turn.seal import Sealer
from gateway.turn.typed_fields import read_max_uses

FUNCTION: Block = {
    "name": "clock",
    "description": "What time it is in a zone.",
    "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]},
}
SENTENCES = {
    "no_zone": "The clock was not read: say which `zone`.",
    "too_often": "The clock was not read: it has been read often enough.",
    "unknown_zone": "The clock has no such zone.",
    "stopped": "The clock has stopped.",
}
NO_TIME_LEFT = "The clock cannot be read again."


@dataclass(frozen=True, slots=True)
class Time:
    """What the clock said, or why it did not."""

    text: str
    error: str | None = None


class ClockKind(Kind):
    name = "clock"
    result_type = "clock_tool_result"
    none_left = NO_TIME_LEFT
    id_prefix = "clocku_"
    counter = "clock_requests"
    functions = frozenset({"clock"})

    def is_typed(self, entry: Mapping[str, Any]) -> bool:
        return entry.get("type") == "clock_20260101" and entry.get("name") == "clock"

    def read_typed(self, declaration: Declaration) -> Sequence[AnyTool]:
        return [ClockTool(self, "clock", native=True, function=FUNCTION, max_uses=read_max_uses(declaration))]

    def read_function(self, entry: Mapping[str, Any], *, aliased: bool) -> AnyTool | None:
        match entry:
            case {"input_schema": {"required": [*names]}} if not aliased and names not in ([], ["zone"]):
                return None
        return ClockTool(self, entry["name"])

    def read_result(self, block: Block, path: str, sealer: Sealer) -> Told:
        match block.get("content"):
            case {"type": "clock_result", "time": str(time)}:
                return Told(time)
            case {"error_code": str(code)}:
                return Told(SENTENCES.get(code, SENTENCES["stopped"]), failed=True)
        raise InvalidRequest(f"{path}.content: must be a time or an error")

    def without_result(self) -> Told:
        return Told(SENTENCES["stopped"], failed=True)


class ClockTool(Tool[str, Time]):
    def read(self, arguments: dict[str, Any] | None, conversation: Conversation) -> str | Settled[Time]:
        match arguments:
            case {"zone": str(zone)}:
                return zone
        return Settled(_failed("no_zone"))

    def one_too_many(self) -> Time:
        return _failed("too_often")

    def told(self, outcome: Time) -> Told:
        return Told(outcome.text, failed=outcome.error is not None)

    def shown(self, outcome: Time, told: Told, call_id: str, sealer: Sealer) -> Block:
        if outcome.error is not None:
            return {"content": {"type": "clock_tool_result_error", "error_code": outcome.error}}
        return {"content": {"type": "clock_result", "time": told.content}}


class Clock:
    """The runner: it knows the time of some zones."""

    def __init__(self) -> None:
        self.zones: list[str] = []
        self.closed = False

    async def run(self, zone: str, /) -> Time:
        self.zones.append(zone)
        times = {"UTC": "12:00", "CET": "13:00"}
        return Time(times[zone]) if zone in times else _failed("unknown_zone")

    async def aclose(self) -> None:
        self.closed = True


def _failed(code: str) -> Time:
    return Time(SENTENCES[code], error=code)
