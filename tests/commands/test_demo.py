"""The demo: what it prints is what happened, and it fails where something went otherwise than recorded."""

from io import StringIO

import pytest
from rich.console import Console

from gateway.commands import demo
from gateway.turn.web_search import SearchResult

pytestmark = pytest.mark.anyio

AT_ONCE = float("inf")


async def shown(width: int = 200) -> tuple[int, list[str]]:
    """The exit status and the lines of a demo without its pauses."""
    output = StringIO()
    status = await demo.show(Console(file=output, width=width, highlight=False), AT_ONCE)
    return status, output.getvalue().splitlines()


def told(lines: list[str]) -> list[str]:
    """What the lines say, without their times."""
    return [line[5:].strip() for line in lines if line[:5].strip().isdigit()]


async def test_the_demo_tells_both_sides_of_a_turn() -> None:
    status, lines = await shown()
    assert status == 0
    story = [line.split(":")[0] for line in told(lines)]
    behind = [line for line in story if line.startswith(("round", "the gateway", "the search"))]
    assert behind == [
        "round 1 asks",
        "round 1 answers thinking",
        "round 1 answers tool_use",
        "the gateway searches",
        "the search finds",
        "round 2 asks",
        "round 2 answers thinking",
        "round 2 answers text",
    ]
    assert [line for line in story if line not in behind] == [
        "POST /v1/messages",
        "message_start",
        "block 0, thinking",
        "block 1, thinking",
        "block 2, text",
        "message_delta",
        "message_stop",
    ]
    assert any("The client's answer: The latest stable Rust release is 1.95.0." in line for line in lines)
    assert any("2 rounds upstream and 1 search" in line for line in lines)


async def test_a_search_that_finds_something_else_is_no_recorded_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    other = SearchResult("Announcing Rust 2.0.0", "https://blog.rust-lang.org/", "A new version.", None)
    monkeypatch.setattr(demo, "RESULTS", (other,))
    status, lines = await shown()
    assert status == 1
    assert any("this was not recorded" in line for line in lines)
    assert any("did not end as it should" in line for line in lines)


async def test_the_demo_fits_a_narrow_terminal() -> None:
    status, lines = await shown(width=60)
    assert status == 0
    assert max(map(len, lines)) <= 60
