"""Which server is it, from what it answers about itself."""

from typing import Any

import pytest

from gateway.tokens.dialect import dialect_of


@pytest.mark.parametrize(
    ("owners", "version", "dialect"),
    [
        (("vllm",), {"version": "0.32.0"}, "vllm"),
        (("lmdeploy",), None, "lmdeploy"),
        (("lmdeploy", "lmdeploy"), {"version": "1"}, "lmdeploy"),
        (("vllm",), None, "vllm"),
        (("someone",), {"version": "0.32.0"}, "vllm"),
        (("someone",), None, None),
        ((), None, None),
        ((), {"detail": "Not Found"}, None),
        ((), "0.32.0", None),
    ],
)
def test_the_owner_of_the_models_tells_and_else_the_version_route(owners: Any, version: Any, dialect: Any) -> None:
    assert dialect_of(owners, version) == dialect
