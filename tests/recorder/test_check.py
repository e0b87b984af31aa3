import json
from pathlib import Path
from typing import Any

import pytest

from recorder.cassette import Cassette, Request
from recorder.check import check
from tests.recorder.tape import Exchange, answered, asked, assistant, call, result, streamed, user, write
from tests.support.upstream import message, sse, text, thinking, tool_use

THOUGHT = thinking("I should search.", signature="s")
SEARCH = tool_use("web_search", {"query": "rust"}, id="a")
HISTORY = [user("Latest Rust?"), assistant(THOUGHT.value, call("a", "rust")), user([result("a", "1.89.0")])]
FIRST: Exchange = (asked(HISTORY[0], stream=True), streamed(sse(THOUGHT, text("\n\n"), SEARCH)))
SECOND: Exchange = (asked(*HISTORY), answered(message(text("It is 1.89.0."))))


def complaints(folder: Path, *exchanges: Exchange) -> list[str]:
    return list(check(Cassette(write(folder / "c.yaml", *exchanges))))


def changed(value: Any, path: str, new: Any) -> Any:
    """A copy of a JSON value, with another value at a dotted path."""
    copy = json.loads(json.dumps(value))
    *way, last = (int(key) if key.isdigit() else key for key in path.split("."))
    place = copy
    for key in way:
        place = place[key]
    place[last] = new
    return copy


def test_a_sound_conversation(tmp_path: Path) -> None:
    assert complaints(tmp_path, FIRST, SECOND) == []


def test_several_conversations_in_one_cassette(tmp_path: Path) -> None:
    other = (asked(user("hi")), answered(message(text("Hello"))))
    again = (asked(user("hi")), answered(message(text("Hi"))))
    hello = assistant({"type": "text", "text": "Hello"})
    after = (asked(user("hi"), hello, user("bye")), answered(message(text("Bye"))))
    began_before = (asked(user("x"), hello, user("z")), answered(message(text("w"))))
    models = (Request("GET", "/v1/models"), answered({"data": []}))
    assert complaints(tmp_path, FIRST, other, models, SECOND, again, began_before, after) == []


def test_signatures_blank_text_and_cache_marks_may_change_on_the_way(tmp_path: Path) -> None:
    sent = [
        user([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]),
        assistant({"type": "text", "text": "Hello"}),
        user("bye"),
    ]
    first = (asked(user([{"type": "text", "text": "hi"}])), answered(message(text("Hello"))))
    assert complaints(tmp_path, first, (asked(*sent), answered(message(text("Bye"))))) == []
    bare = changed(HISTORY, "1.content.0", {"type": "thinking", "thinking": "I should search."})
    assert complaints(tmp_path, FIRST, (asked(*bare), SECOND[1])) == []


@pytest.mark.parametrize(
    ("path", "new", "place"),
    [
        ("1.content.0.thinking", "Nothing.", "request.body.messages.1.content.0.thinking"),
        ("1.content.1.input.query", "go", "request.body.messages.1.content.1.input.query"),
    ],
)
def test_a_history_that_is_not_what_was_answered(path: str, new: str, place: str, tmp_path: Path) -> None:
    (complaint,) = complaints(tmp_path, FIRST, (asked(*changed(HISTORY, path, new)), SECOND[1]))
    assert complaint.startswith("t2: its history is not what t1 was asked and answered:\n")
    assert place in complaint
    assert f'sent on   "{new}"' in complaint


def test_a_later_turn_that_changes_an_earlier_result(tmp_path: Path) -> None:
    third = [*changed(HISTORY, "2.content.0.content", "1.90.0"), assistant({"type": "text", "text": "It is 1.89.0."})]
    (complaint,) = complaints(tmp_path, FIRST, SECOND, (asked(*third, user("sure?")), answered(message(text("Yes")))))
    assert complaint.startswith("t3: its history is not what t2 was asked and answered:\n")
    assert "request.body.messages.2.content.0.content" in complaint


def test_an_unanswered_prompt_may_leave_the_history(tmp_path: Path) -> None:
    failed = (asked(user("Latest Rust?"), *HISTORY[1:2], user("oops")), answered({"error": {"message": "no"}}, 400))
    assert complaints(tmp_path, FIRST, failed, SECOND) == []


GOOD = message(text("Hello"))
EVENTS = sse(text("Hello"))


@pytest.mark.parametrize(
    ("exchange", "complaint"),
    [
        ((asked("hi"), answered({**GOOD, "id": None})), "response.body.id: missing, or no str"),
        ((asked("hi"), answered([])), "response.body: no JSON object"),
        ((asked("hi"), answered({"oops": 1}, 500)), "response.body.error: no object, though the status says failure"),
        ((asked("hi"), answered({"error": {}}, 999)), "response.status_code: 999 is no HTTP status"),
        ((asked("hi", stream=True), answered(GOOD)), "request.body.stream: True, which is not what was answered"),
        ((asked("hi", messages="hi"), answered(GOOD)), "request.body.messages: no list"),
        ((Request("POST", "/v1/messages", {}, {}, None, "{"), answered(GOOD)), "request.body: no JSON object"),
        (
            (asked("hi", stream=True), streamed(EVENTS[:-1])),
            "event 5 is the last: the stream ends before message_stop",
        ),
        ((asked("hi", stream=True), streamed(EVENTS[1:])), "event 1: content_block_start before message_start"),
        ((asked("hi", stream=True), streamed(EVENTS, [1.0])), "response.event_ms: 1 times for 6 events"),
        ((asked("hi", stream=True), streamed(EVENTS, [3, 2, 4, 5, 6, 7])), "response.event_ms: not in order"),
    ],
)
def test_what_is_not_sound(exchange: Exchange, complaint: str, tmp_path: Path) -> None:
    assert complaints(tmp_path, exchange) == [f"t1: {complaint}"]


def test_an_event_whose_name_is_not_its_type(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", (asked("hi", stream=True), streamed(EVENTS)))
    path.write_text(path.read_text().replace("event: message_stop", "event: message_end"))
    assert list(check(Cassette(path))) == ["t1: event 6: named message_end, its data is a message_stop"]


def test_two_turns_of_one_name(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", (asked("hi"), answered(GOOD)), (asked("ho"), answered(GOOD)))
    path.write_text(path.read_text().replace("filename: t2", "filename: t1"))
    assert list(check(Cassette(path))) == ["t1: an earlier turn has that name"]


def test_a_recording_that_was_stopped_before_its_first_turn_ended(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml")
    assert complaints(tmp_path) == []
    path.write_text(path.read_text() + "staged: |\n  - filename: t1\n    requ")
    assert list(check(Cassette(path))) == []
