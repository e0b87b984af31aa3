"""A turn whose tokens count: which ids each shown block carries, and the rounds that a trainer reads."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import InvalidRequest, UpstreamBroken, UpstreamStreamError
from gateway.handling.classify import classify
from gateway.tokens import Dialect
from gateway.turn import Fold, Out, TokenRounds, TurnRules, jsonvalue
from tests.support.playbook import BASH, NATIVE, QUESTION, SEALER, SEARCH, found
from tests.support.upstream import encode_event, message, sse, text, tool_use
from tests.support.vllm import Part, call, chat_answer, chat_chunks, markup, say, thought

ASKED = {"return_token_ids": True, "return_logprob": True}
RULES = TurnRules(SEALER)
SEARCH_RUST = call("web_search", {"query": "rust"}, 30, 31, id="call-rust")
LIST = call("Bash", {"command": "ls"}, 40, 41, id="call-ls", index=1)
DONE = (say("It is", 50), say(" 1.89.", 51), markup(9))


@dataclass
class Played:
    asked: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    message: dict[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> list[tuple[str, list[list[int]]]]:
        """Each block's type, with the ids on each of its deltas that has some."""
        blocks: list[tuple[str, list[list[int]]]] = []
        for event in self.events:
            if event["type"] == "content_block_start":
                blocks.append((event["content_block"]["type"], []))
            elif event.get("output_ids"):
                assert [token for _, token in event["output_token_logprobs"]] == event["output_ids"]
                blocks[event["index"]][1].append(event["output_ids"])
        return blocks

    @property
    def rounds(self) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = self.events[-2]["rounds"] if self.events else self.message["rounds"]
        return told


def events(items: Sequence[dict[str, Any]]) -> list[bytes]:
    return [b"data: %b\n\n" % data for data in [*map(jsonvalue.write, items), b"[DONE]"]]


def play(
    request: dict[str, Any],
    *script: Any,
    stream: bool,
    rules: TurnRules = RULES,
    dialect: Dialect = "vllm",
) -> Played:
    """``script`` has, for each round, what upstream says: data objects for a stream, or one answer."""
    body = {"model": "qwen3", "max_tokens": 100, "messages": [QUESTION], "stream": stream, **ASKED, **request}
    turn, tokens = classify(jsonvalue.write(body), rules)
    assert turn is not None
    assert tokens is not None
    rounds = TokenRounds(turn, tokens.fields, dialect, "/v1/messages")
    played, answers = Played(), iter(script)
    out: Out = []
    while not turn.over:
        played.asked.append(jsonvalue.read(rounds.request()))
        if rounds.streams:
            rounds.read(events(next(answers)), out)
        else:
            rounds.read_whole(jsonvalue.write(next(answers)), out)
        for pending in rounds.end(out):
            turn.answer(pending, found(pending.job.query), out)
    rounds.finish(out)
    fold = Fold()
    fold.take(out)
    played.message = fold.message
    if stream:
        played.events = [event for event in out if isinstance(event, dict)]
    return played


def both(request: dict[str, Any], *script: tuple[Part, ...], rules: TurnRules = RULES) -> tuple[Played, Played]:
    """The same in both transports; each prompt is the one before, its output, and two tokens more."""
    prompts, prompt = [], [1, 2]
    for parts in script:
        prompts.append(prompt)
        prompt = [*prompt, *(token for part in parts for token in part.ids), 7, 8]
    in_json = [chat_answer(*parts, prompt=prompt) for parts, prompt in zip(script, prompts, strict=True)]
    in_stream = [chat_chunks(*parts, prompt=prompt) for parts, prompt in zip(script, prompts, strict=True)]
    one = play(request, *in_json, stream=False, rules=rules)
    other = play(request, *in_stream, stream=True, rules=rules)
    assert one.rounds == other.rounds
    assert [block["type"] for block in one.message["content"]] == [kind for kind, _ in other.shown]
    assert one.message["output_ids"] == [token for a_round in one.rounds for token in a_round["output_ids"]]
    shown = [token for _, deltas in other.shown for ids in deltas for token in ids]
    assert len(shown) == len(set(shown)), "an id twice"
    return one, other


