"""What holds of every turn: any interleaving of text, thinking and calls over any number of rounds, cut anywhere."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.turn import TurnRules
from gateway.turn.lifecycle import State, following
from gateway.turn.web_search import ErrorCode, SearchOutcome
from tests.support.playbook import BASH, NATIVE, QUESTION, SEALER, Playbook, Round, found
from tests.support.upstream import Block, text, thinking, tool_use
from tests.turn.test_turn import without_seals

ALIAS = {"name": "Find", "input_schema": {"type": "object"}}
TAGS = ["<think>", "</think>", "<thi", "nk>", "</", " ", "\n", "a", "é🚀", "<"]
CODES: list[ErrorCode | None] = [None, None, None, "too_many_requests", "unavailable", "request_too_large"]

pieces = st.lists(st.sampled_from(TAGS), min_size=1, max_size=6)
texts = pieces.map(lambda said: text(*said, ""))
thoughts = pieces.map(lambda said: thinking(*said, ""))
queries = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
arguments = st.one_of(
    queries.map(lambda query: {"query": query}),
    st.dictionaries(st.sampled_from(["query", "z", "a"]), st.one_of(st.integers(), st.none(), queries), max_size=3),
)


@st.composite
def calls(draw: st.DrawFn, name: str) -> Block:
    identity = draw(st.text(st.sampled_from("abc-_é1"), min_size=1, max_size=6))
    return tool_use(name, draw(arguments), id=f"{name}-{identity}")


def rounds_of(*names: str) -> st.SearchStrategy[list[Block]]:
    return st.lists(st.one_of(texts, thoughts, *(calls(name) for name in names)), max_size=5)


def ends(blocks: list[Block], names: set[str]) -> bool:
    called = [block.value["name"] for block in blocks if block.value["type"] == "tool_use"]
    return "Bash" in called or not names & set(called)


def script(drawn: list[list[Block]], names: set[str]) -> list[Round]:
    """Rounds up to and with the first that ends the turn; one that ends it is added if none does."""
    told = []
    for blocks in drawn:
        told.append(Round(blocks))
        if ends(blocks, names):
            return told
    return [*told, Round([text("Done.")])]


def outcomes(seed: int) -> Any:
    def outcome(query: str) -> SearchOutcome:
        code = CODES[(seed + len(query)) % len(CODES)]
        return found(query) if code is None else SearchOutcome("It failed.", error=code)

    return outcome


def assert_legal(events: list[dict[str, Any]]) -> None:
    """One lifecycle, and block indices 0, 1, 2… without a gap."""
    state, starts = State.AWAITED, []
    for event in events:
        state = following(state, event["type"])
        if event["type"] == "content_block_start":
            starts.append(event["index"])
        if event["type"].startswith("content_block"):
            assert event["index"] == starts[-1]
    assert state is State.DONE
    assert starts == list(range(len(starts)))
    assert starts


@settings(deadline=None, max_examples=150)
@given(st.lists(rounds_of("web_search", "Find", "Bash"), max_size=4), st.integers(0, 5), st.integers(0, 2000))
def test_any_turn_is_one_legal_message_and_the_same_in_both_transports(
    drawn: list[list[Block]], seed: int, cut: int
) -> None:
    rules = TurnRules(SEALER, {"Find": "web_search"})
    play = Playbook(
        {"tools": [NATIVE, ALIAS, BASH]}, script(drawn, {"web_search", "Find"}), outcomes(seed), rules, cut=cut
    )
    assert_legal(play.events)
    assert without_seals(play.json) == without_seals(play.folded)
    assert len(play.asked) == len(play.json["usage"]["iterations"])
    assert "Find" not in [block.get("name") for block in play.json["content"]]


@settings(deadline=None, max_examples=150)
@given(st.lists(rounds_of("web_search", "Bash"), max_size=4), st.integers(0, 5))
def test_any_native_history_comes_back_as_the_prompt_it_was(drawn: list[list[Block]], seed: int) -> None:
    play = Playbook({"tools": [NATIVE, BASH]}, script(drawn, {"web_search"}), outcomes(seed))
    for message in (play.json, play.folded):
        history = [QUESTION, {"role": "assistant", "content": message["content"]}]
        results = [
            {"type": "tool_result", "tool_use_id": block["id"], "content": "ok"}
            for block in message["content"]
            if block["type"] == "tool_use"
        ]
        if results:
            history.append({"role": "user", "content": results})
        later = Playbook({"tools": [NATIVE, BASH], "messages": history}, [[text("Yes.")]])
        before = play.asked[-1]["messages"]
        assert later.asked[0]["messages"][: len(before)] == before
