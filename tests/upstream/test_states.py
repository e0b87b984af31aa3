"""Every step in every state: where it leads, or that it may not be taken."""

import pytest

from gateway.upstream.states import STEPS, State, Step

LEGAL: dict[tuple[str, str], str] = {
    ("connecting", "opened"): "idle",
    ("idle", "asked"): "awaited",
    ("awaited", "past its head"): "body",
    ("body", "ended"): "complete",
    ("body", "ended for good"): "spent",
    ("complete", "followed by more"): "spent",
    ("spent", "followed by more"): "spent",
    ("complete", "settled"): "idle",
    **{(state, "dropped"): "closed" for state in map(str, State)},
}


@pytest.mark.parametrize("step", STEPS, ids=[step.name for step in STEPS])
@pytest.mark.parametrize("state", State)
def test_a_step_leads_where_the_table_says_or_is_an_error(state: State, step: Step) -> None:
    if (state, step.name) in LEGAL:
        assert step[state] == LEGAL[state, step.name]
    else:
        with pytest.raises(RuntimeError, match=f"^a connection to upstream is {state}, and cannot be {step.name}$"):
            step[state]


def test_no_step_is_left_out() -> None:
    assert {step.name for step in STEPS} == {name for _, name in LEGAL}
    assert sum(map(len, STEPS)) == len(LEGAL)


def test_nothing_leads_out_of_closed_and_everything_into_it() -> None:
    assert [step.name for step in STEPS if State.CLOSED in step] == ["dropped"]
    assert all(step[State.CLOSED] is State.CLOSED for step in STEPS if State.CLOSED in step)
