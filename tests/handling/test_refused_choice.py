"""A model server that refuses the ``tool_choice`` of the gateway's own: no answer is lost to that."""

import json
from typing import Any

import pytest

from tests.support.conversing import converse, converse_on
from tests.support.playbook import BASH, NATIVE, SEARCH
from tests.support.upstream import Answer, SeenRequest, answering, json_answer, text, tool_use

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("stream", [False, True])]

RUST = tool_use("web_search", {"query": "rust"}, id="call-rust")
DONE = text("It is 1.89.")
LMDEPLOY = {
    "detail": [{"type": "literal_error", "loc": ["body", "tool_choice", "type"], "msg": "Input should be 'auto'"}]
}
TOO_LONG = {"error": {"message": "The prompt is too long."}}
VLLM = {
    "type": "error",
    "error": {
        "type": "BadRequestError",
        "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
    },
}


def refusing(choice: str, status: int, body: dict[str, Any], *, stream: bool) -> Answer:
    """A server that takes no such ``tool_choice``; asked without a search it answers, else it calls one."""

    def answer(request: SeenRequest) -> Answer:
        asked = request.json
        if (asked.get("tool_choice") or {}).get("type") == choice:
            return json_answer(body, status)
        searches = any(tool["name"] == "web_search" for tool in asked.get("tools", []))
        return answering(RUST if searches else DONE, stream=stream)

    return answer


@pytest.mark.parametrize("status", [400, 422])
async def test_the_last_round_is_asked_again_without_choice_and_tools(status: int, stream: bool) -> None:
    server = refusing("none", status, LMDEPLOY, stream=stream)
    spoken = await converse({"tools": [SEARCH]}, [server], stream=stream, max_rounds=2)
    assert spoken.status == 200
    assert spoken.message["content"] == [{"type": "text", "text": "It is 1.89."}]
    assert spoken.message["stop_reason"] == "end_turn"
    _, refused, again = spoken.asked
    assert refused["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in again
    assert "tools" not in again
    assert again["messages"] == refused["messages"]


async def test_the_clients_own_tools_stay_declared(stream: bool) -> None:
    server = refusing("none", 422, LMDEPLOY, stream=stream)
    spoken = await converse({"tools": [BASH, SEARCH]}, [server], stream=stream, max_rounds=1)
    assert spoken.asked[-1]["tools"] == [BASH]
    assert spoken.message["content"] == [{"type": "text", "text": "It is 1.89."}]


async def test_it_is_learned_once(stream: bool) -> None:
    server = refusing("none", 422, LMDEPLOY, stream=stream)
    request = {"tools": [SEARCH]}
    first, second = await converse_on([request, request], [server], stream=stream, max_rounds=1)
    assert len(first.asked) == 2
    assert [body.get("tool_choice") for body in second.asked] == [None]
    assert second.message["content"] == first.message["content"]


async def test_a_choice_that_is_auto_again_is_not_insisted_on_either(stream: bool) -> None:
    server = refusing("auto", 400, VLLM, stream=stream)
    request = {"tools": [SEARCH], "tool_choice": {"type": "tool", "name": "web_search"}}
    spoken = await converse(request, [server], stream=stream)
    assert [body.get("tool_choice", {}).get("type") for body in spoken.asked] == ["tool", "auto", None]
    assert spoken.message["content"] == [{"type": "text", "text": "It is 1.89."}]


@pytest.mark.parametrize(
    "body", [LMDEPLOY, {"error": {"message": "The prompt is too long."}}], ids=["choice", "prompt"]
)
async def test_a_refusal_that_stays_is_the_clients_to_read(stream: bool, body: dict[str, Any]) -> None:
    spoken = await converse({"tools": [SEARCH]}, [json_answer(body, 422)], stream=stream, max_rounds=1)
    assert (spoken.status, json.loads(spoken.body)) == (422, body)
    assert len(spoken.asked) == (2 if body is LMDEPLOY else 1)


async def test_a_refusal_of_the_clients_own_choice_is_passed(stream: bool) -> None:
    request = {"tools": [NATIVE], "tool_choice": {"type": "none"}}
    spoken = await converse(request, [json_answer(LMDEPLOY, 422)], stream=stream)
    assert (spoken.status, json.loads(spoken.body)) == (422, LMDEPLOY)
    assert len(spoken.asked) == 1


async def test_a_refusal_that_was_of_something_else_is_not_remembered(stream: bool) -> None:
    request = {"tools": [SEARCH]}
    refused = json_answer(LMDEPLOY, 422)
    answers: list[Answer] = [refused, refused, answering(DONE, stream=stream)]
    first, second = await converse_on([request, request], answers, stream=stream, max_rounds=1)
    assert first.status == 422
    assert [body["tool_choice"] for body in second.asked] == [{"type": "none"}]
