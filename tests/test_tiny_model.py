"""What the tiny model is taught: conversations it can follow, in a template that never rewrites its past."""

from random import Random

import pytest

from gateway.turn.web_search import ERROR_SENTENCES, NO_RESULTS, NO_SEARCH_LEFT
from tiny_model import world
from tiny_model.conversations import Conversation, some_conversation
from tiny_model.template import pieces


def _conversations(count: int = 300) -> list[Conversation]:
    rng = Random(7)
    return [some_conversation(rng) for _ in range(count)]


def test_it_is_taught_every_sentence_the_gateway_may_hand_it() -> None:
    assert world.NO_SEARCH_LEFT == NO_SEARCH_LEFT
    assert {NO_RESULTS, *ERROR_SENTENCES.values()} <= set(world.FAILURES)


def test_a_result_always_holds_the_version_that_the_answer_needs() -> None:
    rng = Random(7)
    for release in world.some_releases(rng, 20):
        assert release.version in world.result_text(rng, "any query", release)


def test_a_call_names_a_declared_tool_and_its_results_follow_in_number() -> None:
    for conversation in _conversations():
        declared = {tool["function"]["name"] for tool in conversation.tools}
        for index, message in enumerate(conversation.messages):
            calls = message.get("tool_calls", [])
            assert {call["function"]["name"] for call in calls} <= declared
            following = conversation.messages[index + 1 : index + 1 + len(calls)]
            assert [m["role"] for m in following] == ["tool"] * len(calls)


def test_the_pieces_are_the_whole_text_and_the_model_says_what_follows_the_assistant_mark() -> None:
    for conversation in _conversations(60):
        said_before = True
        for text, is_said in pieces(conversation):
            assert is_said != said_before
            said_before = is_said
            if is_said:
                assert text.endswith("<|im_end|>")
                assert text.startswith("<think>\n") == conversation.thinking
            else:
                assert "<|im_start|>assistant\n" in text
                assert text.endswith("<think>\n\n</think>\n\n") != conversation.thinking


def test_a_call_is_written_as_the_hermes_parser_reads_it() -> None:
    call = {"function": {"name": "web_search", "arguments": {"query": "a <b> & c"}}}
    conversation = Conversation(
        tools=[],
        messages=[
            {"role": "user", "content": "hello"},
            {"role": "assistant", "reasoning": "Hm.", "content": "", "tool_calls": [call, call]},
        ],
        thinking=True,
    )
    one = '<tool_call>\n{"name": "web_search", "arguments": {"query": "a <b> & c"}}\n</tool_call>'
    assert list(pieces(conversation)) == [
        ("<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n", False),
        (f"<think>\nHm.\n</think>\n\n{one}\n{one}<|im_end|>", True),
    ]


def test_the_same_seed_makes_the_same_conversations() -> None:
    assert _conversations(20) == _conversations(20)


@pytest.mark.parametrize("name", ["Rust", "Go", "Redis", "Python"])
def test_it_knows_the_products_that_the_end_to_end_runs_ask_about(name: str) -> None:
    assert name in world.PRODUCTS
