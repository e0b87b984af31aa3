"""What a kind makes of a declaration: one tool, several, none, or no tool of the gateway's at all."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.turn import KINDS, Kinds, Turn, TurnRules, read_turn, translate_count
from gateway.turn.kind import AnyTool, Declaration
from tests.support.clock import FUNCTION, ClockKind, ClockTool
from tests.support.playbook import BASH, QUESTION, SEALER

GATEWAY = Path(__file__).parents[2] / "gateway"


class WallOfClocks(ClockKind):
    """A declaration offers a function for each zone that it names."""

    def read_typed(self, declaration: Declaration) -> Sequence[AnyTool]:
        names = [f"clock_{zone}" for zone in declaration.entry["zones"]]
        return [ClockTool(self, name, native=True, function={**FUNCTION, "name": name}) for name in names]


def read(tools: list[Any], kind: ClockKind, aliases: dict[str, str] | None = None) -> Turn | None:
    rules = TurnRules(SEALER, aliases or {}, kinds=Kinds([*KINDS, kind]))
    return read_turn(body(tools), rules)


def body(tools: list[Any]) -> bytes:
    return json.dumps({"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": tools}).encode()


def upstream_tools(turn: Turn | None) -> list[str]:
    assert turn is not None
    return [tool["name"] for tool in json.loads(turn.request())["tools"]]


def wall(*zones: str) -> dict[str, Any]:
    return {"type": "clock_20260101", "name": "clock", "zones": zones}


@pytest.mark.parametrize("zones", [(), ("utc",), ("utc", "cet")])
def test_a_declaration_stands_for_as_many_functions_as_its_kind_says(zones: tuple[str, ...]) -> None:
    turn = read([wall(*zones), BASH], WallOfClocks())
    assert upstream_tools(turn) == [*(f"clock_{zone}" for zone in zones), "Bash"]


def test_one_name_from_two_declarations_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"^tools.2.name: 'clock_cet' is already declared by tools.0$"):
        read([wall("utc", "cet"), BASH, wall("cet")], WallOfClocks())


OWN = {"name": "clock", "input_schema": {"type": "object", "required": ["precision"]}}


def test_a_function_that_its_kind_does_not_take_is_the_clients() -> None:
    assert read([OWN], ClockKind()) is None
    rules = TurnRules(SEALER, kinds=Kinds([*KINDS, ClockKind()]))
    assert translate_count(body([OWN]), rules) is None


def test_an_alias_is_the_operators_word() -> None:
    assert upstream_tools(read([{**OWN, "name": "Now"}], ClockKind(), {"Now": "clock"})) == ["Now"]


def test_without_its_kind_nothing_of_it_is_the_gateways() -> None:
    assert read_turn(body([FUNCTION, wall("utc")]), TurnRules(SEALER)) is None


def test_only_its_kind_and_the_table_of_kinds_name_a_tool() -> None:
    rooms = [*(GATEWAY / "turn").glob("*.py"), *(GATEWAY / "handling").glob("*.py"), GATEWAY / "app.py"]
    naming = {path.name for path in rooms if re.search(r"web_search|web search", path.read_text(), re.IGNORECASE)}
    assert naming == {"web_search.py", "kinds.py"}
