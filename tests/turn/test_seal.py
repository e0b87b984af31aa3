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
