"""What is sealed opens where it was made, and nowhere else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.turn.seal import Sealer


@given(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.tuples(st.text(), st.text()), min_size=1))
def test_seals_open_where_they_were_made(text: str, entries: list[tuple[str, str]]) -> None:
    sealer = Sealer(["a", "b"])
    sealed = sealer.seal(text, "srvtoolu_1", entries)
    came = [(url, title, secret) for (url, title), secret in zip(entries, sealed, strict=True)]
    assert sealer.open("srvtoolu_1", came) == text
    assert Sealer(["c", "a"]).open("srvtoolu_1", came) == text
    assert sealer.open("srvtoolu_2", came) is None
    assert Sealer(["b"]).open("srvtoolu_1", came) is None


def test_a_sealer_needs_a_key() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        Sealer([])


ENTRIES = [("https://a.example", "A"), ("https://b.example", "B")]


def test_the_calls_of_a_round_are_sealed_with_a_text() -> None:
    sealer = Sealer(["a"])
    sealed = sealer.of_round(["srvtoolu_1", "call\n2"]).seal("Two\nlines.", "srvtoolu_1", ENTRIES)
    came = [(url, title, secret) for (url, title), secret in zip(ENTRIES, sealed, strict=True)]
    opener = sealer.of_round()
    assert opener.open("srvtoolu_1", came) == "Two\nlines."
    assert opener.calls == ["srvtoolu_1", "call\n2"]
    assert sealer.calls == ()
    assert opener.open("srvtoolu_1", came[::-1]) is None


def test_what_was_sealed_before_rounds_were_opens_still() -> None:
    sealed = "tS4lJboTx007thEKJfepMMzFNvtjn0axvCVXnLXYLRVr2Br-p5Yr"
    opener = Sealer(["a key of the tests"]).of_round()
    assert opener.open("srvtoolu_a", [("https://a.example", "A", sealed)]) == "It is 1.89."
    assert list(opener.calls) == []
