"""A chat completion's stream, read as Messages events: blocks as vLLM makes them, no id lost, none twice."""

from pathlib import Path
from typing import Any

import pytest

from gateway.errors import UpstreamBroken
from gateway.tokens.chat_stream import ChatStream
from gateway.tokens.fields import TokenFields
from tests.tokens.conversation import (
    RECORDED,
    call_delta,
    chunk,
    first_chunk,
    fold,
    recorded,
    riding,
    usage_chunk,
    without_random,
)

IDS = TokenFields(return_token_ids=True)
BOTH = TokenFields(return_token_ids=True, return_logprob=True)


def answer(*chunks: dict[str, Any], asked: TokenFields = IDS) -> list[dict[str, Any]]:
    """The events of a stream: its first chunk, these, its last."""
    stream = ChatStream(asked)
    sampled = sum(len(each["choices"][0]["token_ids"]) for each in chunks)
    events = [event for each in (first_chunk(), *chunks, usage_chunk(sampled)) for event in stream.events(each)]
    return events + stream.end()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_it_is_the_stream_that_vllm_itself_made(path: Path) -> None:
    conversation = recorded(path)
    chunks = conversation["chat_chunks"]
    stream = ChatStream(BOTH)

    events = [event for each in chunks for event in stream.events(each)] + stream.end()

    ours, vllms = fold(events), fold(conversation["messages_events"])
    assert without_random(ours.content) == without_random(vllms.content)
    assert (ours.stop_reason, ours.stop_sequence, ours.usage) == (vllms.stop_reason, vllms.stop_sequence, vllms.usage)
    assert events[0]["message"]["usage"] == conversation["messages_events"][0]["message"]["usage"]
    sampled = [token for each in chunks for choice in each["choices"] for token in choice.get("token_ids") or []]
    assert ours.output_ids == stream.tokens.output_ids == sampled
    assert [token for _, token in ours.output_token_logprobs] == sampled
    assert len(sampled) == ours.usage["output_tokens"]
    assert stream.tokens.input_ids == chunks[0]["prompt_token_ids"]


def test_markup_rides_on_the_block_around_it() -> None:
    """<think> waits for the thinking; </think>, <tool_call> and the end of turn ride on the block that is open."""
    events = answer(
        chunk([1]),
        chunk([2], reasoning="Hm."),
        chunk([3]),
        chunk([4], content="Let me look."),
        chunk([5]),
        chunk([6], tool_calls=[call_delta(0, "", id="call-1", name="Bash")]),
        chunk([7], tool_calls=[call_delta(0, '{"command": "ls"}')]),
        chunk([8]),
        chunk([9], "tool_calls"),
    )

    assert riding(events) == [
        ("Hm.", [1, 2]),
        ("", [3]),
        ("Let me look.", [4]),
        ("", [5]),
        ("", [6]),
        ('{"command": "ls"}', [7]),
        ("", [8]),
        ("", [9]),
    ]
    assert without_random(fold(events).content) == [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "name": "Bash", "input": '{"command": "ls"}'},
    ]
    assert fold(events).stop_reason == "tool_use"


