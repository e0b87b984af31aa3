"""However upstream's events are spelt and cut, the client sees what a plain reading of them would have shown."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import UpstreamBroken
from gateway.turn import MessagesRounds, Out, Turn, TurnRules, read_turn
from gateway.turn.delta import find_delta, read_delta
from gateway.wire.sse import SSEReader, read_frame
from tests.support.playbook import BASH, NATIVE, QUESTION, SEALER
from tests.support.upstream import encode_event, sse, text, thinking, tool_use

ALIAS = {"name": "Find", "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}}}
RULES = TurnRules(SEALER, {"Find": "web_search"})
KINDS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


def a_turn(rules: TurnRules = RULES) -> Turn:
    body = {"model": "m", "messages": [QUESTION], "stream": True, "tools": [NATIVE, ALIAS, BASH]}
    turn = read_turn(json.dumps(body).encode(), rules)
    assert turn is not None
    turn.request()
    return turn


# -- spellings


@st.composite
def spelt(draw: st.DrawFn, value: Any) -> str:
    """JSON with any blanks, and its objects' members in any order."""

    def blank() -> str:
        return draw(st.sampled_from(["", "", " ", "\t", "  "]))

    if isinstance(value, dict):
        members = draw(st.permutations(list(value.items())))
        written = [f'{blank()}"{name}"{blank()}:{blank()}{draw(spelt(one))}{blank()}' for name, one in members]
        return "{" + ",".join(written) + "}"
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


@st.composite
def spellings(draw: st.DrawFn, event: dict[str, Any]) -> bytes:
    """An event of a stream, written in one of the ways that its reader has to take."""
    data = draw(spelt(event))
    end = draw(st.sampled_from(["\n", "\n", "\n", "\r\n", "\r"]))
    name = draw(st.sampled_from([f"event: {event['type']}{end}"] * 4 + ["", f"event:{event['type']}{end}"]))
    lines = f"{name}data: {data}{end}" if draw(st.integers(0, 9)) else f"data:{data}{end}{name}"
    return (lines + end).encode()


deltas = st.builds(
    lambda kind, piece, index: {
        "type": "content_block_delta",
        "delta": {"type": kind, KINDS[kind]: piece},
        "index": index,
    },
    st.sampled_from(sorted(KINDS)),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.integers(0, 10**9 - 1),
)


@given(st.data(), deltas)
def test_a_usual_delta_is_found_however_it_is_spelt(data: st.DataObject, event: dict[str, Any]) -> None:
    written = f"event: content_block_delta\ndata: {data.draw(spelt(event))}\n\n".encode()
    found = find_delta(written)
    assert found is not None
    plain = read_delta(dict(event), written)
    assert (found.kind, found.piece, found.index) == (plain.kind, plain.piece, plain.index)
    assert found.at(event["index"]) == written
    other = found.at(31)
    assert isinstance(other, bytes)
    frame = read_frame(other)
    assert frame is not None
    assert json.loads(frame.data) == {**event, "index": 31}


USUAL = encode_event(
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}, "index": 0},
)


@pytest.mark.parametrize(
    "written",
    [
        b"",
        USUAL * 2,
        USUAL[:-1],
        USUAL + b"\n",
        USUAL.replace(b'"a"', b'"a\t"'),
        USUAL.replace(b'"a"', b'"\xff"'),
        USUAL.replace(b'"a"', b'"\\x"'),
        USUAL.replace(b'"a"', b'"\\ud800"'),
        USUAL.replace(b'"a"', b'"a","x":"b"'),
        USUAL.replace(b'"a"', b'"a",'),
        USUAL.replace(b'"a"', b'"a" "type":"text_delta"'),
        USUAL.replace(b'"index":0', b'"index":-1'),
        USUAL.replace(b'"index":0', b'"index":00'),
        USUAL.replace(b'"index":0', b'"index":0.0'),
        USUAL.replace(b'"index":0', b'"index":0,'),
        USUAL.replace(b'"index":0', b'"index":0,"output_ids":[1]'),
        USUAL.replace(b'"index":0', b'"index":0,"index":1'),
        USUAL.replace(b'"index":0', b'"type":"content_block_delta"'),
        USUAL.replace(b',"index":0', b""),
        USUAL.replace(b'"text":', b'"thinking":'),
        USUAL.replace(b'"text":"a"', b'"type":"text_delta"'),
        USUAL.replace(b'"type":"text_delta"', b'"text":"b"'),
        USUAL.replace(b"text_delta", b"citations_delta"),
        USUAL.replace(b"event: content_block_delta", b"event: content_block_start"),
        USUAL.replace(b'"type":"content_block_delta"', b'"type":"content_block_stop"'),
    ],
)
def test_anything_else_is_decoded(written: bytes) -> None:
    assert find_delta(written) is None


