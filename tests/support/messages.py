"""Every sentence that the gateway can end with, read from its source: `…` for what is filled in."""

import ast
from collections.abc import Iterator
from pathlib import Path

from gateway.tools.base import Cause
from gateway.turn.web_search import ERROR_SENTENCES, NO_RESULTS, NO_SEARCH_LEFT

GATEWAY = Path(__file__).parents[2] / "gateway"
SAID_BY = frozenset(
    {
        "AuthenticationFailed",
        "CannotStart",
        "ChildFailed",
        "Forbidden",
        "InvalidRequest",
        "MethodNotAllowed",
        "NotFound",
        "Overloaded",
        "RequestError",
        "RequestTooLarge",
        "SettingsError",
        "ThreadUnsupported",
        "UpstreamBroken",
        "UpstreamTimeout",
        "UpstreamUnreachable",
        "UsageError",
        "ValueError",
    }
)
LOGGED_BY = frozenset({"info", "warning", "error"})
NOT_FOR_PEOPLE = frozenset(
    {
        "a character that no host name has",
        "a host that is none",
        "a request line that others may read otherwise",
        "a sealer needs at least one key",
        "a transfer coding whose end others may see elsewhere",
        "another version of HTTP",
        "not one host",
        "the gateway is no forward proxy",
    }
)
"""Raised within the gateway, and turned into another sentence before anybody sees it."""


def sentences() -> dict[str, str]:
    """Sentence -> where it stands in the source."""
    found = dict.fromkeys(_of_searches(), "gateway/tools/base.py")
    for path in sorted(GATEWAY.rglob("*.py")):
        place = str(path.relative_to(GATEWAY.parent))
        for sentence, line in _of_module(ast.parse(path.read_text())):
            found[sentence] = f"{place}:{line}"
    return {
        sentence: place for sentence, place in found.items() if sentence.strip("… ") and sentence not in NOT_FOR_PEOPLE
    }


def _of_searches() -> Iterator[str]:
    yield from (cause.sentence.format(provider="…", detail="…") for cause in Cause)
    yield from ERROR_SENTENCES.values()
    yield from (NO_RESULTS, NO_SEARCH_LEFT)


def _of_module(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            words = _assigned(function)
            for call in ast.walk(function):
                if isinstance(call, ast.Call):
                    yield from ((sentence, call.lineno) for sentence in _of_call(call, words))


def _of_call(call: ast.Call, words: dict[str, str]) -> Iterator[str]:
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    arguments = [_text(argument, words) for argument in call.args]
    if name == "Check" and arguments[1] in ("problem", "note"):
        yield arguments[2]
    elif arguments and (name in SAID_BY or (name in LOGGED_BY and isinstance(call.func, ast.Attribute))):
        yield arguments[0]


def _assigned(function: ast.AST) -> dict[str, str]:
    """Names that hold a text in a function; one that holds several is anything."""
    words: dict[str, str] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            words[name] = _text(node.value, words) if name not in words else "…"
    return words


def _text(node: ast.expr, words: dict[str, str]) -> str:
    match node:
        case ast.Constant(value=str(value)):
            return value
        case ast.JoinedStr(values=values):
            return "".join(_text(value, words) for value in values)
        case ast.FormattedValue(value=value):
            return _text(value, words)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left, words) + _text(right, words)
        case ast.Name(id=name):
            return words.get(name, "…")
    return "…"
