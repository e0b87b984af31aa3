"""Answers cut in two at every byte, over sockets: wherever the pieces part, what the client gets is the same.

``make faults`` cuts at every byte, ``make test`` at some.
"""

import os
from typing import Any

import pytest

from gateway.settings import Settings
from gateway.tools.web_search import make_backend
from tests.faults.playing import CALL, SAID, Seen, ask, outcomes
from tests.faults.searches import BODY
from tests.faults.upstreams import Right
from tests.support.gateway import running_gateway
from tests.support.playbook import QUESTION, SEARCH
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import Answer, ScriptedUpstream, SeenRequest, chunk, head, raw

pytestmark = pytest.mark.anyio

EVERY_BYTE = os.environ.get("FAULTS") == "long"
STEP = 1 if EVERY_BYTE else 97
APART_S = 0.001
"""How long after the first piece the second comes: each is read by itself."""


def cut(right: Right, at: int) -> Answer:
    """The whole answer, head and body, in two pieces; the cut is counted from the beginning of the body's chunk."""
    fields = [*right.fields, ("transfer-encoding", "chunked")]
    sent = chunk(right.body) + b"0\r\n\r\n"
    return raw(head(200, fields) + sent[:at], APART_S, sent[at:], then="keep")


@pytest.mark.parametrize("place", ["proxy", "first", "later"])
@pytest.mark.parametrize("stream", [False, True], ids=["JSON", "SSE"])
async def test_an_answer_cut_anywhere(place: str, stream: bool) -> None:
    cut_one = Right(CALL if place == "first" else SAID, stream)
    other = Right(CALL if place == "later" else SAID, stream)
    places = range(0, len(chunk(cut_one.body)) + 5, STEP)
    rounds = 1 if place == "proxy" else 2

    def answer(request: SeenRequest) -> Answer:
        position, this_round = divmod(len(upstream.requests) - 1, rounds)
        is_cut = place == "proxy" or this_round == (0 if place == "first" else 1)
        return cut(cut_one, places[position]) if is_cut else other.answer().answer

    search = ScriptedSearch(default=found("It is 1.89."))
    bodies = set()
    async with (
        ScriptedUpstream(answer) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=search) as gateway,
    ):
        for _ in places:
            seen = Seen()
            await ask(gateway, {"tools": []} if place == "proxy" else {"tools": [SEARCH]}, stream, seen)
            assert (seen.status, seen.broken) == (200, False)
            bodies.add(seen.body)
        assert await outcomes(gateway) == {"ok": len(places)}
    [body] = bodies
    assert body.strip().endswith(b"}")
    assert len(search.queries) == (0 if place == "proxy" else len(places))


async def test_a_search_answer_cut_anywhere() -> None:
    whole = head(200, [("content-type", "application/json"), ("content-length", str(len(BODY)))]) + BODY
    places = range(1, len(whole), STEP)

    def search(request: SeenRequest) -> Answer:
        at = places[len(backend.requests) - 1]
        return raw(whole[:at], APART_S, whole[at:], then="keep")

    def round_(request: SeenRequest) -> Answer:
        messages: list[Any] = request.json["messages"]
        return Right(CALL if len(messages) == 1 else SAID, stream=False).answer().answer

    async with ScriptedUpstream(round_) as upstream, ScriptedUpstream(search) as backend:
        brave = make_backend("brave", base_url=backend.origin, api_key="k")
        async with running_gateway(Settings(upstream=upstream.origin), backend=brave) as gateway:
            for _ in places:
                body = {"model": "qwen3", "max_tokens": 64, "tools": [SEARCH], "messages": [QUESTION]}
                assert (await gateway.client.post("/v1/messages", json=body)).status_code == 200
    results = [one.json["messages"][2]["content"][0] for one in upstream.requests if len(one.json["messages"]) > 1]
    assert len(results) == len(places)
    assert {result["content"] for result in results} == {"1. Rust 1.89\nhttps://example.com/rust\nRust is at 1.89."}
