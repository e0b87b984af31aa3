"""A whole message told as a stream."""

from gateway.tokens.unfold import message_events
from tests.tokens.conversation import fold, riding

MESSAGE = {
    "id": "chatcmpl-1",
    "type": "message",
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "call-1", "name": "web_search", "input": {"query": "Größe"}},
    ],
    "model": "qwen3",
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 4},
    "output_ids": [5, 6, 7, 8],
    "output_token_logprobs": [(-0.1, 5), (-0.2, 6), (-0.3, 7), (-0.4, 8)],
    "routed_experts": "k05VTVBZ",
}


def test_the_stream_folds_to_the_message() -> None:
    events = message_events(MESSAGE)
    folded = fold(events)

    assert folded.content == [
        {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "call-1", "name": "web_search", "input": '{"query": "Größe"}'},
    ]
    assert (folded.stop_reason, folded.usage) == ("tool_use", MESSAGE["usage"])
    assert folded.output_ids == MESSAGE["output_ids"]
    assert folded.output_token_logprobs == MESSAGE["output_token_logprobs"]
    assert events[-2]["routed_experts"] == "k05VTVBZ"


def test_it_starts_as_a_stream_starts() -> None:
    assert message_events(MESSAGE)[0]["message"] == {
        "id": "chatcmpl-1",
        "type": "message",
        "role": "assistant",
        "model": "qwen3",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 3, "output_tokens": 0},
    }


def test_what_the_message_does_not_have_the_stream_does_not() -> None:
    plain = {key: value for key, value in MESSAGE.items() if key not in ("output_ids", "routed_experts")}

    assert "routed_experts" not in message_events(plain)[-2]
    assert fold(message_events(plain)).output_ids == []


def test_an_empty_answer_still_carries_its_ids() -> None:
    empty = {**MESSAGE, "content": [{"type": "text", "text": ""}]}

    assert riding(message_events(empty)) == [("", [5, 6, 7, 8])]
