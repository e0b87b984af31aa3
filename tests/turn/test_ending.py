"""The table of how a turn goes on from a round's end: every way to end has its row, and no row is in vain."""

from itertools import product

import pytest

from gateway.turn.ending import TABLE, RoundEnd, Runs, Step, step_after

EVERY_END = [RoundEnd(*values) for values in product([True, False], repeat=5)]
OVER = Step(Runs.NONE, over=True)


@pytest.mark.parametrize(
    ("end", "step"),
    [
        (RoundEnd(whole=False, client_calls=True, gateway_calls=True, last=False, must_answer=False), OVER),
        (RoundEnd(whole=False, client_calls=False, gateway_calls=True, last=True, must_answer=True), OVER),
        (
            RoundEnd(whole=True, client_calls=True, gateway_calls=True, last=True, must_answer=True),
            Step(Runs.NONE, over=True, stop="tool_use"),
        ),
        (
            RoundEnd(whole=True, client_calls=True, gateway_calls=True, last=True, must_answer=False),
            Step(Runs.NATIVE, over=True, stop="tool_use"),
        ),
        (
            RoundEnd(whole=True, client_calls=True, gateway_calls=False, last=False, must_answer=True),
            Step(Runs.NATIVE, over=True, stop="tool_use"),
        ),
        (RoundEnd(whole=True, client_calls=False, gateway_calls=False, last=True, must_answer=True), OVER),
        (
            RoundEnd(whole=True, client_calls=False, gateway_calls=True, last=False, must_answer=True),
            Step(Runs.ALL, over=False),
        ),
        (
            RoundEnd(whole=True, client_calls=False, gateway_calls=True, last=True, must_answer=True),
            Step(Runs.NONE, over=True, stop="end_turn"),
        ),
        (
            RoundEnd(whole=True, client_calls=False, gateway_calls=True, last=True, must_answer=False),
            Step(Runs.ALL, over=True, stop="pause_turn"),
        ),
    ],
)
def test_what_follows_from_a_rounds_end(end: RoundEnd, step: Step) -> None:
    assert step_after(end) == step


@pytest.mark.parametrize("end", EVERY_END)
def test_a_turn_is_over_unless_gateway_calls_alone_can_be_answered(end: RoundEnd) -> None:
    goes_on = end.whole and end.gateway_calls and not end.client_calls and not end.last
    assert step_after(end).over is not goes_on


@pytest.mark.parametrize("row", range(len(TABLE)))
def test_no_row_is_in_vain(row: int) -> None:
    assert any(next(at for at, one in enumerate(TABLE) if one.fits(end)) == row for end in EVERY_END)
