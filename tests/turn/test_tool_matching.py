"""Looking through deferred tools: what is found, in which order, and that no pattern hangs the server."""

import contextlib
from typing import Any

import bm25s
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.turn.tool_matching import MAX_FIELD_CHARS, BadPattern, OutOfTime, by_pattern, by_words, scores, words


def tool(name: str, description: str = "", **arguments: str) -> dict[str, Any]:
    properties = {argument: {"type": "string", "description": text} for argument, text in arguments.items()}
    return {"name": name, "description": description, "input_schema": {"type": "object", "properties": properties}}


WEATHER = tool("get_weather", "The weather of a place.", city="Name of the town")
MAIL = tool("sendMail", "Send a letter by electronic mail.", recipient="Whom it goes to")
FILES = tool("list_files", "Names of all files in a folder.", folder="Path of the folder")
TOOLS = [WEATHER, MAIL, FILES]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("weather", ["get_weather"]),
        ("Weather town", ["get_weather"]),
        ("recipient", ["sendMail"]),
        ("mail", ["sendMail"]),
        ("path", ["list_files"]),
        ("names of files", ["list_files", "get_weather"]),
        ("quantum chromodynamics", []),
        ("", []),
    ],
)
def test_words_are_looked_for_in_names_descriptions_and_arguments(query: str, found: list[str]) -> None:
    assert by_words(query, TOOLS, 5) == found


def test_no_more_than_the_limit_and_equals_in_the_order_they_are_declared_in() -> None:
    twins = [tool(f"get_{number}", "The same words.") for number in range(9)]
    assert by_words("words", twins, 3) == ["get_0", "get_1", "get_2"]
    assert by_pattern("same", twins, 3) == ["get_0", "get_1", "get_2"]


def test_a_name_is_taken_apart_where_a_word_begins() -> None:
    assert [*words("get_weatherReport v2")] == ["get", "weather", "report", "v2"]


@given(st.lists(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=12), min_size=1, max_size=8), st.data())
def test_the_scores_are_those_of_a_library(documents: list[list[str]], data: st.DataObject) -> None:
    query = data.draw(st.lists(st.sampled_from(sorted({word for one in documents for word in one})), min_size=1))
    library = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    library.index(documents, show_progress=False)
    ours = scores(" ".join(query), [{"name": " ".join(document)} for document in documents])
    assert ours == pytest.approx(library.get_scores(query).tolist(), rel=1e-4)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("weather", ["get_weather"]),
        ("(?i)WEATHER", ["get_weather"]),
        ("^(get|list)_", ["get_weather", "list_files"]),
        ("Whom", ["sendMail"]),
        ("folder$", ["list_files"]),
        (r"\bquantum\b", []),
    ],
)
def test_a_pattern_is_looked_for_in_each_text(pattern: str, found: list[str]) -> None:
    assert by_pattern(pattern, TOOLS, 5) == found


@pytest.mark.parametrize("pattern", ["(", "(?=a)b", r"(a)\1", "a{1001}", "x" * 201])
def test_a_pattern_that_cannot_be_used_is_told(pattern: str) -> None:
    with pytest.raises(BadPattern, match="the pattern"):
        by_pattern(pattern, TOOLS, 5)


CATASTROPHES = [
    r"(a+)+$",
    r"(a|aa)+$",
    r"([a-zA-Z]+)*$",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"(.*a){20}b",
    r"(a?){500}a{500}b",
    r"((a{1,9}){1,9}){1,9}b",
    "(" * 60 + "a" + ")+" * 60 + "b",
    "(.*" * 33 + ")*" * 33 + "b",
]


@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_no_pattern_takes_longer_than_the_text_allows(pattern: str) -> None:
    """With an engine that goes back and tries again, each of these takes longer than the world has lasted."""
    assert by_pattern(pattern, [tool("a", "a" * MAX_FIELD_CHARS + "!")], 5) in (["a"], [])


@given(st.text(alphabet="ab()[]{}|*+?^$.\\d0123456789,-", max_size=200))
def test_any_pattern_finds_something_or_nothing_or_is_told(pattern: str) -> None:
    with contextlib.suppress(BadPattern):
        assert set(by_pattern(pattern, TOOLS, 5)) <= {"get_weather", "sendMail", "list_files"}


def test_a_search_ends_when_its_time_is_up() -> None:
    answers = iter([False, False, True])
    with pytest.raises(OutOfTime):
        by_pattern("nothing like it", TOOLS, 5, lambda: next(answers))
