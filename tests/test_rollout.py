"""The example that a trainer starts from: one sequence, rebuilt from a recorded rollout, and what it refuses."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

pytestmark = pytest.mark.anyio


@pytest.fixture
def rollout(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "rollout", raising=False)
    import rollout

    module: ModuleType = rollout
    return module


async def test_a_recorded_rollout_becomes_one_training_sequence(rollout: ModuleType) -> None:
    async with rollout.played() as gateway:
        message = await rollout.rollout(gateway, "qwen3")

    sequence = rollout.training_sequence(message["rounds"])
    rollout.check(sequence, message)
    first, second = message["rounds"]
    assert len(sequence.tokens) == len(sequence.mask) == len(sequence.logprobs)
    boundaries = [at for at in range(1, len(sequence.mask)) if sequence.mask[at] != sequence.mask[at - 1]]
    read = len(first["input_ids"])
    assert boundaries == [read, read + len(first["output_ids"]), len(second["input_ids"])]
    assert "1.95.0" in message["content"][-1]["text"]


def test_rounds_that_do_not_go_on_from_each_other_are_no_sequence(rollout: ModuleType) -> None:
    rounds = [
        {"input_ids": [1, 2], "output_ids": [3], "output_token_logprobs": [[-0.5, 3]]},
        {"input_ids": [1, 9, 3], "output_ids": [4], "output_token_logprobs": [[-0.5, 4]], "prefix_mismatch": 1},
    ]
    with pytest.raises(ValueError, match="round 1 leaves the sequence at token 1"):
        rollout.training_sequence(rounds)


def test_a_sequence_that_is_not_the_messages_is_told(rollout: ModuleType) -> None:
    rounds = [{"input_ids": [1, 2], "output_ids": [3], "output_token_logprobs": [[-0.5, 3]]}]
    message = {"rounds": rounds, "output_ids": [3, 4], "output_token_logprobs": [[-0.5, 3]]}
    with pytest.raises(AssertionError):
        rollout.check(rollout.training_sequence(rounds), message)
