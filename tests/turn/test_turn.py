"""Whole turns, in JSON and as a stream: what upstream said, what it was asked next, what the client saw."""

import json
from typing import Any

import pytest

from gateway.errors import RequestTooLarge, UpstreamBroken
from gateway.turn import TurnRules
from gateway.turn.web_search import ERROR_SENTENCES, NO_SEARCH_LEFT, ErrorCode, SearchOutcome
from tests.support.playbook import BASH, NATIVE, QUESTION, SEALER, SEARCH, Playbook, Round, found
from tests.support.upstream import Block, text, thinking, tool_use

RUST = tool_use("web_search", {"query": "rust"}, id="call-rust")
GO = tool_use("web_search", {"query": "go"}, id="call-go")
LS = tool_use("Bash", {"command": "ls"}, id="call-ls")
DONE = [text("Rust is at 1.89.")]


def without_seals(value: Any) -> Any:
    """The value with every seal, which is new each time, made the same."""
    if isinstance(value, dict):
        return {name: "sealed" if name == "encrypted_content" else without_seals(one) for name, one in value.items()}
    return [without_seals(one) for one in value] if isinstance(value, list) else value


def kinds(play: Playbook) -> list[str]:
    assert without_seals(play.json) == without_seals(play.folded)
    return [block["type"] for block in play.json["content"]]


def result(call: str, query: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": found(query).text}


def test_hidden_search_is_run_and_not_seen() -> None:
    play = Playbook({"tools": [SEARCH]}, [[thinking("Hm."), text("\n\n"), RUST], DONE])
    assert play.asked[0]["messages"] == [QUESTION]
    assert play.asked[1]["messages"] == [
        QUESTION,
        {"role": "assistant", "content": [thinking("Hm.").value, RUST.value]},
        {"role": "user", "content": [result("call-rust", "rust")]},
    ]
    assert kinds(play) == ["thinking", "text"]
    assert play.json["content"][1] == {"type": "text", "text": "Rust is at 1.89."}
    assert play.json["stop_reason"] == "end_turn"


def test_text_before_a_hidden_call_is_kept() -> None:
    play = Playbook({"tools": [SEARCH]}, [[text("Let me look. "), RUST], DONE])
    assert [block["text"] for block in play.json["content"]] == ["Let me look. ", "Rust is at 1.89."]
    assert kinds(play) == ["text", "text"]


def test_parallel_calls_are_answered_in_call_order() -> None:
    play = Playbook({"tools": [SEARCH]}, [[RUST, GO], DONE])
    assert play.asked[1]["messages"][-1]["content"] == [result("call-rust", "rust"), result("call-go", "go")]
    assert [call.query for call in play.searched] == ["rust", "go"]
    assert kinds(play) == ["text"]


def test_several_rounds_are_one_message() -> None:
    play = Playbook(
        {"tools": [SEARCH]},
        [Round([RUST], usage=(10, 5)), Round([GO], usage=(30, 6)), Round(DONE, usage=(50, 7))],
    )
    assert play.json["usage"]["input_tokens"] == 50
    assert play.json["usage"]["output_tokens"] == 18
    assert [one["input_tokens"] for one in play.json["usage"]["iterations"]] == [10, 30, 50]
    assert len(play.asked[2]["messages"]) == 5
    assert kinds(play) == ["text"]
    assert [event["type"] for event in play.events].count("message_start") == 1


def test_alias_honours_the_domains_of_its_arguments() -> None:
    function = {"name": "WebSearch", "input_schema": {"type": "object"}}
    arguments = {"query": "rust", "allowed_domains": ["rust-lang.org"], "blocked_domains": []}
    rules = TurnRules(SEALER, {"WebSearch": "web_search"})
    play = Playbook({"tools": [function]}, [[tool_use("WebSearch", arguments)], DONE], rules=rules)
    assert play.searched[0].allowed_domains == ("rust-lang.org",)
    assert play.asked[0]["tools"] == [function]
    assert kinds(play) == ["text"]


def test_hidden_call_beside_a_client_call_is_neither_run_nor_shown() -> None:
    play = Playbook({"tools": [SEARCH, BASH]}, [Round([RUST, LS], stop_reason="end_turn")])
    assert kinds(play) == ["tool_use"]
    assert play.json["content"] == [LS.value]
    assert play.json["stop_reason"] == "tool_use"
    assert play.searched == []


def test_client_call_only_ends_the_turn() -> None:
    play = Playbook({"tools": [SEARCH, BASH]}, [[text("Listing."), LS]])
    assert kinds(play) == ["text", "tool_use"]
    assert play.json["stop_reason"] == "tool_use"


def test_native_calls_beside_a_client_call_are_run_and_shown_after_the_rounds_blocks() -> None:
    play = Playbook({"tools": [NATIVE, BASH]}, [[RUST, LS, GO]])
    assert kinds(play) == [
        "server_tool_use",
        "tool_use",
        "server_tool_use",
        "web_search_tool_result",
        "web_search_tool_result",
    ]
    assert play.json["stop_reason"] == "tool_use"
    assert play.json["usage"]["server_tool_use"] == {"web_search_requests": 2, "web_fetch_requests": 0}


@pytest.mark.parametrize("stop", ["max_tokens", "stop_sequence", "refusal"])
@pytest.mark.parametrize("tool", [SEARCH, NATIVE])
def test_a_round_that_did_not_end_whole_runs_nothing(stop: str, tool: dict[str, Any]) -> None:
    cut = tool_use("web_search", ['{"query": "ru'])
    play = Playbook({"tools": [tool]}, [Round([cut], stop_reason=stop)])
    assert play.json["stop_reason"] == stop
    assert play.searched == []
    if tool is SEARCH:
        assert play.json["content"] == [{"type": "text", "text": ""}]
    else:
        assert play.folded["content"][0]["input"] == {}
        assert [block["type"] for block in play.folded["content"]] == ["server_tool_use"]


def test_forced_choice_holds_for_the_first_round_only() -> None:
    choice = {"type": "tool", "name": "web_search", "disable_parallel_tool_use": True}
    play = Playbook({"tools": [SEARCH], "tool_choice": choice}, [Round([RUST], stop_reason="end_turn"), DONE])
    assert play.asked[0]["tool_choice"] == choice
    assert play.asked[1]["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "none"}, None])
def test_other_choices_stay(choice: dict[str, Any] | None) -> None:
    play = Playbook({"tools": [SEARCH], "tool_choice": choice}, [[RUST], DONE])
    assert [body["tool_choice"] for body in play.asked] == [choice, choice]


def test_a_failed_search_is_told_to_the_model_and_the_turn_goes_on() -> None:
    def fails(query: str) -> SearchOutcome:
        return SearchOutcome("The search provider is too busy.", error="too_many_requests")

    play = Playbook({"tools": [SEARCH]}, [[RUST], [text("I could not look.")]], outcomes=fails)
    assert play.asked[1]["messages"][-1]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "call-rust",
            "content": "The search provider is too busy.",
            "is_error": True,
        }
    ]
    assert kinds(play) == ["text"]