def test_a_thinking_block_is_signed_before_it_stops() -> None:
    events = answer(chunk([1], reasoning="Hm."), chunk([2], content="Hi."), chunk([3], "stop"))

    kinds = [event["delta"]["type"] if "delta" in event else event["type"] for event in events[1:5]]
    assert kinds == ["content_block_start", "thinking_delta", "signature_delta", "content_block_stop"]
    assert events[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert events[3]["delta"]["signature"]


def test_log_probabilities_ride_with_their_ids() -> None:
    events = answer(chunk([1]), chunk([2], content="Hi."), chunk([3], "stop"), asked=BOTH)

    assert [event["output_token_logprobs"] for event in events if "output_token_logprobs" in event] == [
        [(-0.01, 1), (-0.02, 2)],
        [(-0.03, 3)],
    ]


def test_ids_nobody_asked_for_make_no_delta() -> None:
    events = answer(
        chunk([1]), chunk([2], content="Hi."), chunk([3], "stop"), asked=TokenFields(include_stop_str_in_output=True)
    )

    assert riding(events) == [("Hi.", [])]


def test_an_answer_of_nothing_but_an_end_gets_one_empty_text_block() -> None:
    events = answer(chunk([9], "stop"))

    assert fold(events).content == [{"type": "text", "text": ""}]
    assert riding(events) == [("", [9])]


def test_text_between_the_deltas_of_calls_becomes_a_block_after_the_first() -> None:
    """vLLM keeps text that comes while a call is open for a block of its own. The ids of that text ride on it."""
    events = answer(
        chunk([1], tool_calls=[call_delta(0, "{}", id="call-1", name="Bash")]),
        chunk([2], content="\n"),
        chunk([3]),
        chunk([4], tool_calls=[call_delta(1, "{}", id="call-2", name="Bash")]),
        chunk([5], "tool_calls"),
    )

    assert [block["type"] for block in fold(events).content] == ["tool_use", "text", "tool_use"]
    assert riding(events) == [("{}", [1]), ("\n", [2, 3]), ("{}", [4]), ("", [5])]


def test_text_after_the_last_call_comes_out_at_the_end() -> None:
    events = answer(
        chunk([1], tool_calls=[call_delta(0, "{}", id="call-1", name="Bash")]),
        chunk([2], content="Do"),
        chunk([3], "tool_calls", content="ne."),
    )

    assert riding(events) == [("{}", [1]), ("Done.", [2, 3])]


def test_more_arguments_after_held_back_text_keep_the_ids_in_order() -> None:
    events = answer(
        chunk([1], tool_calls=[call_delta(0, '{"a"', id="call-1", name="Bash")]),
        chunk([2], content="\n"),
        chunk([3], tool_calls=[call_delta(0, ": 1}")]),
        chunk([4], "tool_calls"),
    )

    assert fold(events).output_ids == [1, 2, 3, 4]
    assert [block["type"] for block in fold(events).content] == ["tool_use", "text"]


def test_two_calls_in_one_chunk() -> None:
    both = [call_delta(0, '{"a": 1}', id="call-1", name="A"), call_delta(1, '{"b": 2}', id="call-2", name="B")]
    events = answer(chunk([1, 2], tool_calls=both), chunk([3], "tool_calls"))

    assert riding(events) == [('{"a": 1}', [1, 2]), ('{"b": 2}', []), ("", [3])]


def test_a_server_that_repeats_the_calls_id_goes_on_with_the_same_block() -> None:
    events = answer(
        chunk([1], tool_calls=[call_delta(0, '{"a"', id="call-1", name="A")]),
        chunk([2], tool_calls=[call_delta(0, ": 1}", id="call-1", name="A")]),
        chunk([3], "tool_calls"),
    )

    assert [block["input"] for block in fold(events).content] == ['{"a": 1}']


def test_arguments_of_a_call_that_is_not_open_are_dropped_as_vllm_drops_them() -> None:
    events = answer(
        chunk([1], tool_calls=[call_delta(0, "{}", id="call-1", name="A")]),
        chunk([2], tool_calls=[call_delta(1, "{}", id="call-2", name="B")]),
        chunk([3], tool_calls=[call_delta(0, "late")]),
        chunk([4], tool_calls=[call_delta(7, "unknown")]),
        chunk([5], "tool_calls"),
    )

    assert [block["input"] for block in fold(events).content] == ["{}", "{}"]
    assert fold(events).output_ids == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("arguments", "matched", "stop"),
    [
        ('{"query": "Rust"}', "END", ("tool_use", None)),
        ('{"query": ', "END", ("stop_sequence", "END")),
        ('{"query": ', None, ("tool_use", None)),
    ],
)
def test_a_call_that_a_stop_sequence_cut_short_is_no_tool_use(
    arguments: str, matched: str | None, stop: tuple[str, str | None]
) -> None:
    events = answer(
        chunk([1], tool_calls=[call_delta(0, arguments, id="call-1", name="web_search")]),
        chunk([2], "stop", matched),
    )

    assert (fold(events).stop_reason, fold(events).stop_sequence) == stop


def test_a_forced_call_that_vllm_labels_stop_is_tool_use() -> None:
    events = answer(
        chunk([1], tool_calls=[call_delta(0, "{}", id="call-1", name="web_search")]), chunk([2], "stop", 151645)
    )

    assert fold(events).stop_reason == "tool_use"


def test_an_error_in_place_of_a_chunk_ends_the_stream() -> None:
    stream = ChatStream(IDS)
    stream.events(first_chunk())
    stream.events(chunk([1], content="Hi"))

    failed = stream.events({"error": {"message": "Internal server error", "type": "InternalServerError", "code": 500}})

    assert failed == [{"type": "error", "error": {"type": "api_error", "message": "Internal server error"}}]
    assert stream.events(usage_chunk(1)) == []
    assert stream.end() == []


def test_a_stream_that_ends_before_its_message_is_broken() -> None:
    stream = ChatStream(IDS)
    stream.events(first_chunk())
    stream.events(chunk([1], content="Hi"))

    with pytest.raises(UpstreamBroken):
        stream.end()


def test_a_server_that_gives_no_ids_is_not_taken_at_its_word() -> None:
    stream = ChatStream(IDS)
    stream.events(first_chunk())
    stream.events(chunk([], content="Hi"))

    with pytest.raises(UpstreamBroken, match="return_token_ids"):
        stream.events(usage_chunk(1))
