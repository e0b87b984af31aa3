"""The mark of `<think>` text."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.turn.marker import PREFIX, ThinkMark, read_mark


@given(st.booleans(), st.text(" \n\t"), st.text(" \n\t"), st.booleans())
def test_marks_can_be_read_back(closed: bool, before: str, after: str, text_follows: bool) -> None:
    mark = ThinkMark(closed, before, after, text_follows)
    assert read_mark(mark.signature()) == mark


@pytest.mark.parametrize("signature", [None, 3, "", "f99d", "gateway.think.", "gateway.think.é", "gateway.think.W10="])
def test_other_signatures_are_no_marks(signature: object) -> None:
    assert read_mark(signature) is None


@pytest.mark.parametrize(
    "written",
    [
        b"[" * 100_000,
        b'[true,"\\ud800","",false]',
        b'[true,"\xff","",false]',
        b"[" + b"1" * 5000 + b"]",
        b'[1,"","",0]',
    ],
    ids=["deep", "a lone surrogate", "not UTF-8", "a long number", "other types"],
)
def test_forged_marks_are_no_marks(written: bytes) -> None:
    assert read_mark(PREFIX + base64.urlsafe_b64encode(written).decode()) is None
