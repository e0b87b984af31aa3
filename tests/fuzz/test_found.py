"""What fuzzing found: each of these once ended a request with an error of the gateway's own."""

import json
from typing import Any

import pytest

from gateway.errors import UpstreamBroken
from gateway.tokens import read_token_fields
from gateway.turn import MessagesRounds, Out, Rounds, TokenRounds, read_turn
from gateway.wire.sse import SSEReader, write_event
from tests.fuzz.grammar import MARK
from tests.fuzz.targets import DEEP, RULES
from tests.support.playbook import NATIVE, QUESTION
from tests.support.upstream import message, sse, text, thinking, tool_use

ODD: list[Any] = [{}, [], 7, True]


def rounds_of(*, stream: bool, **more: Any) -> Rounds:
    body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "tools": [NATIVE], "stream": stream, **more}
    turn, fields = read_turn(json.dumps(body).encode(), RULES), read_token_fields(body)
    assert turn is not None
    return MessagesRounds(turn, "/v1/messages") if fields is None else TokenRounds(turn, fields, "vllm", "/v1/messages")


def reads(rounds: Rounds, said: Any) -> Out:
    """What the client gets of a round in which upstream says this."""
    out: Out = []
    rounds.request()
    if rounds.streams:
        written = b"".join(write_event(event.get("type", "message"), json.dumps(event).encode()) for event in said)
        rounds.read(SSEReader().split(written), out)
    else:
        rounds.read_whole(json.dumps(said).encode(), out)
    rounds.end(out)
    rounds.finish(out)
    return out


def put(value: Any, path: str, odd: Any) -> Any:
    """``value`` with ``odd`` at ``path``."""
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    holder = value
    for step in steps:
        holder = holder[step]
    holder[last] = odd
    return value


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("path", ["1.content_block.text", "2.delta.type", "2.delta.text", "4.delta.stop_reason"])
def test_a_stream_with_an_odd_value(path: str, odd: Any) -> None:
    with pytest.raises(UpstreamBroken):
        reads(rounds_of(stream=True), put(sse(text("hi")), path, odd))


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("path", ["content.0.text", "stop_reason"])
def test_a_message_with_an_odd_value(path: str, odd: Any) -> None:
    with pytest.raises(UpstreamBroken):
        reads(rounds_of(stream=False), put(message(text("hi")), path, odd))


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_call_whose_name_is_none_is_the_clients_to_judge(odd: Any) -> None:
    said = put(message(tool_use("Bash", {}), stop_reason="end_turn"), "content.0.name", odd)
    assert reads(rounds_of(stream=False), said)[1]["content_block"]["name"] == odd  # type: ignore[call-overload]


def test_thinking_that_starts_without_any() -> None:
    said = sse(thinking("Hm."))
    put(said, "1.content_block", {"type": "thinking"})
    assert reads(rounds_of(stream=True), said)[1]["content_block"] == {  # type: ignore[call-overload]
        "type": "thinking",
        "thinking": "",
        "signature": "",
    }


def test_a_message_without_usage() -> None:
    assert reads(rounds_of(stream=False), put(message(text("hi")), "usage", None))


@pytest.mark.parametrize("arguments", [DEEP, "1" * 5000, '{"query": "\\ud800"}', "NaN"], ids=lambda text: text[:12])
def test_arguments_of_a_chat_completion_that_are_no_json(arguments: str) -> None:
    reply = {"tool_calls": [{"id": "c", "function": {"name": "web_search", "arguments": arguments}}]}
    choice = {"message": reply, "finish_reason": "tool_calls", "token_ids": [1]}
    with pytest.raises(UpstreamBroken):
        reads(rounds_of(stream=False, return_token_ids=True), {"id": "c", "model": "m", "choices": [choice]})


def test_a_deep_beginning_of_arguments_in_a_chat_stream() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "Bash", "arguments": DEEP}}
    deltas: list[Any] = [{"role": "assistant"}, {"tool_calls": [call]}]
    chunks = [{"id": "c", "model": "m", "choices": [{"delta": delta, "token_ids": [1]}]} for delta in deltas]
    put(chunks, "1.choices.0.finish_reason", "tool_calls")
    end = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
    assert reads(rounds_of(stream=True, return_token_ids=True), [*chunks, end])


def test_marked_thinking_whose_text_stands_behind_a_result() -> None:
    blocks = [
        {"type": "server_tool_use", "id": "srvtoolu_a", "name": "web_search", "input": {"query": "x"}},
        {"type": "thinking", "thinking": "Hm.", "signature": MARK},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_a", "content": []},
        {"type": "text", "text": "So."},
    ]
    body = {"model": "m", "max_tokens": 9, "messages": [QUESTION, {"role": "assistant", "content": blocks}, QUESTION]}
    turn = read_turn(json.dumps(body).encode(), RULES)
    assert turn is not None
    assert [len(message["content"]) for message in json.loads(turn.request())["messages"][1:4]] == [2, 1, 1]