def test_a_hidden_searchs_ids_are_in_the_rounds_and_on_no_delta() -> None:
    in_json, in_stream = both({"tools": [SEARCH]}, (thought("Hm.", 10, 11), markup(12), SEARCH_RUST), DONE)

    assert in_stream.shown == [("thinking", [[10, 11], [12]]), ("text", [[50], [51], [9]])]
    assert in_json.message["output_ids"] == [10, 11, 12, 30, 31, 50, 51, 9]
    assert in_json.message["output_token_logprobs"][:2] == [(-0.1, 10), (-0.11, 11)]
    assert in_json.rounds == [
        {
            "input_ids": [1, 2],
            "output_ids": [10, 11, 12, 30, 31],
            "output_token_logprobs": [(-0.1, 10), (-0.11, 11), (-0.12, 12), (-0.3, 30), (-0.31, 31)],
            "routed_experts": None,
        },
        {
            "input_ids": [1, 2, 10, 11, 12, 30, 31, 7, 8],
            "output_ids": [50, 51, 9],
            "output_token_logprobs": [(-0.5, 50), (-0.51, 51), (-0.09, 9)],
            "routed_experts": None,
        },
    ]


def test_each_round_is_asked_of_the_chat_endpoint() -> None:
    in_json, in_stream = both({"tools": [SEARCH]}, (SEARCH_RUST,), DONE)

    for played in (in_json, in_stream):
        assert [body["return_token_ids"] for body in played.asked] == [True, True]
        assert [message["role"] for message in played.asked[1]["messages"]] == ["user", "assistant", "tool"]
        assert played.asked[1]["messages"][2]["content"] == found("rust").text
    assert "stream" not in in_json.asked[0]
    assert in_stream.asked[0]["stream"] is True


def test_a_native_searchs_ids_are_on_its_own_deltas() -> None:
    _, in_stream = both({"tools": [NATIVE]}, (say("Look. ", 20), SEARCH_RUST, markup(32)), DONE)

    assert in_stream.shown == [
        ("text", [[20]]),
        ("server_tool_use", [[30], [31], [32]]),
        ("web_search_tool_result", []),
        ("text", [[50], [51], [9]]),
    ]


def test_a_clients_call_beside_a_hidden_one_has_its_own_ids_only() -> None:
    in_json, in_stream = both({"tools": [SEARCH, BASH]}, (SEARCH_RUST, LIST, markup(9)))

    assert in_stream.shown == [("tool_use", [[40], [41], [9]])]
    assert in_json.message["output_ids"] == [30, 31, 40, 41, 9]
    assert in_json.message["stop_reason"] == "tool_use"


def test_text_that_becomes_thinking_keeps_its_ids() -> None:
    said = (say("<thi", 10), say("nk>", 11), say("Hm", 12), say(".</", 13), say("think>", 14), say("\n\n", 15), *DONE)
    _, in_stream = both({"tools": [SEARCH]}, said)

    assert in_stream.shown == [("thinking", [[10, 11], [12], [13], [14], [15]]), ("text", [[50], [51], [9]])]


def test_a_delta_that_ends_thinking_and_begins_text_carries_its_ids_once() -> None:
    _, in_stream = both({"tools": [SEARCH]}, (say("<think>", 10), say("Hm.</think>\nYes", 11), say("</think>", 12)))
    assert in_stream.shown == [("thinking", [[10], [11]]), ("text", [[12]])]

    _, in_stream = both({"tools": [SEARCH]}, (say("<think>Hm.", 10), say("</think>Yes", 11)))
    assert in_stream.shown == [("thinking", [[10]]), ("text", [[11]])]


def test_ids_of_held_text_come_with_its_first_visible_character() -> None:
    _, in_stream = both({"tools": [SEARCH]}, (say("\n", 10), say(" ", 11), say("Yes.", 12), markup(9)))

    assert in_stream.shown == [("text", [[10, 11, 12], [9]])]


@pytest.mark.parametrize(
    ("tools", "shown", "kind"),
    [([NATIVE], SEARCH_RUST, "server_tool_use"), ([SEARCH, BASH], LIST, "tool_use")],
)
def test_ids_of_dropped_white_space_go_with_the_block_after_it(tools: list[Any], shown: Part, kind: str) -> None:
    """A stream of vLLM's has a blank text between thinking and a call; the call's first markup rides on that."""
    said = (thought("Hm.", 10), say("\n\n", 11), markup(12), shown)
    _, in_stream = both({"tools": tools}, said, *([DONE] if tools == [NATIVE] else []))

    assert in_stream.shown[:2] == [("thinking", [[10]]), (kind, [[11, 12], shown.ids[:1], shown.ids[1:]])]


