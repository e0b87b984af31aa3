"""What a body weighs is what stands outside its strings, wherever it is cut."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.weight import is_heavy

values = st.recursive(
    st.none() | st.integers() | st.text(alphabet='ab"\\,:[]{}é😀', max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=30,
)


def expected(value: Any) -> int:
    if isinstance(value, dict):
        return 4 + 3 * len(value) + max(len(value) - 1, 0) + sum(map(expected, value.values()))
    if isinstance(value, list):
        return 4 + max(len(value) - 1, 0) + sum(map(expected, value))
    return 0


def weighs(body: bytes) -> int:
    """The weight, found as a scale finds it."""
    least, most = 0, 10 * len(body)
    while least < most:
        middle = (least + most) // 2
        least, most = (middle + 1, most) if is_heavy(body, middle) else (least, middle)
    return least


@given(values, st.booleans())
def test_what_is_in_strings_weighs_nothing(value: Any, escaped: bool) -> None:
    body = json.dumps(value, ensure_ascii=escaped).encode()
    assert weighs(body) == expected(value)


@pytest.mark.parametrize("over", range(-4, 5))
@pytest.mark.parametrize("filler", ["\\", '"', "a", ","])
def test_a_body_is_weighed_across_its_pieces(over: int, filler: str) -> None:
    text = "x" * over if over > 0 else ""
    value = [text + filler * ((1 << 19) + over), {"a": [1, 2]}, filler, "[,:{"]
    assert weighs(json.dumps(value).encode()) == expected(value) == 19
