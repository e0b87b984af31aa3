"""Every row of docs/faults.md's first table, at every place of a request: nothing hangs, nothing is lost silently."""

import pytest

from tests.faults.playing import play
from tests.faults.table import COLUMNS, Expected, read_upstream_table
from tests.faults.upstreams import BETWEEN, FAULTS, STREAM_ONLY

pytestmark = pytest.mark.anyio

EXPECTED = read_upstream_table()


def test_the_table_has_every_fault_at_every_place() -> None:
    places = {
        (name, column)
        for name in FAULTS
        for column in COLUMNS
        if not (name in STREAM_ONLY and column.endswith("JSON")) and not (name == BETWEEN and "later" not in column)
    }
    assert set(EXPECTED) == places


@pytest.mark.parametrize(("name", "column"), EXPECTED, ids=lambda value: value)
async def test_an_upstream_that(name: str, column: str) -> None:
    seen, fault = await play(name, column)
    assert seen.expected(fault) == EXPECTED[name, column]
    assert seen.outcomes == {EXPECTED[name, column].outcome: 1}
    # The log says what the client got.
    assert (seen.line["status"], seen.line["outcome"]) == (seen.status, EXPECTED[name, column].outcome)
    assert seen.line["rounds"] == _rounds(column, EXPECTED[name, column])
    assert seen.line["tools"] == ({"web_search": len(seen.searched)} if seen.searched else {})
    assert len(seen.searched) == _searches(column, EXPECTED[name, column])
    if name.endswith("with Retry-After") and not seen.is_stream:
        assert seen.headers["retry-after"] == "7"
    if column == "later SSE":
        assert seen.text().startswith("I look it up."), "what the first round said is lost"


def _rounds(column: str, expected: Expected) -> int:
    """How often upstream is asked: a kept connection that had gone stale does not count twice."""
    return 2 if column.startswith("later") or (column.startswith("first") and expected.ending == "whole") else 1


def _searches(column: str, expected: Expected) -> int:
    """A search runs where its round has come whole, and not a second time."""
    if column.startswith("later"):
        return 1
    return int(column.startswith("first") and expected.ending == "whole")