def test_ids_of_white_space_before_a_hidden_call_are_in_the_rounds_only() -> None:
    in_json, in_stream = both({"tools": [SEARCH]}, (thought("Hm.", 10), say("\n\n", 11), SEARCH_RUST), DONE)

    assert in_stream.shown == [("thinking", [[10]]), ("text", [[50], [51], [9]])]
    assert in_json.rounds[0]["output_ids"] == [10, 11, 30, 31]


def test_a_message_left_with_no_block_carries_what_its_white_space_had() -> None:
    _, in_stream = both({"tools": [SEARCH]}, (say("\n", 10), markup(9)))

    assert in_stream.shown == [("text", [[10, 9]])]


def test_a_call_that_comes_in_the_last_round_is_not_shown_and_its_ids_neither() -> None:
    in_json, in_stream = both({"tools": [SEARCH]}, (SEARCH_RUST,), rules=TurnRules(SEALER, max_rounds=1))

    assert in_stream.shown == [("text", [])]
    assert in_json.message["output_ids"] == [30, 31]
    assert in_json.message["stop_reason"] == "end_turn"


def test_a_prompt_rendered_otherwise_says_at_which_token() -> None:
    script = [chat_answer(SEARCH_RUST, prompt=[1, 2]), chat_answer(*DONE, prompt=[1, 2, 30, 99, 7])]
    played = play({"tools": [SEARCH]}, *script, stream=False)

    assert [a_round.get("prefix_mismatch") for a_round in played.rounds] == [None, 3]


def test_what_is_not_asked_for_is_absent() -> None:
    request = {"tools": [SEARCH], "return_logprob": False}
    played = play(request, chat_answer(SEARCH_RUST), chat_answer(*DONE), stream=False)
    assert "output_token_logprobs" not in played.message
    assert [a_round["output_token_logprobs"] for a_round in played.rounds] == [None, None]

    kept = {"tools": [SEARCH], "return_token_ids": False, "return_logprob": False, "include_stop_str_in_output": True}
    played = play(kept, chat_chunks(*DONE), stream=True)
    assert played.shown == [("text", [])]
    assert "rounds" not in played.events[-2]


def test_routed_experts_are_the_last_rounds_and_each_rounds_own() -> None:
    request = {"tools": [SEARCH], "return_routed_experts": True}
    script = [chat_answer(SEARCH_RUST, experts="one"), chat_answer(*DONE, experts="two")]
    in_json = play(request, *script, stream=False)
    in_stream = play(request, *script, stream=True)

    assert in_json.message["routed_experts"] == in_stream.events[-2]["routed_experts"] == "two"
    assert [a_round["routed_experts"] for a_round in in_stream.rounds] == ["one", "two"]
    assert in_stream.shown == [("text", [[50, 51, 9]])]  # all of a round on its first delta
    assert "stream" not in in_stream.asked[0]


def test_an_upstream_that_speaks_the_fields_is_asked_as_the_client_asks_and_merged() -> None:
    def spoken(events: list[dict[str, Any]], *ids: int) -> list[dict[str, Any]]:
        left = iter(ids)
        for event in events:
            if event["type"] == "content_block_delta" and (token := next(left, None)) is not None:
                event |= {"output_ids": [token], "output_token_logprobs": [[-token / 100, token]]}
        return events

    rust = tool_use("web_search", ['{"query": ', '"rust"}'], id="call-rust")
    first, second = spoken(sse(rust), 30, 31), spoken(sse(text("It is", " 1.89.")), 50, 51)
    in_stream = play({"tools": [SEARCH]}, first, second, stream=True, dialect="lmdeploy")
    assert in_stream.shown == [("text", [[50], [51]])]
    assert [a_round["output_ids"] for a_round in in_stream.rounds] == [[30, 31], [50, 51]]
    assert [a_round["input_ids"] for a_round in in_stream.rounds] == [None, None]
    assert in_stream.asked[0]["return_token_ids"] is True

    answers = [
        message(rust) | {"output_ids": [30, 31], "output_token_logprobs": [[-0.3, 30], [-0.31, 31]]},
        message(text("It is 1.89.")) | {"output_ids": [50], "output_token_logprobs": [[-0.5, 50]]},
    ]
    in_json = play({"tools": [SEARCH]}, *answers, stream=False, dialect="lmdeploy")
    assert in_json.message["output_ids"] == [30, 31, 50]
    assert in_json.message["output_token_logprobs"] == [(-0.3, 30), (-0.31, 31), (-0.5, 50)]


