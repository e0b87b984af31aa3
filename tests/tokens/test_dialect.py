"""Which server is it, from what it answers about itself."""

from typing import Any

import pytest

from gateway.tokens.dialect import dialect_of


def models(*owners: str | None) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": f"m{n}", "owned_by": owner} for n, owner in enumerate(owners)]}


@pytest.mark.parametrize(
    ("listed", "version", "dialect"),
    [
        (models("vllm"), {"version": "0.32.0"}, "vllm"),
        (models("lmdeploy"), None, "lmdeploy"),
        (models("lmdeploy", "lmdeploy"), {"version": "1"}, "lmdeploy"),
        (models("vllm"), None, "vllm"),
        (models("someone"), {"version": "0.32.0"}, "vllm"),
        (models("someone"), None, None),
        (models(), None, None),
        (None, None, None),
        ({"data": "x"}, {"detail": "Not Found"}, None),
        ([1], "0.32.0", None),
    ],
)
def test_the_owner_of_the_models_tells_and_else_the_version_route(listed: Any, version: Any, dialect: Any) -> None:
    assert dialect_of(listed, version) == dialect
