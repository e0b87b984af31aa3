from pathlib import Path
from typing import Any

import pytest

from recorder.cassette import Cassette, Response
from recorder.diff import diff
from tests.recorder.tape import Exchange, answered, asked, assistant, call, result, streamed, user, write
from tests.support.upstream import message, sse, text, thinking, tool_use


def run(id: str, words: list[str], found: str = "1.89.0", stream: bool = True) -> list[Exchange]:
    """A search, with ids and signatures of its own, its thinking cut into deltas as given."""
    blocks = [thinking(*words, signature=id), tool_use("web_search", {"query": "rust"}, id=f"call-{id}")]
    made = f"chatcmpl-{id}"
    answers: list[Response] = [
        streamed(sse(*said, id=made), [1.0] * len(sse(*said))) if stream else answered(message(*said, id=made))
        for said in (blocks, [text(f"It is {found}.")])
    ]
    history: list[Any] = [
        "Rust?",
        assistant(blocks[0].value, call(f"call-{id}", "rust")),
        user([result(f"call-{id}", found)]),
    ]
    return [(asked(history[0], stream=stream), answers[0]), (asked(*history, stream=stream), answers[1])]


def found(folder: Path, left: list[Exchange], right: list[Exchange]) -> list[str]:
    paths = [write(folder / f"{side}.yaml", *turns) for side, turns in (("left", left), ("right", right))]
    return [difference.path for difference in diff(*map(Cassette, paths))]


@pytest.mark.parametrize("stream", [True, False])
def test_ids_times_and_signatures_are_no_difference(stream: bool, tmp_path: Path) -> None:
    assert found(tmp_path, run("a", ["I search."], stream=stream), run("b", ["I search."], stream=stream)) == []


def test_where_deltas_were_cut_is_no_difference(tmp_path: Path) -> None:
    assert found(tmp_path, run("a", ["I ", "search."]), run("b", ["I sea", "r", "ch."])) == []


def test_other_words_are(tmp_path: Path) -> None:
    assert found(tmp_path, run("a", ["I search."]), run("a", ["I look."])) == [
        "turns.1.response.sse.2.delta.thinking",
        "turns.2.request.body.messages.1.content.0.thinking",
    ]


def test_another_result_and_answer_are(tmp_path: Path) -> None:
    assert found(tmp_path, run("a", ["x"], stream=False), run("a", ["x"], "1.90.0", stream=False)) == [
        "turns.2.request.body.messages.2.content.0.content",
        "turns.2.response.body.content.0.text",
    ]


def test_another_transport_is(tmp_path: Path) -> None:
    paths = found(tmp_path, run("a", ["x"]), run("a", ["x"], stream=False))
    assert {"turns.1.request.body.stream", "turns.1.response.sse", "turns.1.response.body"} <= set(paths)


def test_a_turn_more_is(tmp_path: Path) -> None:
    both = run("a", ["x"])
    assert found(tmp_path, both, both[:1]) == ["turns.2"]


def test_another_status_is(tmp_path: Path) -> None:
    one, other = ([(asked("hi"), answered({"error": {"message": "no"}}, status))] for status in (400, 404))
    assert found(tmp_path, one, other) == ["turns.1.response.status_code"]
