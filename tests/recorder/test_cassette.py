from pathlib import Path

import pytest

from recorder.cassette import Cassette
from recorder.errors import CassetteError

SHARED_FIELDS_ALONE = """\
turns:
- filename: first
  request:
    method: post
    path: /v1/messages
    query_params: {beta: 'true'}
    headers: {Content-Type: application/json}
    body: {model: qwen3, messages: [{role: user, content: hello}]}
  response:
    status_code: 200
    headers: {content-type: text/event-stream; charset=utf-8}
    sse: ["event: message_stop\\n", "data: {}\\n", "\\n"]
- request: {method: GET, path: /v1/models}
  response:
    status_code: 200
    body: {data: [], object: list}
"""


def cassette(folder: Path, text: str) -> Cassette:
    path = folder / "cassette.yaml"
    path.write_text(text)
    return Cassette(path)


def test_shared_fields_are_enough(tmp_path: Path) -> None:
    streamed, plain = cassette(tmp_path, SHARED_FIELDS_ALONE)
    assert (streamed.filename, streamed.request.method, streamed.request.path) == ("first", "POST", "/v1/messages")
    assert streamed.request.query_params == {"beta": "true"}
    assert streamed.request.headers == {"content-type": "application/json"}
    assert streamed.request.body["messages"][0]["content"] == "hello"
    assert streamed.response.is_stream
    assert streamed.response.content.read() == b"event: message_stop\ndata: {}\n\n"
    assert list(streamed.response.event_ms) == []
    assert (plain.filename, plain.request.body) == ("t2", None)
    assert plain.response.content.read() == b'{"data":[],"object":"list"}'


def test_fields_it_does_not_know_are_left_alone(tmp_path: Path) -> None:
    text = "mood: good\n" + SHARED_FIELDS_ALONE.replace(
        "  response:\n", "  weather: [sun]\n  response:\n    taste: {}\n", 1
    )
    assert [turn.filename for turn in cassette(tmp_path, text)] == ["first", "t2"]


def test_what_is_recorded_beside_the_turns(tmp_path: Path) -> None:
    assert cassette(tmp_path, "recorded: {version: 0.32.0}\nturns: []\n").recorded() == {"version": "0.32.0"}
    assert cassette(tmp_path, SHARED_FIELDS_ALONE).recorded() == {}


def test_no_turns_yet(tmp_path: Path) -> None:
    assert list(cassette(tmp_path, "turns:\n")) == []
    assert list(cassette(tmp_path, "turns: []\n")) == []


def test_exact_bytes_go_before_the_readable_body(tmp_path: Path) -> None:
    text = (
        "turns:\n- request: {method: GET, path: /}\n  response: {status_code: 200, body: {a: 1}, text: '{\"a\": 1}'}\n"
    )
    (turn,) = cassette(tmp_path, text)
    assert turn.response.content.read() == b'{"a": 1}'


def test_anchors_are_understood_across_turns(tmp_path: Path) -> None:
    text = (
        "turns:\n"
        "- {request: {method: POST, path: /, body: &body {a: [1]}}, response: {status_code: 200}}\n"
        "- {request: {method: POST, path: /, body: *body}, response: {status_code: 200}}\n"
    )
    assert [turn.request.body for turn in cassette(tmp_path, text)] == [{"a": [1]}, {"a": [1]}]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "it is empty"),
        ("- a\n", "line 1: the file is no mapping"),
        ("a: 1\n", "it has no `turns`"),
        ("turns: {a: 1}\n", "line 1: turns is no list"),
        ("turns: yes\n", "line 1: turns is no list"),
        ("turns:\n- 1\n", "line 2: turns.0 is no mapping"),
        ("turns:\n- filename: t1\n", "line 2: t1 has no request"),
        ("turns:\n- request: {path: /}\n  response: {}\n", "line 2: t1.request has no method"),
        ("turns:\n- request: {method: GET, path: /}\n", "line 2: t1 has no response"),
        (
            "turns:\n- request: {method: GET, path: /}\n  response: {body: {}}\n",
            "line 3: t1.response has no status_code",
        ),
        ("turns:\n- request: {method: GET, path: 3}\n", "line 2: t1.request.path is no text"),
        ("turns:\n- response: {status_code: true}\n", "line 2: t1.response.status_code is no integer"),
        ("turns:\n- response: {sse: [{a: 1}]}\n", "line 2: t1.response.sse is no list of lines"),
        ("turns:\n- response: {event_ms: [soon]}\n", "line 2: t1.response.event_ms is no number"),
        ("turns:\n- response: {base64: '!'}\n", "line 2: t1.response.base64 is no base64"),
        ("turns:\n- response: {body: {when: 2026-11-30}}\n", "line 2: t1.response.body is no JSON value"),
        ("turns: [\n", "not YAML"),
    ],
)
def test_says_what_is_no_cassette_and_where(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(CassetteError) as error:
        list(cassette(tmp_path, text))
    assert str(error.value).startswith(str(tmp_path))
    assert complaint in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CassetteError, match="No such file"):
        list(Cassette(tmp_path / "none.yaml"))
