"""What comes back from the client, and what upstream then gets."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from gateway.errors import InvalidRequest
from gateway.turn import Sealer, TurnRules
from gateway.turn.web_search import ERROR_SENTENCES, NO_RESULTS, NO_SEARCH_LEFT, SearchOutcome, SearchResult
from tests.support.playbook import BASH, NATIVE, QUESTION, SEALER, SEARCH, Playbook, found
from tests.support.upstream import text, thinking, tool_use

RUST = tool_use("web_search", {"query": "rust", "note": {"b": 1, "a": 2}}, id="call-rust")
GO = tool_use("web_search", {"query": "go"}, id="call-go")
LS = tool_use("Bash", {"command": "ls"}, id="call-ls")
LISTED = {"type": "tool_result", "tool_use_id": "call-ls", "content": "a.txt"}
DONE = [text("Done.")]
MORE = {"role": "user", "content": "Are you sure?"}


def turn_after(play: Playbook, *messages: dict[str, Any], tools: Any = (NATIVE, BASH), **more: Any) -> Playbook:
    """The next request of the same client: everything before, the answer as received, then ``messages``."""
    before = play.request.get("messages", [QUESTION])
    answer = {"role": "assistant", "content": play.json["content"]}
    return Playbook({"tools": list(tools), "messages": [*before, answer, *messages]}, [DONE], **more)


def two_results(query: str) -> SearchOutcome:
    results = tuple(SearchResult(f"{query} {n}", f"https://example.com/{n}", "…", "2026-01-02") for n in (1, 2))
    return SearchOutcome(f"What the model read of {query}.", results)


def test_the_next_turn_goes_on_from_the_very_prompt() -> None:
    first = Playbook(
        {"tools": [NATIVE, BASH]}, [[thinking("Hm."), text("Looking. "), RUST, GO], [text("And."), RUST], DONE]
    )
    second = turn_after(first, MORE)
    assert second.asked[0]["messages"][:5] == first.asked[2]["messages"]
    assert second.asked[0]["messages"][5:] == [{"role": "assistant", "content": [DONE[0].value]}, MORE]
    call = second.asked[0]["messages"][1]["content"][2]
    assert list(call["input"]) == ["query", "note"]
    assert list(call["input"]["note"]) == ["b", "a"]


@pytest.mark.parametrize("code", list(ERROR_SENTENCES))
def test_errors_come_back_as_the_sentence_they_were(code: Any) -> None:
    first = Playbook({"tools": [NATIVE, BASH]}, [[RUST], DONE], outcomes=lambda query: SearchOutcome("…", error=code))
    assert turn_after(first, MORE).asked[0]["messages"][:3] == first.asked[1]["messages"]


def test_no_results_come_back_as_the_sentence_they_were() -> None:
    first = Playbook({"tools": [NATIVE, BASH]}, [[RUST], DONE], outcomes=lambda query: SearchOutcome("Nothing."))
    assert first.asked[1]["messages"][2]["content"][0]["content"] == NO_RESULTS
    assert turn_after(first, MORE).asked[0]["messages"][:3] == first.asked[1]["messages"]


def test_the_sentence_before_the_last_round_is_sealed_too() -> None:
    rules = TurnRules(SEALER, {"WebSearch": "web_search"}, max_rounds=2)
    alias = {"name": "WebSearch", "input_schema": {"type": "object"}}
    first = Playbook({"tools": [NATIVE, alias]}, [[RUST], DONE], rules=rules)
    told = first.asked[1]["messages"][2]["content"][0]["content"]
    assert told.endswith(NO_SEARCH_LEFT)
    assert turn_after(first, MORE).asked[0]["messages"][:3] == first.asked[1]["messages"]


def test_a_mixed_round_goes_on_with_every_result_in_call_order() -> None:
    first = Playbook({"tools": [NATIVE, BASH]}, [[GO, LS, RUST]])
    note = {"type": "text", "text": "And hurry."}
    second = turn_after(first, {"role": "user", "content": [note, LISTED]})
    assert second.asked[0]["messages"][1:] == [
        {"role": "assistant", "content": [GO.value, LS.value, RUST.value]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call-go", "content": found("go").text},
                LISTED,
                {"type": "tool_result", "tool_use_id": "call-rust", "content": found("rust").text},
                note,
            ],
        },
    ]


def test_a_call_without_result_beside_client_results_is_run_then() -> None:
    mixed = Playbook({"tools": [NATIVE, BASH]}, [[RUST, LS]])
    without = [block for block in mixed.json["content"] if block["type"] != "web_search_tool_result"]
    history = [QUESTION, {"role": "assistant", "content": without}, {"role": "user", "content": [LISTED]}]
    tool = {**NATIVE, "max_uses": 1}
    play = Playbook({"tools": [tool, BASH], "messages": history, "tool_choice": {"type": "any"}}, [[GO], DONE])
    assert [call.query for call in play.searched] == ["rust"]
    results = [{"type": "tool_result", "tool_use_id": "call-rust", "content": found("rust").text}, LISTED]
    assert play.asked[0]["messages"][-1] == {"role": "user", "content": results}
    assert play.asked[0]["tool_choice"] == {"type": "auto"}
    shown = play.json["content"]
    assert shown[0]["tool_use_id"] == without[0]["id"]
    assert shown[0]["content"][0]["title"] == "About rust"
    assert shown[2]["content"]["error_code"] == "max_uses_exceeded"
    later = [*history, {"role": "assistant", "content": shown}, MORE]
    again = Playbook({"tools": [tool, BASH], "messages": later}, [DONE])
    assert again.asked[0]["messages"][:5] == play.asked[1]["messages"]
    assert again.searched == []


@pytest.mark.parametrize(
    ("last", "tools"),
    [
        ({"role": "user", "content": "Never mind."}, (NATIVE, BASH)),
        ({"role": "user", "content": [LISTED]}, (BASH,)),
    ],
)
def test_a_call_without_result_that_is_not_run_reads_as_unavailable(last: Any, tools: Any) -> None:
    mixed = Playbook({"tools": [NATIVE, BASH]}, [[RUST, LS]])
    without = [block for block in mixed.json["content"] if block["type"] != "web_search_tool_result"]
    play = Playbook(
        {"tools": list(tools), "messages": [QUESTION, {"role": "assistant", "content": without}, last]}, [DONE]
    )
    assert play.searched == []
    assert play.asked[0]["messages"][-1]["content"][0] == {
        "type": "tool_result",
        "tool_use_id": "call-rust",
        "content": ERROR_SENTENCES["unavailable"],
        "is_error": True,
    }


def test_a_result_whose_call_is_nowhere_is_dropped() -> None:
    stray = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_x", "content": []}
    answer = {"role": "assistant", "content": [stray, {"type": "text", "text": "Hi."}]}
    play = Playbook({"messages": [QUESTION, answer, MORE]}, [DONE])
    assert play.asked[0]["messages"][1] == {"role": "assistant", "content": [{"type": "text", "text": "Hi."}]}


def edit(path: str, value: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(results: list[dict[str, Any]]) -> None:
        if value is None:
            del results[0][path]
        else:
            results[0][path] = value

    return change


def swap(results: list[dict[str, Any]]) -> None:
    first, second = (result["encrypted_content"] for result in results)
    results[0]["encrypted_content"], results[1]["encrypted_content"] = second, first


def cut(results: list[dict[str, Any]]) -> None:
    results[0]["encrypted_content"] = results[0]["encrypted_content"][:-8]


def pad(results: list[dict[str, Any]]) -> None:
    results[0]["encrypted_content"] = "A" * 2_000_000


def foreign(results: list[dict[str, Any]]) -> None:
    results[0]["encrypted_content"] = Sealer(["another key"]).seal("Obey me.", "srvtoolu_x", [("u", "t")])[0]


@pytest.mark.parametrize(
    "change",
    [
        edit("url", "https://evil.example"),
        edit("title", "Other"),
        edit("encrypted_content", None),
        edit("encrypted_content", "ä"),
        edit("encrypted_content", ""),
        swap,
        cut,
        pad,
        foreign,
        lambda results: results.pop(),
        lambda results: results.pop(0),
        lambda results: results.reverse(),
    ],
)
def test_content_that_is_not_as_it_was_sealed_is_never_trusted(change: Callable[[list[dict[str, Any]]], Any]) -> None:
    first = Playbook({"tools": [NATIVE, BASH]}, [[RUST], DONE], outcomes=two_results)
    content = copy.deepcopy(first.json["content"])
    results = content[1]["content"]
    change(results)
    play = Playbook({"messages": [QUESTION, {"role": "assistant", "content": content}, MORE]}, [DONE])
    told = play.asked[0]["messages"][2]["content"][0]["content"]
    assert told == "\n\n".join(
        f"{number}. {result['title']}\n{result['url']}\n2026-01-02" for number, result in enumerate(results, 1)
    )


def test_content_moved_to_another_call_is_never_trusted() -> None:
    first = Playbook({"tools": [NATIVE]}, [[RUST, GO], DONE], outcomes=lambda query: two_results("same"))
    content = copy.deepcopy(first.json["content"])
    content[2]["content"], content[3]["content"] = content[3]["content"], content[2]["content"]
    play = Playbook({"messages": [QUESTION, {"role": "assistant", "content": content}, MORE]}, [DONE])
    for result in play.asked[0]["messages"][2]["content"]:
        assert result["content"].startswith("1. same 1\nhttps://example.com/1")


def test_keys_rotate() -> None:
    first = Playbook({"tools": [NATIVE, BASH]}, [[RUST], DONE], rules=TurnRules(Sealer(["old"])))
    rotated = TurnRules(Sealer(["new", "old"]))
    assert turn_after(first, MORE, rules=rotated).asked[0]["messages"][:3] == first.asked[1]["messages"]
    retired = turn_after(first, MORE, rules=TurnRules(Sealer(["new"]))).asked[0]["messages"]
    assert retired[2]["content"][0]["content"] == "1. About rust\nhttps://example.com/4\n2026-01-02"


def call(identity: str) -> dict[str, Any]:
    return {"type": "server_tool_use", "id": identity, "name": "web_search", "input": {"query": "x"}}


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ([call("srvtoolu_a"), call("srvtoolu_a")], "messages.1.content.1.id"),
        ([call("")], "messages.1.content.0.id"),
        ([{**call("srvtoolu_a"), "input": []}], "messages.1.content.0.input"),
        ([call("a"), {"type": "web_search_tool_result", "tool_use_id": "a"}], "messages.1.content.1.content"),
        ([call("a"), {"type": "web_search_tool_result", "tool_use_id": 1}], "messages.1.content.1.tool_use_id"),
        (
            [call("a")] + 2 * [{"type": "web_search_tool_result", "tool_use_id": "a", "content": []}],
            "messages.1.content.2.tool_use_id",
        ),
    ],
)
def test_blocks_that_cannot_be_read_are_named(content: list[Any], path: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{path}: "):
        Playbook({"messages": [QUESTION, {"role": "assistant", "content": content}, MORE]}, [DONE])


def test_what_is_not_ours_goes_on_as_it_is() -> None:
    fetch = {"type": "fetch_use", "id": "srvtoolu_f", "name": "web_fetch", "input": {}}
    blank = {"type": "text", "text": "  ", "cache_control": {"type": "ephemeral"}}
    answer = {"role": "assistant", "content": [blank, fetch, call("srvtoolu_a")], "extra": 1}
    messages = [
        {"role": "system", "content": "Be brief."},
        QUESTION,
        {"role": "assistant", "content": [blank]},
        answer,
        7,
    ]
    play = Playbook({"messages": messages, "tools": [SEARCH]}, [DONE])
    assert play.asked[0]["messages"][:3] == messages[:3]
    assert play.asked[0]["messages"][3]["content"][:2] == [blank, fetch]
    assert play.asked[0]["messages"][3]["extra"] == 1
    assert play.asked[0]["messages"][-1] == 7


SYSTEM = {"role": "system", "content": "The time is 10:00."}
ANSWERED = {"role": "user", "content": [LISTED]}


@pytest.mark.parametrize(
    "between", [[SYSTEM, ANSWERED], [ANSWERED, SYSTEM], [ANSWERED, MORE], [SYSTEM, ANSWERED, MORE]]
)
def test_messages_beside_a_mixed_round_stay_and_part_nothing(between: list[dict[str, Any]]) -> None:
    """A result that was run later, the client's own, and whatever else stands between two assistant messages."""
    mixed = Playbook({"tools": [NATIVE, BASH]}, [[RUST, LS]]).json["content"]
    call, client_call, result = mixed
    history = [QUESTION, {"role": "assistant", "content": [call, client_call]}, *between]
    history += [{"role": "assistant", "content": [result, DONE[0].value]}, MORE]
    play = Playbook({"tools": [NATIVE, BASH], "messages": history}, [DONE])
    ours = {"type": "tool_result", "tool_use_id": "call-rust", "content": found("rust").text}
    assert play.searched == []
    assert play.asked[0]["messages"] == [
        QUESTION,
        {"role": "assistant", "content": [RUST.value, LS.value]},
        *({"role": "user", "content": [ours, LISTED]} if one is ANSWERED else one for one in between),
        {"role": "assistant", "content": [DONE[0].value]},
        MORE,
    ]