@pytest.mark.parametrize(
    "arguments", [[""], ["[1]"], ['{"query": 1}'], ["{}"], ['{"query": "  "}'], ['{"query": "a"'], ['"rust"']]
)
def test_arguments_that_are_no_search_are_not_run(arguments: list[str]) -> None:
    """A stream only: in JSON, upstream has already read the arguments."""
    play = Playbook({"tools": [NATIVE]}, [[tool_use("web_search", arguments)], DONE])
    assert play.in_stream.searched == []
    shown = play.folded["content"][1]["content"]
    assert shown == {"type": "web_search_tool_result_error", "error_code": "invalid_tool_input"}
    told = play.in_stream.asked[1]["messages"][-1]["content"][0]
    assert told["content"] == ERROR_SENTENCES["invalid_tool_input"]
    assert told["is_error"] is True


def test_a_query_over_a_thousand_characters_is_not_run() -> None:
    play = Playbook({"tools": [NATIVE]}, [[tool_use("web_search", {"query": "x" * 1001})], DONE])
    assert play.json["content"][1]["content"]["error_code"] == "query_too_long"
    assert play.searched == []


@pytest.mark.parametrize("code", list(ERROR_SENTENCES))
def test_native_errors_have_their_code_and_their_fixed_sentence(code: ErrorCode) -> None:
    play = Playbook(
        {"tools": [NATIVE]},
        [[RUST], DONE],
        outcomes=lambda query: SearchOutcome("Words for a hidden call.", error=code),
    )
    assert play.json["content"][1]["content"] == {"type": "web_search_tool_result_error", "error_code": code}
    assert play.asked[1]["messages"][-1]["content"][0]["content"] == ERROR_SENTENCES[code]
    assert play.json["usage"]["server_tool_use"]["web_search_requests"] == 0


