import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from recorder.cassette import Cassette, Request, Response, Turn
from recorder.errors import RecordingError
from recorder.writer import CassetteWriter, turn_yaml
from tests.recorder.tape import answered, asked, streamed, streamed_bytes, write
from tests.support.upstream import message, sse, text

AWKWARD = st.text(alphabet=" \n\t\r#:-'\"\\|>{}[]\x85\u2028\ufeff\x00a🚀é%&*!?0")
STRINGS = st.one_of(st.text(), AWKWARD)
JSON = st.recursive(
    st.one_of(STRINGS, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3),
    max_leaves=8,
)
BODIES = st.one_of(st.binary(), STRINGS.map(lambda value: value.encode("utf-8", "surrogatepass")))


@settings(max_examples=150, deadline=None)
@given(request_body=JSON, body=BODIES, stream=BODIES)
def test_gives_back_every_value_and_every_byte(
    tmp_path_factory: pytest.TempPathFactory, request_body: Any, body: bytes, stream: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    request = Request("POST", "/v1/messages", {}, {}, request_body)
    with CassetteWriter(path, {}) as writer:
        kept = writer.append(request, answered(body))
        writer.append(request, streamed_bytes(stream))
    plain, streaming = Cassette(path)
    assert plain.request.body == kept.request.body
    assert plain.response.content.read() == kept.response.content.read()
    assert streaming.response.is_stream
    assert len(yaml.safe_load(path.read_bytes())["turns"]) == 2


def test_a_reader_of_the_shared_fields_alone_understands_it(tmp_path: Path) -> None:
    events = sse(text("Hello ", "you"))
    path = write(
        tmp_path / "c.yaml", (asked("hi", stream=True), streamed(events, [1.0] * len(events))), recorded={"at": "now"}
    )
    (turn,) = yaml.safe_load(path.read_text())["turns"]
    assert turn["filename"] == "t1"
    assert turn["request"] == {
        "method": "POST",
        "path": "/v1/messages",
        "query_params": {},
        "headers": {},
        "body": {"model": "qwen3", "max_tokens": 64, "messages": [{"role": "user", "content": "hi"}], "stream": True},
    }
    assert turn["response"]["status_code"] == 200
    assert turn["response"]["headers"] == {"content-type": "text/event-stream; charset=utf-8"}
    assert turn["response"]["sse"][0] == "event: message_start\n"
    assert turn["response"]["sse"][2] == "\n"
    assert "".join(turn["response"]["sse"]).encode() == streamed(events).content.read()


def test_json_that_is_not_compact_keeps_its_bytes_beside_the_readable_body(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", (asked("hi"), answered(b'{"a": 1}')))
    (turn,) = Cassette(path)
    assert turn.response.content.read() == b'{"a": 1}'
    assert yaml.safe_load(path.read_text())["turns"][0]["response"]["body"] == {"a": 1}


def test_what_yaml_cannot_hold_as_a_value_is_held_as_text(tmp_path: Path) -> None:
    deep: Any = "bottom"
    for _ in range(200):
        deep = [deep]
    bodies = [deep, {"half": "\ud83d"}]
    path = write(tmp_path / "c.yaml", *((Request("POST", "/", {}, {}, body), answered({})) for body in bodies))
    assert [turn.request.body for turn in Cassette(path)] == bodies


def test_a_turn_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    with CassetteWriter(path, {}) as writer:
        assert list(Cassette(path)) == []
        for number in range(1, 4):
            writer.append(asked("hi"), answered(message(text("yo"))))
            assert len(list(Cassette(path))) == number


class _Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("survived", range(1, 40, 2))
def test_killed_at_any_write_the_file_has_every_finished_turn(
    survived: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, path, writes, finished = os.pwrite, tmp_path / "c.yaml", 0, 0

    def killing(file: int, data: bytes, offset: int) -> int:
        nonlocal writes
        writes += 1
        if writes > survived:
            half = data[: len(data) // 2] if len(data) > 10 else b""
            really(file, half, offset)
            raise _Killed
        return really(file, data, offset)

    monkeypatch.setattr("recorder.writer._BATCH", 100)
    monkeypatch.setattr(os, "pwrite", killing)
    with CassetteWriter(path, {"at": "now"}) as writer:
        while True:
            try:
                writer.append(asked("hi"), streamed(sse(text("Hello you"))))
            except _Killed:
                break
            finished += 1
    assert len(list(Cassette(path))) == finished
    assert len(yaml.safe_load(path.read_bytes())["turns"] or []) == finished


def test_a_full_disk_leaves_the_turns_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.yaml"
    with CassetteWriter(path, {}) as writer:
        writer.append(asked("one"), answered({"a": 1}))
        before = path.read_bytes()

        def full(file: int, data: bytes, offset: int) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(RecordingError, match="No space left"):
            writer.append(asked("two"), answered({"a": 2}))
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="No such file"):
        CassetteWriter(tmp_path / "nowhere" / "c.yaml", {})


def test_a_stream_reads_line_by_line() -> None:
    turn = Turn("t1", asked("hi"), Response(200, {}, streamed_bytes(b"event: ping\n\n odd\n").content, True))
    lines = "".join(turn_yaml(turn))
    assert lines.endswith('      sse:\n        - |\n          event: ping\n        - "\\n"\n        - " odd\\n"\n')
