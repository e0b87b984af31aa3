import pytest

from recorder.capture import Capture
from tests.recorder.tape import streamed
from tests.support.upstream import sse, text

STREAM = streamed(sse(text("Hello you"))).content.read()
EVENTS = STREAM.count(b"\n\n")


def capture(*pieces: bytes, content_type: bytes = b"text/event-stream") -> Capture:
    captured = Capture()
    captured.head(200, [(b"Content-Type", content_type)])
    for piece in pieces:
        captured.feed(piece)
    return captured


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
@pytest.mark.parametrize("stream", [STREAM, STREAM.replace(b"\n", b"\r\n")], ids=["LF", "CRLF"])
def test_every_event_has_its_time_however_it_was_cut(stream: bytes, size: int) -> None:
    captured = capture(*(stream[at : at + size] for at in range(0, len(stream), size)))
    assert captured.message_stopped
    response = captured.finish()
    assert response.is_stream
    assert response.content.read() == stream
    assert len(response.event_ms) == EVENTS
    assert list(response.event_ms) == sorted(response.event_ms)
    assert response.elapsed_ms is not None
    assert response.elapsed_ms >= response.event_ms[-1]


def test_an_event_that_was_not_ended_counts_too() -> None:
    captured = capture(STREAM, b"event: more\n")
    assert not captured.message_stopped
    assert len(captured.finish().event_ms) == EVENTS + 1


def test_a_message_that_has_not_stopped() -> None:
    assert not capture(STREAM[:-10]).message_stopped
    assert not capture(b'{"event: message_stop": 1}', content_type=b"application/json").message_stopped


def test_what_is_no_stream_has_one_time() -> None:
    captured = capture(b'{"a"', b":1}", content_type=b"application/json")
    assert captured.size == 7
    response = captured.finish()
    assert (response.is_stream, list(response.event_ms)) == (False, [])
    assert response.json() == {"a": 1}