# -- turns


def client_sees(out: Out) -> list[Any]:
    """The events, token by token the same however they are written."""
    data = b"".join(event if isinstance(event, bytes) else encode_event(event) for event in out)
    return [(frame.event, json.loads(frame.data)) for frame in SSEReader().feed(data)]


def kept(turn: Turn) -> Any:
    """What the turn knows of the round: the next request that it asks for, with every call refused."""
    out: Out = []
    try:
        calls = turn.end_round(out)
    except UpstreamBroken as error:
        return str(error)
    return [(call.upstream_id, call.call_id, repr(call.job)) for call in calls]


def plainly(events: list[dict[str, Any]]) -> tuple[list[Any], Any]:
    """Every event decoded, one after the other."""
    turn, out = a_turn(), list[Any]()
    failure = None
    try:
        for event in events:
            turn.feed(json.loads(json.dumps(event)), None, out)
            if turn.round_done:
                break
    except UpstreamBroken as error:
        failure = str(error)
    return client_sees(out), failure or kept(turn)


def as_it_comes(pieces: list[bytes]) -> tuple[list[Any], Any]:
    turn, out = a_turn(), list[Any]()
    rounds, reader = MessagesRounds(turn, "/v1/messages"), SSEReader()
    failure = None
    try:
        for piece in pieces:
            rounds.read(reader.split(piece), out)
            if turn.round_done:
                break
    except UpstreamBroken as error:
        failure = str(error)
    return client_sees(out), failure or kept(turn)


PIECES = st.lists(
    st.sampled_from(["<think>", "</think>", " ", "\n", "a", "é🚀", '"', "\\", "\t", "\u0001", "\u007f", "\u2028", ""]),
    max_size=6,
)
BLOCKS = st.one_of(
    PIECES.map(lambda pieces: text(*pieces, "")),
    PIECES.map(lambda pieces: thinking(*pieces, "")),
    st.sampled_from(["web_search", "Find", "Bash"]).flatmap(
        lambda name: st.text(max_size=8).map(
            lambda query: tool_use(name, {"query": query.encode("utf-8", "replace").decode()}, id=f"call-{name}")
        )
    ),
)
STRANGE: list[dict[str, Any]] = [
    {"type": "ping"},
    {"type": "something_new", "index": 0},
    {"type": "content_block_delta", "delta": {"type": "citations_delta", "citation": {"url": "u"}}, "index": 0},
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "b"}, "index": 0, "more": [1]},
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "c"}, "index": 9},
    {"type": "content_block_delta", "delta": {"type": "text_delta"}, "index": 0},
    {"type": "content_block_delta", "delta": {"type": "signature_delta", "signature": "s"}, "index": 0},
]


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_turn_shows_and_keeps_the_same_however_its_events_come(data: st.DataObject) -> None:
    blocks = {
        block.value.get("id", str(place)): block for place, block in enumerate(data.draw(st.lists(BLOCKS, max_size=4)))
    }
    events: list[dict[str, Any]] = list(sse(*blocks.values()))
    for _ in range(data.draw(st.integers(0, 2))):
        events.insert(data.draw(st.integers(1, len(events))), data.draw(st.sampled_from(STRANGE)))
    stream = b"".join(data.draw(spellings(event)) for event in events)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True) if start < end]
    assert as_it_comes(pieces) == plainly(events)


def test_of_a_changed_index_only_its_digits_change() -> None:
    turn, out = a_turn(), list[Any]()
    rounds, reader = MessagesRounds(turn, "/v1/messages"), SSEReader()
    start = {"type": "content_block_start", "content_block": {"type": "text", "text": "So"}, "index": 12}
    delta = (
        b'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 12, '
        b'"delta": {"type": "text_delta", "text": "caf\\u00e9"}}\n\n'
    )
    rounds.read(reader.split(encode_event(sse()[0]) + encode_event(start)), out)
    out.clear()
    rounds.read(reader.split(delta), out)
    assert out == [delta.replace(b"12", b"0")]


def test_a_turn_that_grows_over_its_limit_ends_with_what_came_before() -> None:
    turn, out = a_turn(TurnRules(SEALER, max_retained_bytes=2000)), list[Any]()
    rounds, long = MessagesRounds(turn, "/v1/messages"), USUAL.replace(b'"a"', b'"%b"' % (b"x" * 100))
    rounds.read([*map(encode_event, sse(text("One"))[:3])], out)
    with pytest.raises(UpstreamBroken, match="grown over 2000 bytes"):
        rounds.read([long] * 20, out)
    assert len(out) > 10
