"""The text the model reads, and that it agrees with the results a client sees."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tools.web_search.text import SNIPPET_MAX_CHARS, clean, plain, render
from gateway.turn.web_search import NO_RESULTS, SearchResult

RUST = SearchResult("Rust 1.90", "https://blog.rust-lang.org/1.90", "Rust 1.90 is out.", "2025-09-18")
NEWS = SearchResult("Rust news", "https://news.example.com/rust", "", None)


def test_results_are_numbered_title_url_date_snippet() -> None:
    text, shown = render([RUST, NEWS], 1000)
    assert text == (
        "1. Rust 1.90\n"
        "https://blog.rust-lang.org/1.90\n"
        "2025-09-18\n"
        "Rust 1.90 is out.\n"
        "\n"
        "2. Rust news\n"
        "https://news.example.com/rust"
    )
    assert shown == (RUST, NEWS)


def test_nothing_found_is_one_fixed_sentence() -> None:
    assert render([], 1000) == (NO_RESULTS, ())


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("The <strong>latest</strong> release", "The latest release"),
        ("Tom &amp; Jerry&#x27;s &lt;b&gt;", "Tom & Jerry's <b>"),
        ("  two\n\tlines\u00a0here ", "two lines here"),
        ("one<br/>two<p>three</p>four", "one two three four"),
        ("a < b and c > d", "a < b and c > d"),
        ("std::vector<int> and Map<String, List<T>>", "std::vector<int> and Map<String, List<T>>"),
        ("use <script>alert(1)</script> now", "use now"),
        ("seen <!-- not > this --> again", "seen again"),
        ("a <!-- that never ends", "a <!-- that never ends"),
        ("<a href=\"/?q=a>b\" title='x'>linked</a>", "linked"),
        ("<SCRIPT src=x>if (a<b) {}</SCRIPT >after<style>p{}</style>.", "after."),
        ("before <script>that never ends", "before"),
        ("<!DOCTYPE html><?xml version='1'?>text", "text"),
        ("a <b and c <a href='x", "a <b and c <a href='x"),
        ("&#65; &#x42; &notit; &#0; &#" + "9" * 5000 + "; &#x" + "f" * 5000, "A B ¬it; \ufffd \ufffd"),
        ("nul\x00 and bell\x07", "nul and bell"),
        ("half a pair \ud800!", "half a pair ?!"),
        ("familie 👨\u200d👩\u200d👧", "familie 👨\u200d👩\u200d👧"),
        ("", ""),
    ],
)
def test_markup_and_white_space_are_cleaned(raw: str, expected: str) -> None:
    assert plain(raw, 200) == expected


def test_a_long_snippet_is_cut_between_words() -> None:
    snippet = clean(SearchResult("t", "https://example.com/", "word " * 5000)).snippet
    assert SNIPPET_MAX_CHARS - 5 <= len(snippet) <= SNIPPET_MAX_CHARS
    assert snippet.endswith("word…")


def test_a_result_without_a_title_shows_its_address_in_its_place() -> None:
    assert clean(SearchResult(" <b></b> ", "https://example.com/", "s")).title == "https://example.com/"


def test_a_text_over_the_limit_shows_whole_entries_and_says_what_is_missing() -> None:
    text, shown = render([RUST, NEWS, NEWS, NEWS], 190)
    assert shown == (RUST,)
    assert text == (
        "1. Rust 1.90\nhttps://blog.rust-lang.org/1.90\n2025-09-18\nRust 1.90 is out.\n\n"
        "[Cut to fit: 1 of 4 results are shown. Search for something narrower to see others.]"
    )


def test_where_not_even_one_fits_it_is_cut() -> None:
    """A search that found something never reads as one that found nothing."""
    long = SearchResult("Rust 1.90", "https://blog.rust-lang.org/1.90", "word " * 300)
    text, shown = render([long, NEWS], 250)
    assert shown == (long,)
    assert text.startswith("1. Rust 1.90\nhttps://blog.rust-lang.org/1.90\nword word")
    assert text.endswith(
        "word…\n\n[Cut to fit: 1 of 2 results are shown. Search for something narrower to see others.]"
    )
    assert len(text) <= 250
    assert render([long], 60) == ("1. Rust 1.90…\n\n[Cut to fit.]", (long,))
    assert render([long, NEWS], 30) == ("1. Rust 1.90…", (long,))


results = st.lists(
    st.builds(
        SearchResult,
        title=st.text(max_size=300),
        url=st.integers(0, 10**9).map("https://example.com/{}".format),
        snippet=st.text(max_size=3000),
        page_age=st.none() | st.text(max_size=80),
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=50)
@given(results, st.integers(len(NO_RESULTS), 4000))
def test_text_and_results_always_agree(found: list[SearchResult], max_chars: int) -> None:
    cleaned = [clean(result) for result in found]
    text, shown = render(cleaned, max_chars)
    assert len(text) <= max_chars
    assert shown == tuple(cleaned[: len(shown)])
    lines = text.split("\n")
    for number, result in enumerate(cleaned, start=1):
        at = [i for i, line in enumerate(lines) if line == f"{number}. {result.title}"]
        entry = [
            result.url,
            *([result.page_age] if result.page_age else []),
            *([result.snippet] if result.snippet else []),
        ]
        whole = any(lines[i + 1 : i + 1 + len(entry)] == entry for i in at)
        assert whole is (number <= len(shown)) or (len(shown) == number == 1 and "…" in text)
