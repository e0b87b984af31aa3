"""Globs match a whole text or not at all."""

import pytest

from gateway.wire.globs import Globs

PATHS = Globs(("/v1/responses*", "/v1/models/*", "/v1/embeddings", "/v[23]/a.b", "/x/?"))


@pytest.mark.parametrize(
    "text",
    [
        *("/v1/responses", "/v1/responses/1/cancel", "/v1/models/org/name", "/v1/models/", "/v1/embeddings"),
        *("/v3/a.b", "/x/1", "/v1/models/two\nlines"),
    ],
)
def test_what_matches(text: str) -> None:
    assert PATHS.match(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "/v1/models", "/v1/embeddings/", "/a/v1/embeddings", "/V1/embeddings", "/v1/embeddings\n"),
        *("/v1/a.b", "/v2/axb", "/x/", "/x/12"),
    ],
)
def test_what_does_not(text: str) -> None:
    assert not PATHS.match(text)


def test_no_globs_match_nothing() -> None:
    assert not Globs(()).match("")