def test_max_uses_counts_calls_over_the_whole_request() -> None:
    tool = {**NATIVE, "max_uses": 2}
    bad = tool_use("web_search", {"wrong": 1}, id="call-bad")
    play = Playbook({"tools": [tool]}, [[bad, RUST], [GO], DONE])
    codes = [block["content"] for block in play.json["content"] if block["type"] == "web_search_tool_result"]
    assert codes[0]["error_code"] == "invalid_tool_input"
    assert codes[1][0]["title"] == "About rust"
    assert codes[2]["error_code"] == "max_uses_exceeded"
    assert [call.query for call in play.searched] == ["rust"]


def test_a_turn_has_so_many_calls_whatever_their_tools() -> None:
    rules = TurnRules(SEALER, {"Find": "web_search"}, max_tool_calls=2)
    find = {**SEARCH, "name": "Find"}
    bad = tool_use("web_search", {"wrong": 1}, id="call-bad")
    second, third = (tool_use("Find", {"query": query}, id=query) for query in ("rust", "go"))
    play = Playbook({"tools": [NATIVE, find]}, [[bad], [second, third, RUST], DONE], rules=rules)
    assert [call.query for call in play.searched] == ["rust"]
    results = play.asked[2]["messages"][-1]["content"]
    assert results[0]["content"] == found("rust").text
    assert [result["content"] for result in results[1:]] == [ERROR_SENTENCES["max_uses_exceeded"]] * 2
    assert [result["is_error"] for result in results[1:]] == [True] * 2
    shown = [block["content"] for block in play.json["content"] if block["type"] == "web_search_tool_result"]
    assert [one["error_code"] for one in shown] == ["invalid_tool_input", "max_uses_exceeded"]


def test_last_round_with_a_hidden_tool_cannot_search() -> None:
    rules = TurnRules(SEALER, max_rounds=2)
    play = Playbook({"tools": [SEARCH], "tool_choice": {"type": "any"}}, [[RUST], [text("So."), GO]], rules=rules)
    assert play.asked[0]["tool_choice"] == {"type": "any"}
    assert play.asked[1]["tool_choice"] == {"type": "none"}
    assert play.asked[1]["messages"][-1]["content"][0]["content"] == f"{found('rust').text}\n\n{NO_SEARCH_LEFT}"
    assert play.json["content"] == [{"type": "text", "text": "So."}]
    assert play.json["stop_reason"] == "end_turn"
    assert kinds(play) == ["text"]


def test_only_round_with_a_hidden_tool_beats_a_forced_choice() -> None:
    rules = TurnRules(SEALER, max_rounds=1)
    play = Playbook({"tools": [SEARCH, BASH], "tool_choice": {"type": "any"}}, [[RUST, LS]], rules=rules)
    assert play.asked[0]["tool_choice"] == {"type": "none"}
    assert play.json["content"] == [LS.value]
    assert play.json["stop_reason"] == "tool_use"


def test_native_round_cap_pauses_the_turn_with_its_results() -> None:
    rules = TurnRules(SEALER, max_rounds=2)
    play = Playbook({"tools": [NATIVE]}, [[RUST], [GO]], rules=rules)
    assert kinds(play) == ["server_tool_use", "web_search_tool_result"] * 2
    assert play.json["stop_reason"] == "pause_turn"
    resumed = Playbook(
        {
            "tools": [NATIVE],
            "messages": [QUESTION, {"role": "assistant", "content": play.json["content"]}],
            "tool_choice": {"type": "any"},
        },
        [DONE],
        rules=rules,
    )
    assert resumed.asked[0]["messages"] == [
        *play.asked[1]["messages"],
        {"role": "assistant", "content": [GO.value]},
        {"role": "user", "content": [result("call-go", "go")]},
    ]
    assert resumed.asked[0]["tool_choice"] == {"type": "auto"}


