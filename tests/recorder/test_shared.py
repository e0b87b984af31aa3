"""Cassettes that others recorded, with the shared fields alone: they load, show, check and play as they are."""

from pathlib import Path

import httpx
import pytest
import yaml

from recorder import serve_cassettes
from recorder.cassette import Cassette
from tests.recorder.test_cli import run

FOLDER = Path(__file__).parents[3] / "shared" / "cassettes"
CASSETTES = sorted(FOLDER.glob("*.yaml"))

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not CASSETTES, reason="the cassettes of others are not beside this project"),
    pytest.mark.parametrize("path", CASSETTES, ids=[path.stem for path in CASSETTES]),
]


def test_load(path: Path) -> None:
    for turn, raw in zip(Cassette(path), yaml.safe_load(path.read_bytes())["turns"], strict=True):
        request, response = raw["request"], raw["response"]
        assert (turn.filename, turn.request.path, turn.request.body) == (
            raw["filename"],
            request["path"],
            request["body"],
        )
        if "sse" in response:
            assert turn.response.content.read() == "".join(response["sse"]).encode()
        else:
            assert turn.response.json() == response["body"]


def test_show_check_and_scan(path: Path) -> None:
    shown = run("show", path)
    assert shown.exit_code == 0
    assert "web_search" in shown.output
    assert "1.89.0" in shown.output
    assert run("check", path).output == f"{path}: sound\n"
    assert run("scan", path).output == f"{path}: no credential\n"


async def test_play(path: Path) -> None:
    async with serve_cassettes([path]) as player, httpx.AsyncClient(base_url=player.origin) as client:
        for turn in Cassette(path):
            answer = await client.post("/v1/messages", json=turn.request.body)
            assert answer.content == turn.response.content.read()
