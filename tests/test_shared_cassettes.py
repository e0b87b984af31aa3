"""Two conversations that others recorded from a larger model, replayed through the loop each in its own transport."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.settings import Settings
from recorder.player import serve_cassettes
from tests.handling.test_run import events
from tests.support.gateway import running_gateway
from tests.support.search import ScriptedSearch, found

FOLDER = Path(__file__).parents[2] / "shared" / "cassettes"
CASSETTES = sorted(FOLDER.glob("messages-*.yaml"))

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not CASSETTES, reason=f"{FOLDER.name}: these recordings are not here"),
]


@pytest.mark.parametrize("path", CASSETTES, ids=[path.stem for path in CASSETTES])
async def test_replayed_through_the_loop(path: Path) -> None:
    first, second = recorded_requests(path)
    result = second["messages"][2]["content"][0]["content"]
    search = ScriptedSearch(default=found(result))
    async with (
        serve_cassettes([path]) as player,
        running_gateway(Settings(upstream=player.origin), search=search) as gateway,
    ):
        response = await gateway.client.post("/v1/messages", json=first)
    assert response.status_code == 200
    assert [seen.turn for seen in player.seen] == ["t1", "t2"]
    assert [query.lower() for query in search.queries] == ["latest stable rust release"]
    kinds, words, stop = seen_by_the_client(response)
    assert kinds == ["thinking", "thinking", "text"]
    assert "1.89.0" in words
    assert "<think>" not in words
    assert stop == "end_turn"


def recorded_requests(path: Path) -> list[dict[str, Any]]:
    """The bodies of the requests in a cassette."""
    return [turn["request"]["body"] for turn in yaml.safe_load(path.read_text())["turns"]]


def seen_by_the_client(response: Any) -> tuple[list[str], str, str]:
    """The kinds of blocks, the visible text, the stop reason."""
    if response.headers["content-type"] == "application/json":
        message = response.json()
        blocks = message["content"]
        return [block["type"] for block in blocks], blocks[-1]["text"], message["stop_reason"]
    shown = events(response)
    kinds = [event["content_block"]["type"] for event in shown if event["type"] == "content_block_start"]
    deltas = [event["delta"] for event in shown if event["type"] == "content_block_delta"]
    words = "".join(delta["text"] for delta in deltas if delta["type"] == "text_delta")
    return kinds, words, shown[-2]["delta"]["stop_reason"]