def test_both_presentations_in_one_request() -> None:
    alias = {"name": "WebSearch", "input_schema": {"type": "object"}}
    rules = TurnRules(SEALER, {"WebSearch": "web_search"})
    play = Playbook(
        {"tools": [alias, NATIVE]}, [[tool_use("WebSearch", {"query": "go"}, id="call-go"), RUST], DONE], rules=rules
    )
    assert kinds(play) == ["server_tool_use", "web_search_tool_result", "text"]
    assert [block["tool_use_id"] for block in play.asked[1]["messages"][-1]["content"]] == ["call-go", "call-rust"]
    assert play.json["usage"]["server_tool_use"]["web_search_requests"] == 1


def test_a_typed_tool_is_declared_upstream_as_a_function() -> None:
    play = Playbook({"tools": [BASH, {**NATIVE, "allowed_domains": ["example.com"], "new_field": 1}]}, [[RUST], DONE])
    assert play.asked[0]["tools"][0] == BASH
    assert sorted(play.asked[0]["tools"][1]) == ["description", "input_schema", "name"]
    assert play.searched[0].allowed_domains == ("example.com",)


@pytest.mark.parametrize("cut_at", [None, 0, 3, 9, 12])
def test_think_text_becomes_a_thinking_block(cut_at: int | None) -> None:
    said = "\n<think>\nLet me </thin see.\n</think>\n\nIt is 1.89."
    pieces = [said] if cut_at is None else [said[:cut_at], *said[cut_at:]]
    play = Playbook({"tools": [SEARCH]}, [[text(*pieces, "")]])
    assert kinds(play) == ["thinking", "text"]
    assert play.json["content"][0]["thinking"] == "\nLet me </thin see.\n"
    assert play.json["content"][1]["text"] == "It is 1.89."


def test_think_text_goes_back_upstream_as_it_was() -> None:
    said = "<think>\nFirst.\n</think>\n\nLet me look."
    play = Playbook({"tools": [SEARCH]}, [[text(said), RUST], [text("  <think>never closed")]])
    assert play.asked[1]["messages"][1]["content"][0] == {"type": "text", "text": said}
    assert kinds(play) == ["thinking", "text", "thinking"]
    again = Playbook(
        {"messages": [QUESTION, {"role": "assistant", "content": play.json["content"]}, QUESTION]}, [[text("Yes.")]]
    )
    assert again.asked[0]["messages"][1]["content"] == [
        {"type": "text", "text": said},
        {"type": "text", "text": "  <think>never closed"},
    ]


def test_a_tag_elsewhere_is_text() -> None:
    play = Playbook({"tools": [SEARCH]}, [[text("Use <think> tags.", ""), text("<think>x</think>")]])
    assert [block["text"] for block in play.json["content"]] == ["Use <think> tags.", "<think>x</think>"]


def test_a_citation_that_comes_before_its_text_is_visible_is_not_lost() -> None:
    cited = {"type": "citations_delta", "citation": {"type": "page_location", "cited_text": "x"}}
    said = text(" ", "Yes.")
    early = Block(said.value, said.start, [said.deltas[0], cited, said.deltas[1]])
    play = Playbook({"tools": [SEARCH]}, [[early]])
    assert [event["delta"] for event in play.events if event["type"] == "content_block_delta"] == [
        {"type": "text_delta", "text": " Yes."},
        cited,
    ]


def test_thinking_always_has_a_signature() -> None:
    play = Playbook({"tools": [SEARCH]}, [[thinking("Hm."), text("Yes.")]])
    assert play.events[1]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}


def test_repeated_upstream_ids_stay_apart() -> None:
    play = Playbook({"tools": [NATIVE]}, [[RUST], [RUST], DONE])
    ids = [block["id"] for block in play.json["content"] if block["type"] == "server_tool_use"]
    assert len(set(ids)) == 2
    later = Playbook(
        {"tools": [NATIVE], "messages": [QUESTION, {"role": "assistant", "content": play.json["content"]}, QUESTION]},
        [DONE],
    )
    assert later.asked[0]["messages"][:5] == play.asked[2]["messages"]


def room_for(more: int) -> TurnRules:
    """Rules that let a turn of the one question grow by that many bytes, in JSON as in a stream."""
    body = {"model": "qwen3", "max_tokens": 100, "messages": [QUESTION], "tools": [SEARCH], "stream": False}
    request = sum(len(json.dumps(value)) for value in body.values())
    return TurnRules(SEALER, max_retained_bytes=request + more)


BLOCK_START = len('{"type":"text","text":""}')