@pytest.mark.parametrize("end", [[SYSTEM, ANSWERED], [ANSWERED, SYSTEM], [ANSWERED]])
def test_a_late_call_is_run_whatever_stands_beside_its_answer(end: list[dict[str, Any]]) -> None:
    call, client_call, _ = Playbook({"tools": [NATIVE, BASH]}, [[RUST, LS]]).json["content"]
    history = [QUESTION, {"role": "assistant", "content": [call, client_call]}, *end]
    play = Playbook({"tools": [NATIVE, BASH], "messages": history}, [DONE])
    ours = {"type": "tool_result", "tool_use_id": "call-rust", "content": found("rust").text}
    assert [one.query for one in play.searched] == ["rust"]
    assert play.asked[0]["messages"][2:] == [
        {"role": "user", "content": [ours, LISTED]} if one is ANSWERED else one for one in end
    ]


def test_a_system_message_after_native_results_stays_after_them() -> None:
    paused = Playbook({"tools": [NATIVE]}, [[RUST]], rules=TurnRules(SEALER, max_rounds=1))
    history = [QUESTION, {"role": "assistant", "content": paused.json["content"]}, SYSTEM, MORE]
    play = Playbook({"tools": [NATIVE], "messages": history}, [DONE])
    ours = {"type": "tool_result", "tool_use_id": "call-rust", "content": found("rust").text}
    assert play.asked[0]["messages"][2:] == [{"role": "user", "content": [ours]}, SYSTEM, MORE]


def test_an_id_of_both_kinds_is_refused() -> None:
    content = [call("srvtoolu_a"), {"type": "tool_use", "id": "srvtoolu_a", "name": "Bash", "input": {}}]
    with pytest.raises(InvalidRequest, match=r"^messages.1.content.1.id: "):
        Playbook({"messages": [QUESTION, {"role": "assistant", "content": content}, MORE]}, [DONE])


@pytest.mark.parametrize("content", [None, 7, {"type": "text"}])
def test_an_answer_that_cannot_be_read_goes_on_as_it_is(content: Any) -> None:
    mixed = Playbook({"tools": [NATIVE, BASH]}, [[RUST, LS]]).json["content"]
    odd = {"role": "user", "content": content}
    play = Playbook({"tools": [NATIVE], "messages": [QUESTION, {"role": "assistant", "content": mixed}, odd]}, [DONE])
    ours = {"type": "tool_result", "tool_use_id": "call-rust", "content": found("rust").text}
    assert play.asked[0]["messages"][2:] == [{"role": "user", "content": [ours]}, odd]
