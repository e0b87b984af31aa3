"""docs/security.md names a test for each threat, and each of them is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
LINES = re.findall(r"^\| (\d+)\. (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.M)


def test_the_threats_are_numbered_in_order() -> None:
    assert [int(number) for number, *_ in LINES] == list(range(1, len(LINES) + 1))
    assert len(LINES) == len(re.findall(r"^\| *\d", PAGE, re.M)) >= 21


@pytest.mark.parametrize(("threat", "tests"), [(threat, tests) for _, threat, _, tests in LINES])
def test_each_has_a_test(threat: str, tests: str) -> None:
    named = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", tests)
    assert named
    for file, name in named:
        functions = ast.walk(ast.parse((ROOT / file).read_text()))
        assert name in [node.name for node in functions if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
