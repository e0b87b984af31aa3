"""A path is what it looks like, or it is nowhere."""

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.handling.access import is_plain


@pytest.mark.parametrize(
    "path", ["/", "/v1/models", "/v1/models/a b", "/v1/models/..x", "/v1/models/x.", "/v1/models/...", "/%"]
)
def test_plain_paths(path: str) -> None:
    assert is_plain(path)


@pytest.mark.parametrize(
    "path", ["//", "/a/", "/a//b", "/./a", "/a/..", "/a\\..\\b", "/a/%2e%2e/b", "/a/%25252e./b", "/a%2f%2fb"]
)
def test_paths_that_lead_elsewhere(path: str) -> None:
    assert not is_plain(path)


@given(st.lists(st.sampled_from(["a", "..", "%2e", ".", "%2f", "%252e", "\\", "%5c", "/"]), max_size=8))
def test_no_encoding_hides_a_dot_segment(pieces: list[str]) -> None:
    path = "/" + "".join(pieces)
    read = path
    for _ in range(4):
        read = unquote(read)
    segments = read.replace("\\", "/").split("/")
    if ".." in segments or "." in segments:
        assert not is_plain(path)


@pytest.mark.parametrize(
    "path", ["/a/..;/b", "/a/.;x=1/b", "/a/;x/b", "/a/%2e%2e;/b", "/a%0d%0ab", "/a\x00", "/a/\u202eb"]
)
def test_what_other_servers_may_read_otherwise(path: str) -> None:
    assert not is_plain(path)


def test_no_path_is_decoded_for_ever() -> None:
    assert not is_plain("/v1/models/%" + "25" * 30_000)
