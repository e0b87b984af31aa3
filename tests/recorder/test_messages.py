from typing import Any

import pytest
from anthropic.types import Message

from recorder.errors import StreamError
from recorder.messages import Event, MessageBuilder, fold, read_arguments, read_events
from tests.support.upstream import encode_event, message, sse, text, thinking, tool_use


def lines(*events: dict[str, Any]) -> list[bytes]:
    return b"".join(map(encode_event, events)).splitlines(keepends=True)


def test_the_message_of_a_stream_is_the_one_json_would_have_been() -> None:
    blocks = [thinking("Let me see."), text("Look ", "here: "), tool_use("web_search", {"query": "größe 🚀"})]
    built = fold(lines(*sse(*blocks)))
    assert built.finished
    assert built.message == {**message(*blocks), "stop_sequence": None}
    Message.model_validate(built.message)


def test_events_are_read_as_the_standard_says() -> None:
    stream = b": hello\nevent:one\r\ndata: a\r\ndata:  b\nid: 3\n\r\n\ndata\n\ndata: cut\n".splitlines(keepends=True)
    assert list(read_events(stream)) == [Event("one", "a\n b"), Event("", "")]


def test_pings_may_come_at_any_time_and_citations_add_up() -> None:
    events = sse(text("So it is."))
    cited = {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"url": "u"}}}
    unknown = {"type": "content_block_delta", "index": 0, "delta": {"type": "news_delta", "news": 1}}
    with_pings = [item for event in [*events[:2], cited, unknown, *events[2:]] for item in ({"type": "ping"}, event)]
    (block,) = fold(lines(*with_pings)).message["content"]
    assert block == {"type": "text", "text": "So it is.", "citations": [{"url": "u"}]}


def test_usage_keeps_what_only_the_start_said() -> None:
    events = sse(text("a"), input_tokens=7, output_tokens=3)
    events[-2]["usage"] = {"output_tokens": 3}
    assert fold(lines(*events)).message["usage"] == {"input_tokens": 7, "output_tokens": 3}


def test_an_error_event_ends_it() -> None:
    built = fold(lines(*sse(text("a"))[:2], {"type": "error", "error": {"type": "api_error", "message": "no"}}))
    assert not built.finished
    assert built.error == {"type": "api_error", "message": "no"}


START, BLOCK, DELTA, STOP, END, LAST = sse(text("word"))


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([BLOCK], "event 1: content_block_start before message_start"),
        ([START, START], "event 2: message_start while no block is open"),
        ([START, DELTA], "event 2: content_block_delta while no block is open"),
        ([START, BLOCK, BLOCK], "event 3: content_block_start while a block is open"),
        ([START, BLOCK, END], "event 3: message_delta while a block is open"),
        ([START, END, BLOCK], "event 3: content_block_start after message_delta"),
        ([START, END, LAST, LAST], "event 4: message_stop after message_stop"),
        ([START, {"type": "error", "error": {}}, END], "event 3: message_delta after error"),
        ([START, {**BLOCK, "index": 1}], "event 2: content_block_start with index 1 where 0 must come"),
        ([START, BLOCK, {**STOP, "index": 3}], "event 3: content_block_stop with index 3 where 0 must come"),
        ([START, {"type": "content_block_start", "index": 0}], "event 2: content_block_start is not shaped"),
        ([{"type": "message_start", "message": 3}], "event 1: message_start is not shaped"),
        ([{"type": "surprise"}], "event 1: surprise before message_start"),
    ],
)
def test_what_cannot_come(events: list[dict[str, Any]], complaint: str) -> None:
    with pytest.raises(StreamError) as error:
        fold(lines(*events))
    assert str(error.value).startswith(complaint)


def test_data_that_is_not_json() -> None:
    with pytest.raises(StreamError, match="event 1: an event without a type"):
        fold([b"data: {oops\n", b"\n"])


def test_a_stream_cut_short_is_not_finished() -> None:
    builder = MessageBuilder()
    for event in sse(text("word"))[:-1]:
        builder.feed(event)
    assert not builder.finished


@pytest.mark.parametrize(
    ("written", "read"),
    [('{"query": "go"}', {"query": "go"}), ('{"a": 1, "query": "g', {"a": 1}), ("", {}), ("no", {})],
)
def test_arguments_of_a_call_cut_short(written: str, read: Any) -> None:
    assert read_arguments(written) == read
