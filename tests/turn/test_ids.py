"""Native ids lead back to upstream's own."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.turn.ids import call_id, upstream_id

PREFIX = "srvtoolu_"


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=8))
def test_every_upstream_id_can_be_read_back(ids: list[str]) -> None:
    taken: set[str] = set()
    for one in ids:
        made = call_id(one, taken, PREFIX)
        assert made not in taken
        assert re.fullmatch("srvtoolu_[a-zA-Z0-9_]+", made)
        assert upstream_id(made, PREFIX) == one
        taken.add(made)


def test_an_id_is_readable() -> None:
    assert call_id("chatcmpl-tool-9f", set(), PREFIX) == "srvtoolu_chatcmpl_2dtool_2d9f"


@pytest.mark.parametrize(
    "foreign", ["toolu_1", "srvtoolu_", "srvtoolu_a_zz", "srvtoolu_a_ff", "srvtoolu__ed_a0_80", "srvtoolu_é", ""]
)
def test_an_id_not_made_here_stands_for_itself(foreign: str) -> None:
    assert upstream_id(foreign, PREFIX) == foreign


def test_an_id_that_comes_again_is_numbered() -> None:
    taken: set[str] = set()
    for number in range(1, 1001):
        made = call_id("call", taken, PREFIX)
        assert made == ("srvtoolu_call" if number == 1 else f"srvtoolu_call__{number}")
        taken.add(made)


class Counted(set[str]):
    """Counts how often it is asked."""

    asked = 0

    def __contains__(self, one: object) -> bool:
        self.asked += 1
        return super().__contains__(one)


def test_of_an_id_that_came_often_not_every_number_is_tried() -> None:
    taken = Counted(["srvtoolu_call", *(f"srvtoolu_call__{number}" for number in range(2, 10_000))])
    assert call_id("call", taken, PREFIX) == "srvtoolu_call__10000"
    assert taken.asked < 50
