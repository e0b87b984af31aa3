"""Cassettes larger than memory should be: what is held while one is recorded and played stays far below its size."""

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from recorder.capture import Capture
from recorder.cassette import Cassette, Turn
from recorder.check import check
from recorder.library import Library
from recorder.messages import fold
from recorder.redact import redact_turn
from recorder.writer import CassetteWriter
from tests.recorder.tape import answered, asked, streamed
from tests.support.upstream import encode_event, message, sse, text

DELTAS = 8_000


def peak(work: Callable[[], object]) -> int:
    """The most memory that Python held at once beyond what it held before, in bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def words(count: int) -> list[str]:
    chosen = random.Random(0)
    return [f" {chosen.randrange(10**6)}" for _ in range(count)]


def test_one_long_stream(tmp_path: Path) -> None:
    path, events = tmp_path / "long.yaml", [encode_event(event) for event in sse(text(*words(DELTAS)))]
    size = sum(map(len, events))

    def record() -> None:
        capture = Capture()
        capture.head(200, [(b"content-type", b"text/event-stream")])
        for event in events:
            capture.feed(event)
        with CassetteWriter(path, {}) as writer:
            writer.append(asked("hi", stream=True), capture.finish())

    def play() -> None:
        library = Library([path])
        (turn,) = library.turns
        assert sum(map(len, library.events(turn))) == size
        library.close()

    # its lines as strings alone would be more than twice its size, its events as values ten times
    assert peak(record) < 2 * size
    assert peak(play) < 1.2 * size
    (turn,) = Cassette(path)
    assert fold(turn.response.content.lines()).message["usage"] == {"input_tokens": 10, "output_tokens": 5}


def test_one_stream_of_long_events() -> None:
    response = streamed(sse(text(*["y" * 4000] * 2000)))
    size = response.content.size
    assert peak(lambda: redact_turn(Turn("t1", asked("hi", stream=True), response))) < 0.5 * size


def test_many_turns(tmp_path: Path) -> None:
    path, prompt = tmp_path / "many.yaml", "".join(words(3000))

    def record() -> None:
        with CassetteWriter(path, {}) as writer:
            for number in range(100):
                writer.append(asked(f"{number}{prompt}"), answered(message(text("Hello"))))

    memory = peak(record)
    size = path.stat().st_size
    assert memory < 0.6 * size
    assert peak(lambda: Library([path]).close()) < 0.6 * size
    assert peak(lambda: list(check(Cassette(path)))) < 0.6 * size
