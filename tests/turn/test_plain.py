"""The short way that most events take ends where the long way does."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.turn import Out, Turn, TurnRules, read_event, read_turn
from gateway.turn.plain import PlainDelta, read_plain
from gateway.wire.sse import SSEReader
from tests.support.playbook import SEALER
from tests.support.upstream import encode_event, sse, text, thinking, tool_use

SCHEMA = b'{"type":"object","properties":{"query":{"type":"string"}}}'
REQUEST = b'{"model":"m","messages":[],"stream":true,"tools":[{"name":"web_search","input_schema":%b}]}' % SCHEMA


def delta(piece: str, *, kind: str = "text", index: int = 0, ascii: bool = False) -> bytes:
    event = {"type": "content_block_delta", "delta": {"type": f"{kind}_delta", kind: piece}, "index": index}
    written = json.dumps(event, separators=(",", ":"), ensure_ascii=ascii)
    return f"event: content_block_delta\ndata: {written}\n\n".encode()


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["text", "thinking"]), st.integers(0, 10**9))
def test_what_is_read_is_what_was_written(piece: str, kind: str, index: int) -> None:
    written = delta(piece, kind=kind, index=index)
    read = read_plain(written)
    if b"\\u" in written or index > 999_999_999:
        assert read is None
    else:
        assert read == PlainDelta(kind, piece, index)


USUAL = delta("a")


@pytest.mark.parametrize(
    "chunk",
    [
        b"",
        USUAL * 2,
        USUAL[:-1],
        USUAL + b"\n",
        USUAL.replace(b"\n", b"\r\n"),
        USUAL.replace(b'"a"', b'"a\n"'),
        USUAL.replace(b'"a"', b'"\xff"'),
        USUAL.replace(b'"a"', b'"\\x"'),
        USUAL.replace(b'"a"', b'"a","x":"b"'),
        USUAL.replace(b'"index":0', b'"index":-1'),
        USUAL.replace(b'"index":0', b'"index":00'),
        USUAL.replace(b'"index":0', b'"index":0,"output_ids":[1]'),
        USUAL.replace(b'"text":', b'"thinking":'),
        delta("{", kind="partial_json"),
        delta("s", kind="signature"),
    ],
)
def test_anything_else_is_left_to_the_long_way(chunk: bytes) -> None:
    assert read_plain(chunk) is None


def played(data: list[bytes], *, short: bool) -> tuple[bytes, Any]:
    """What the client sees of a round and what the next request holds of it."""
    turn = read_turn(REQUEST, TurnRules(SEALER))
    assert turn is not None
    turn.request()
    reader, sent = SSEReader(), b""
    for chunk in data:
        if short and reader.stands_alone(chunk) and turn.passes(chunk):
            sent += chunk
        else:
            sent += fed(turn, reader, chunk)
    [call] = turn.end_round([])
    assert call.settled is not None
    turn.answer(call, call.settled, [])
    return sent, json.loads(turn.request())["messages"]


def fed(turn: Turn, reader: SSEReader, chunk: bytes) -> bytes:
    out: Out = []
    for frame in reader.feed(chunk):
        event = read_event(frame.data)
        turn.feed(event, frame.raw if frame.event == event["type"] else None, out)
    return b"".join(event if isinstance(event, bytes) else encode_event(event) for event in out)


PIECES = st.lists(
    st.sampled_from(["<think>", "</think>", " ", "\n", "a", "é🚀", '"', "\\", "\t", "\u0001", "\u007f", ""]), max_size=8
)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([text, thinking]), PIECES), max_size=4), st.integers(0, 3))
def test_both_ways_show_and_keep_the_same(blocks: list[Any], cut: int) -> None:
    said = [make(*pieces, "") for make, pieces in blocks]
    whole = [encode_event(event) for event in sse(*said, tool_use("web_search", {}, id="call"))]
    data = [chunk for event in whole for chunk in ((event[:cut], event[cut:]) if cut else (event,))]
    assert played(data, short=True) == played(data, short=False)


def test_most_events_do_take_the_short_way() -> None:
    turn = read_turn(REQUEST, TurnRules(SEALER))
    assert turn is not None
    turn.request()
    reader, passed = SSEReader(), 0
    events = [
        encode_event(event) for event in sse(thinking("One ", "two"), text("Three ", "four"), text("five ", "six"))
    ]
    for chunk in events:
        if reader.stands_alone(chunk) and turn.passes(chunk):
            passed += 1
        else:
            fed(turn, reader, chunk)
    assert passed == 4  # of each text, the first delta opens its block


def test_a_turn_near_its_limit_takes_the_long_way() -> None:
    turn = read_turn(REQUEST, TurnRules(SEALER, max_retained_bytes=len(REQUEST) + 100))
    assert turn is not None
    turn.request()
    for event in sse(text("One", "two"))[:3]:
        turn.feed(event, None, [])
    assert not turn.passes(delta("x" * 200))
