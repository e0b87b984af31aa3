"""The rules of a turn are written down, each is held by tests that exist, and whatever cites one can be looked up."""

import ast
import re
from pathlib import Path

import pytest

import gateway.turn

ROOT = Path(__file__).parents[2]
HEADING = re.compile(r"^(\d+)\. \*", re.MULTILINE)
HOLDER = re.compile(r"^ +- (tests/\S+\.py)::(\w+)$", re.MULTILINE)
CITED = re.compile(r"\brules? (\d+)(?:\s*(?:,|to|and|or)\s+(\d+))*", re.IGNORECASE)
NUMBER = re.compile(r"\d+")
SOURCES = ("gateway", "recorder", "tests", "docs", "e2e", "bench", "load", "cassettes", "examples", "tiny_model")

THEORY = gateway.turn.__doc__ or ""
PARTS = HEADING.split(THEORY)
RULES = dict(zip(map(int, PARTS[1::2]), PARTS[2::2], strict=True))


def written() -> list[Path]:
    """Every page and module of the repository's own."""
    inside = [path for folder in SOURCES for ending in ("*.py", "*.md") for path in (ROOT / folder).rglob(ending)]
    return [*inside, *ROOT.glob("*.md")]


def functions_in(path: str) -> set[str]:
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_the_rules_are_numbered_from_one() -> None:
    assert list(RULES) == list(range(1, 12))


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_held_by_tests_that_exist(rule: int) -> None:
    holders = HOLDER.findall(RULES[rule])
    assert holders
    assert [name for path, name in holders if name not in functions_in(path)] == []


def test_every_rule_that_is_cited_is_written_down() -> None:
    cited = {
        (str(path.relative_to(ROOT)), int(number))
        for path in written()
        for citation in CITED.finditer(path.read_text(encoding="utf-8"))
        for number in NUMBER.findall(citation[0])
    }
    assert any(path.startswith("gateway/") for path, _ in cited)
    assert [citation for citation in cited if citation[1] not in RULES] == []


def test_nothing_is_cited_that_is_not_in_the_repository() -> None:
    """The gateway's theory is the docstring of ``gateway.turn``; there is no other to point to."""
    elsewhere = re.compile(r"\bthe contract\b")
    assert [str(path) for path in (ROOT / "gateway").rglob("*.py") if elsewhere.search(path.read_text())] == []
