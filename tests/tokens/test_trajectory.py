"""Rounds joined into what a trainer needs."""

from gateway.tokens.fields import TokenFields
from gateway.tokens.trajectory import RoundTokens, Trajectory, prefix_mismatch

ALL = TokenFields(return_token_ids=True, return_logprob=True, return_routed_experts=True)


def searched() -> Trajectory:
    """A call, its result rendered into the next prompt, and the answer."""
    trajectory = Trajectory()
    trajectory.add(RoundTokens([1, 2, 3], [10, 11], [(-0.5, 10), (-0.25, 11)], "first"))
    trajectory.add(RoundTokens([1, 2, 3, 10, 11, 4, 5], [12], [(-1.0, 12)], "second"))
    return trajectory


def test_the_rounds_of_a_turn_join_in_order() -> None:
    message = searched().on_message(ALL)

    assert message["output_ids"] == [10, 11, 12]
    assert message["output_token_logprobs"] == [(-0.5, 10), (-0.25, 11), (-1.0, 12)]
    assert message["routed_experts"] == "second"
    assert message["rounds"] == [
        {
            "input_ids": [1, 2, 3],
            "output_ids": [10, 11],
            "output_token_logprobs": [(-0.5, 10), (-0.25, 11)],
            "routed_experts": "first",
        },
        {
            "input_ids": [1, 2, 3, 10, 11, 4, 5],
            "output_ids": [12],
            "output_token_logprobs": [(-1.0, 12)],
            "routed_experts": "second",
        },
    ]


def test_what_was_not_asked_for_is_absent_but_the_rounds_are_whole() -> None:
    assert list(searched().on_message(TokenFields(return_token_ids=True))) == ["output_ids", "rounds"]
    assert list(searched().on_message(TokenFields(return_logprob=True))) == ["output_token_logprobs", "rounds"]
    assert list(searched().on_message_delta(TokenFields(return_token_ids=True))) == ["rounds"]
    assert list(searched().on_message_delta(ALL)) == ["routed_experts", "rounds"]


def test_a_prompt_that_renders_otherwise_says_at_which_token() -> None:
    trajectory = searched()
    trajectory.add(RoundTokens([1, 2, 3, 10, 99, 4, 5, 12, 6], [13]))

    assert [entry.get("prefix_mismatch") for entry in trajectory.as_json()] == [None, None, 4]


def test_a_prompt_shorter_than_the_round_before_differs_at_its_end() -> None:
    assert prefix_mismatch(RoundTokens([1, 2], [3, 4]), RoundTokens([1, 2, 3])) == 3
    assert prefix_mismatch(RoundTokens([1, 2], [3, 4]), RoundTokens([1, 2, 3, 4])) is None


def test_prompts_nobody_tells_cannot_be_compared() -> None:
    assert prefix_mismatch(None, RoundTokens([1])) is None
    assert prefix_mismatch(RoundTokens(None, [3]), RoundTokens([1])) is None
    assert prefix_mismatch(RoundTokens([1], [3]), RoundTokens(None)) is None


def test_tokens_gather_as_they_come() -> None:
    tokens = RoundTokens([1])
    tokens.add([2], [(-0.1, 2)])
    tokens.add([3, 4], [(-0.2, 3), (-0.3, 4)])

    assert tokens == RoundTokens([1], [2, 3, 4], [(-0.1, 2), (-0.2, 3), (-0.3, 4)])
