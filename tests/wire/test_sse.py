"""Bytes to frames, however the bytes are cut and whatever ends the lines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import UpstreamBroken
from gateway.wire.sse import SSEReader, write_event

STREAM = (
    ": a comment\n\n"
    'event: message_start\ndata: {"a":1}\n\n'
    "\n"
    "id: 7\nevent:content_block_delta\ndata:{\ndata: }\nretry: 1\n\n"
    'data: {"text":"é🚀"}\n\n'
    "event: nothing\n\n"
    "event: message_stop\ndata: {}\n\n"
)
FRAMES = [
    ("message_start", b'{"a":1}'),
    ("content_block_delta", b"{\n}"),
    ("", '{"text":"é🚀"}'.encode()),
    ("message_stop", b"{}"),
]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_every_cut_gives_the_same_frames(line_end: str, mark: bytes) -> None:
    data = mark + STREAM.replace("\n", line_end).encode()
    for cut in range(len(data) + 1):
        reader = SSEReader()
        frames = reader.feed(data[:cut]) + reader.feed(data[cut:])
        assert [(frame.event, frame.data) for frame in frames] == FRAMES


@given(st.lists(st.integers(1, 9), max_size=60), st.sampled_from(["\n", "\r\n", "\r"]))
def test_any_number_of_cuts_gives_the_same_frames(lengths: list[int], line_end: str) -> None:
    data = STREAM.replace("\n", line_end).encode()
    reader, frames, at = SSEReader(), [], 0
    for length in [*lengths, len(data)]:
        frames += reader.feed(data[at : at + length])
        at += length
    assert [(frame.event, frame.data) for frame in frames] == FRAMES


def test_only_an_event_written_the_usual_way_may_pass_as_its_bytes() -> None:
    usual = write_event("ping", b'{"type":"ping"}')
    assert SSEReader().feed(usual)[0].raw == usual
    for other in (b"event:ping\ndata: {}\n\n", b"data: {}\nevent: ping\n\n", b"event: ping\nid: 1\ndata: {}\n\n"):
        assert SSEReader().feed(other)[0].raw is None


def test_an_event_that_is_not_finished_is_no_event() -> None:
    assert SSEReader().feed(b'event: ping\ndata: {"type":"ping"}\n') == []


@pytest.mark.parametrize("pieces", [1, 7])
def test_an_event_over_the_limit_ends_the_stream(pieces: int) -> None:
    data = b"data: " + b"x" * 100 + b"\n\n"
    reader, size = SSEReader(max_event_bytes=50), len(data) // pieces
    with pytest.raises(UpstreamBroken, match="more than 50 bytes"):
        any(reader.feed(data[at : at + size]) for at in range(0, len(data), size))


def test_an_event_at_the_limit_passes() -> None:
    assert SSEReader(max_event_bytes=10).feed(b"data: 1234\n\n")[0].data == b"1234"
