from typing import Any

import pytest

from recorder.conversation import Conversation, Script
from recorder.errors import RecordingError
from tests.recorder.tape import assistant, result, user
from tests.support.upstream import message, text, thinking, tool_use


def conversation(*prompts: str, turns: int = 9, outputs: dict[str, str] | None = None, **fields: Any) -> Conversation:
    return Conversation(Script(prompts, turns, {"model": "qwen3", "messages": [], **fields}, outputs or {}))


def asks(talk: Conversation) -> Any:
    body = talk.ask()
    return body and body["messages"]


RUST = tool_use("web_search", {"query": "rust"}, id="a")
GO = tool_use("web_search", {"query": "go"}, id="b")
LS = tool_use("Bash", {"command": "ls"}, id="c")
FINDS = {"web_search": "found", "Bash": "a.txt"}


def test_each_turn_sends_the_whole_history() -> None:
    talk = conversation("hi", "bye")
    assert asks(talk) == [user("hi")]
    talk.answer(message(thinking("hm", signature="s"), text("Hello")))
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    hello = {"type": "text", "text": "Hello"}
    assert asks(talk) == [user("hi"), assistant(thought, hello), user("bye")]
    talk.answer(message(text("Bye")))
    assert asks(talk) is None


def test_calls_are_answered_in_one_message_in_their_order() -> None:
    talk = conversation("compare", outputs=FINDS)
    talk.ask()
    talk.answer(message(RUST, LS, GO))
    (_, asked_for, results) = asks(talk)
    assert asked_for == assistant(RUST.value, LS.value, GO.value)
    assert results == user([result("a", "found"), result("c", "a.txt"), result("b", "found")])


def test_white_space_alone_stays_out_of_the_history() -> None:
    talk = conversation("hi", "bye", outputs=FINDS)
    talk.ask()
    talk.answer(message(text("\n\n"), RUST))
    assert asks(talk)[1] == assistant(RUST.value)
    talk.answer(message(text("\n")))
    assert asks(talk)[-2:] == [assistant({"type": "text", "text": ""}), user("bye")]


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "web_search"}])
def test_a_forced_choice_holds_until_a_tool_has_answered(choice: dict[str, Any]) -> None:
    talk = conversation("hi", "bye", outputs=FINDS, tool_choice={**choice, "disable_parallel_tool_use": True})
    first = talk.ask()
    assert first
    assert first["tool_choice"] == {**choice, "disable_parallel_tool_use": True}
    for answer in (message(RUST, stop_reason="end_turn"), message(text("Done"))):
        talk.answer(answer)
        body = talk.ask()
        assert body
        assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "none"}])
def test_another_choice_stays(choice: dict[str, Any]) -> None:
    talk = conversation("hi", outputs=FINDS, tool_choice=choice)
    talk.ask()
    talk.answer(message(RUST))
    body = talk.ask()
    assert body
    assert body["tool_choice"] == choice


def test_a_call_cut_short_is_not_answered() -> None:
    talk = conversation("hi", "bye", outputs=FINDS)
    talk.ask()
    talk.answer(message(RUST, stop_reason="max_tokens"))
    assert asks(talk) == [user("hi"), assistant(RUST.value), user("bye")]


def test_it_ends_at_the_most_turns() -> None:
    talk = conversation("hi", "bye", turns=1)
    talk.ask()
    talk.answer(message(RUST))
    assert talk.ask() is None


def test_a_prompt_without_an_answer_leaves_the_history() -> None:
    talk = conversation("one", "two", "three", outputs=FINDS)
    talk.ask()
    talk.answer(message(text("1")))
    talk.ask()
    talk.answer(message(RUST))
    assert len(asks(talk)) == 5
    talk.answer(None)
    assert asks(talk) == [user("one"), assistant({"type": "text", "text": "1"}), user("three")]


def test_a_tool_without_an_output_is_named() -> None:
    talk = conversation("hi", outputs={"web_search": "found"})
    talk.ask()
    talk.answer(message(LS))
    with pytest.raises(RecordingError, match="the model called Bash"):
        talk.ask()