def test_an_error_inside_a_round_ends_the_turn() -> None:
    chunks = chat_chunks(*DONE)
    with pytest.raises(UpstreamStreamError, match="out of memory"):
        play({"tools": [SEARCH]}, [*chunks[:2], {"error": {"message": "out of memory", "code": 500}}], stream=True)
    with pytest.raises(UpstreamBroken, match="ended before its message"):
        play({"tools": [SEARCH]}, chunks[:2], stream=True)
    with pytest.raises(UpstreamBroken, match="not a message"):
        play({"tools": [SEARCH]}, {"content": None}, stream=False, dialect="lmdeploy")


def test_tokens_that_no_text_shows_count_as_kept() -> None:
    """A round of nothing but markup has nothing to show, and its ids are kept all the same."""
    body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "stream": True, "tools": [SEARCH], **ASKED}
    turn, tokens = classify(jsonvalue.write(body), TurnRules(SEALER, max_retained_bytes=4000))
    assert turn is not None
    assert tokens is not None
    rounds = TokenRounds(turn, tokens.fields, "vllm", "/v1/messages")
    rounds.request()
    out: Out = []

    def read() -> None:
        for chunk in chat_chunks(*[markup(number) for number in range(2000)]):
            rounds.read(events([chunk])[:1], out)

    with pytest.raises(UpstreamBroken, match="has grown over 4000 bytes"):
        read()


def test_a_turn_takes_no_prompt_of_ids() -> None:
    with pytest.raises(InvalidRequest, match=r"^tools: cannot stand beside input_ids"):
        play({"tools": [SEARCH], "input_ids": [1], "messages": []}, stream=False)


def test_upstreams_own_bytes_are_no_part_of_a_token_turn() -> None:
    """Events are written anew: an event's bytes may not have the client's index."""
    written = [encode_event(event) for event in sse(text("Yes."))]
    body = {"model": "m", "max_tokens": 9, "messages": [QUESTION], "stream": True, "tools": [SEARCH], **ASKED}
    turn, tokens = classify(jsonvalue.write(body), RULES)
    assert turn is not None
    assert tokens is not None
    rounds = TokenRounds(turn, tokens.fields, "lmdeploy", "/v1/messages?beta=true")
    rounds.request()
    out: Out = []
    rounds.read(written, out)
    assert rounds.target == "/v1/messages?beta=true"
    assert all(isinstance(event, dict) for event in out)


PIECES = ["<think>", "</think>", "<thi", "nk>", "</", " ", "\n", "a", "é🚀"]


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[Part, ...]]:
    """Rounds of text in any pieces, thinking, markup, and native searches; no id comes twice."""
    ids = iter(range(10, 10_000))
    rounds = []
    for number in range(draw(st.integers(1, 3))):
        parts = [
            draw(st.sampled_from([say, thought]))(draw(st.sampled_from(PIECES)), next(ids), next(ids))
            if draw(st.booleans())
            else markup(next(ids))
            for _ in range(draw(st.integers(0, 6)))
        ]
        if number:
            parts.append(call("web_search", {"query": "rust"}, next(ids), next(ids), id=f"call-{number}"))
        rounds.append((*parts, markup(next(ids))))
    return rounds[::-1]


@settings(deadline=None, max_examples=150)
@given(scripts())
def test_any_shown_id_comes_once_and_in_order_and_only_white_space_at_the_end_hides_one(
    script: list[tuple[Part, ...]],
) -> None:
    played = play({"tools": [NATIVE]}, *(chat_chunks(*parts) for parts in script), stream=True)

    shown = [token for _, deltas in played.shown for ids in deltas for token in ids]
    parts = [part for parts in script for part in parts]
    sampled = [token for part in parts for token in part.ids]
    visible = [token for part in parts if part.call or part.content.strip() or part.reasoning for token in part.ids]
    assert [token for a_round in played.rounds for token in a_round["output_ids"]] == sampled
    assert shown == [token for token in sampled if token in shown]
    assert set(visible) <= set(shown)
    for parts_of_round in script:
        if any(part.call for part in parts_of_round[-2:]):  # nothing shown is left without its ids
            assert {token for part in parts_of_round for token in part.ids} <= set(shown)
