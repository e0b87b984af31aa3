"""docs/turns.md shows what the gateway really sends: each excerpt is played again."""

import pytest

from tests.support import wire

pytestmark = pytest.mark.anyio

SHOWN = {(mark[2], mark[3]): mark[4] for mark in wire.MARK.finditer(wire.PAGE.read_text())}


@pytest.mark.parametrize("scenario", sorted(wire.SCENARIOS))
async def test_an_excerpt_is_what_crosses_the_wire(scenario: str) -> None:
    """Where this fails and the new wire is right, ``python -m tests.support.wire`` writes it into the page."""
    played = {(scenario, name): excerpt for name, excerpt in (await wire.SCENARIOS[scenario]()).items()}
    assert {key: excerpt for key, excerpt in SHOWN.items() if key[0] == scenario} == played


def test_every_excerpt_of_the_page_is_played() -> None:
    assert {scenario for scenario, _ in SHOWN} == set(wire.SCENARIOS)
    assert wire.PAGE.read_text().count("<!-- wire:") == len(SHOWN)
