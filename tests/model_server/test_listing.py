"""Upstream's list of models, read by the one reader of it."""

import json
from typing import Any

import pytest

from gateway.errors import UpstreamBroken
from gateway.model_server.listing import Listing, ServedModel, read_listing


def listed(value: Any, status: int = 200) -> Listing:
    return read_listing(status, [], value if isinstance(value, bytes) else json.dumps(value).encode())


def test_vllms_list_is_read() -> None:
    models = [
        {"id": "qwen3", "created": 1796019709, "owned_by": "vllm", "root": "Qwen/Qwen3-8B", "max_model_len": 40960},
        {"id": "lora", "created": 1796019709, "owned_by": "vllm", "root": "/loras/x", "parent": "qwen3"},
        {"id": "other"},
    ]
    assert listed({"object": "list", "data": models}).served() == [
        ServedModel("qwen3", 1796019709, 40960, "vllm", "Qwen/Qwen3-8B"),
        ServedModel("lora", 1796019709, 40960, "vllm", "/loras/x"),
        ServedModel("other", 0, None, "", ""),
    ]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data":5}', b"null", b'{"data":null}', b"[" * 100_000])
def test_what_is_no_list_is_upstreams_fault(body: bytes) -> None:
    assert listed(body).models is None
    with pytest.raises(UpstreamBroken, match="no list of models"):
        listed(body).served()


@pytest.mark.parametrize(("status", "refused"), [(401, True), (403, True), (404, False), (500, False)])
def test_another_status_holds_no_list(status: int, refused: bool) -> None:
    answer = listed({"data": [{"id": "qwen3"}]}, status)
    assert (answer.models, answer.refused) == (None, refused)


def test_odd_entries_are_left_out_or_read_as_far_as_they_can_be() -> None:
    data: list[Any] = [
        "x",
        {"id": 5},
        {"id": "a", "created": "soon", "max_model_len": "big", "owned_by": 5, "root": ["x"], "parent": {}},
        {"id": "b", "created": 1e30, "max_model_len": -1},
    ]
    assert listed({"data": data}).served() == [ServedModel("a"), ServedModel("b")]
