"""`make compare` asks what it says it asks: its column for this gateway, and for an upstream alone, is what they do."""

import re

import pytest

from e2e import compare, compare_upstream
from e2e.processes import serving
from gateway.settings import Settings
from tests.support.gateway import running_gateway

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_upstream, "PACE_S", 0)
    monkeypatch.setattr(compare, "ASKED_WITHIN_S", 0.2)


async def test_the_column_of_this_gateway() -> None:
    upstream = compare_upstream.Upstream()
    async with serving(upstream.app) as origin:
        settings = Settings(upstream=origin, search_provider="searxng", search_base_url=origin, log_level="error")
        async with running_gateway(settings) as gateway:
            found = await compare.everything(gateway.url, upstream)
    searched = "thinking, text, server_tool_use, web_search_tool_result"
    assert [re.sub(r"\d+\.\d s$", "… s", answer) for answer in found.values()] == [
        f"{searched}, {searched}, text",
        "2 links; web_search_requests 2; 2 searches ran",
        "thinking, text, thinking, 2 text",
        "thinking, text, thinking, 2 text",
        "22 pieces over … s",
        "1 search ran",
        "server_tool_use, tool_use, web_search_tool_result; stop tool_use; 1 search ran",
        "HTTP 200, stop pause_turn, no answer; 10 rounds",
        "HTTP 200, stop end_turn, an answer; 10 rounds",
        "66 of the 66 that upstream counted",
        "results of 2 of 2 searches, as tool_result",
        "after … s",
    ]


async def test_the_column_of_an_upstream_alone() -> None:
    upstream = compare_upstream.Upstream()
    async with serving(upstream.app) as origin:
        found = await compare.everything(origin, upstream)
    assert found.pop("The client leaves: upstream is let go") == "upstream was not asked"
    typed = [answer for question, answer in found.items() if answer.startswith("HTTP 400: 1 validation error")]
    assert len(typed) == 8
    assert found["Function web_search, two searches: blocks in JSON"] == "thinking, text, tool_use"
    assert found["… function"] == "HTTP 200, stop tool_use, no answer; 1 round"