@pytest.mark.parametrize("said", ["nineteen characters", "nïnëtëeen bytés", "😀😀😀😀€"])
def test_a_turn_is_kept_up_to_the_limit(said: str) -> None:
    assert len(said.encode()) == 19
    played = Playbook({"tools": [SEARCH]}, [[text(said)]], rules=room_for(BLOCK_START + 19))
    assert played.json["content"][0]["text"] == said
    with pytest.raises(UpstreamBroken, match=r"over \d+ bytes"):
        Playbook({"tools": [SEARCH]}, [[text(said)]], rules=room_for(BLOCK_START + 18))


@pytest.mark.parametrize(
    "rounds",
    [
        [[tool_use("web_search", {"query": "q" * 900})]],
        [[Block({"type": "new", "data": "x" * 900}, {"type": "new", "data": "x" * 900}, [])]],
        [[RUST], DONE],
    ],
    ids=["arguments", "a block of a kind that is not known", "a result"],
)
def test_all_that_is_kept_of_a_turn_counts(rounds: list[list[Block]]) -> None:
    with pytest.raises(UpstreamBroken, match="has grown over"):
        Playbook({"tools": [SEARCH]}, rounds, lambda _: SearchOutcome("r" * 900), rules=room_for(900))


def test_a_turn_whose_request_is_too_large_is_not_begun() -> None:
    with pytest.raises(RequestTooLarge):
        Playbook({"tools": [SEARCH]}, [DONE], rules=room_for(-1))


def test_long_arguments_are_read_like_short_ones() -> None:
    pieces = ["{", *(f'"{name}":"{"x" * 7}",' for name in range(3000)), '"query": "rust"}']
    play = Playbook({"tools": [NATIVE]}, [[tool_use("web_search", pieces)], DONE])
    assert [call.query for call in play.searched] == ["rust"]
    assert len(play.folded["content"][0]["input"]) == 3001
    assert without_seals(play.json) == without_seals(play.folded)
    shown = [event["delta"] for event in play.events if event["type"] == "content_block_delta"]
    assert shown[0]["partial_json"] == "{"
    assert "".join(delta["partial_json"] for delta in shown if "partial_json" in delta) == "".join(pieces)


@pytest.mark.parametrize("break_at", [1, 500, 1500, 2999])
def test_long_arguments_are_shown_up_to_the_piece_that_breaks_them(break_at: int) -> None:
    pieces = ["{", *(f'"{name}":"{"x" * 7}",' for name in range(3000)), '"query": "rust"}']
    pieces[break_at] += "}"
    play = Playbook({"tools": [NATIVE]}, [[tool_use("web_search", pieces)], DONE])
    shown = [event["delta"]["partial_json"] for event in play.events if "partial_json" in event.get("delta", {})]
    assert "".join(shown) == "".join(pieces[:break_at])
    assert play.folded["content"][1]["content"]["error_code"] == "invalid_tool_input"


def test_a_very_long_query_is_too_long() -> None:
    play = Playbook({"tools": [NATIVE]}, [[tool_use("web_search", {"query": "x" * 17_000})], DONE])
    for message in (play.json, play.folded):
        assert message["content"][0]["input"] == {"query": "x" * 17_000}
        assert message["content"][1]["content"]["error_code"] == "query_too_long"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_no_arguments(number: str) -> None:
    play = Playbook({"tools": [NATIVE]}, [[tool_use("web_search", ['{"query": "rust", "n": ', number, "}"])], DONE])
    assert play.in_stream.searched == []
    assert play.folded["content"][1]["content"]["error_code"] == "invalid_tool_input"


def test_when_the_last_result_cannot_say_that_no_search_is_left_an_earlier_hidden_one_does() -> None:
    alias = {"name": "WebSearch", "input_schema": {"type": "object"}}
    rules = TurnRules(SEALER, {"WebSearch": "web_search"}, max_rounds=2)
    hidden = tool_use("WebSearch", {"query": "go"}, id="call-go")

    def fails_at_rust(query: str) -> SearchOutcome:
        return SearchOutcome("…", error="unavailable") if query == "rust" else found(query)

    play = Playbook({"tools": [alias, NATIVE]}, [[hidden, RUST], DONE], fails_at_rust, rules)
    told = [result["content"] for result in play.asked[1]["messages"][-1]["content"]]
    assert told == [f"{found('go').text}\n\n{NO_SEARCH_LEFT}", ERROR_SENTENCES["unavailable"]]
