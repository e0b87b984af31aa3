"""Is this the request that was recorded? Compared as JSON values, apart from what differs from run to run.

Left out of the comparison: headers, thinking signatures (absent equals present), text blocks of nothing but white
space, and credentials, which a cassette does not hold. Call ids are compared by the place they first stand in, so that
a result must still answer the same call. More can be left out by path (``body.max_tokens``, ``body.tools.*.strict``).
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recorder.cassette import Json
from recorder.messages import is_blank
from recorder.redact import redact_request_body

_MOST_DIFFERENCES = 20
_WIDTH = 160
_ABSENT: Any = object()

_CALLS = ("tool_use", "server_tool_use", "mcp_tool_use")


def normalise(
    method: str,
    path: str,
    query: dict[str, Json],
    body: Json,
    ignore: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> Json:
    """The request as one JSON value, without what is not compared. ``ignore`` holds dotted paths, `*` for any key.

    ``headers`` are not compared: the credentials in them are what a cassette does not hold of the body either.
    """
    document = {"method": method, "path": path, "query": query, "body": _plain(redact_request_body(body, headers))}
    if isinstance(document["body"], dict) and isinstance(messages := document["body"].get("messages"), list):
        document["body"]["messages"] = normalise_messages(messages)
    for pattern in ignore:
        _remove(document, pattern.split("."))
    return document


def normalise_messages(messages: list[Json]) -> list[Json]:
    """The messages of a request without signatures and blank text, their call ids numbered in order of appearance."""
    ids: dict[str, str] = {}
    return [_message(message, ids) for message in messages]


def digest(value: Json) -> bytes:
    """A short name for a JSON value: equal values, whatever the order of their keys, have the same."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()[:16]


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where two JSON values differ; either side can be absent."""

    path: str
    left: Json
    right: Json

    def lines(self, left: str, right: str) -> Iterator[str]:
        """For a terminal, under the two sides' names."""
        width = max(len(left), len(right))
        start = _first_difference(self.left, self.right)
        yield self.path
        yield f"  {left:<{width}}  {_brief(self.left, start)}"
        yield f"  {right:<{width}}  {_brief(self.right, start)}"


def differences(left: Json, right: Json, path: str = "") -> Iterator[Difference]:
    """Where two JSON values differ, as deep as it can be said."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in [*left, *(key for key in right if key not in left)]:
            yield from differences(left.get(key, _ABSENT), right.get(key, _ABSENT), _join(path, key))
    elif isinstance(left, list) and isinstance(right, list):
        for number in range(max(len(left), len(right))):
            one = left[number] if number < len(left) else _ABSENT
            other = right[number] if number < len(right) else _ABSENT
            yield from differences(one, other, _join(path, str(number)))
    elif not _equal(left, right):
        yield Difference(path, left, right)


def describe(found: Sequence[Difference], left: str, right: str, indent: str = "  ") -> str:
    """Differences as lines for a terminal, the first twenty of them."""
    lines = [f"{indent}{line}" for difference in found[:_MOST_DIFFERENCES] for line in difference.lines(left, right)]
    if len(found) > _MOST_DIFFERENCES:
        lines.append(f"{indent}… and {len(found) - _MOST_DIFFERENCES} more")
    return "\n".join(lines)


def _plain(value: Json) -> Json:
    """Numbers compare by value: 1.0 is 1."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _message(message: Json, ids: dict[str, str]) -> Json:
    if not isinstance(message, dict) or not isinstance(content := message.get("content"), list):
        return message
    return {**message, "content": [_block(block, ids) for block in content if not is_blank(block)]}


def _block(block: Json, ids: dict[str, str]) -> Json:
    if not isinstance(block, dict):
        return block
    block = dict(block)
    if block.get("type") == "thinking":
        block.pop("signature", None)
    field = "id" if block.get("type") in _CALLS else "tool_use_id"
    if isinstance(name := block.get(field), str):
        block[field] = ids.setdefault(name, f"call {len(ids) + 1}")
    return block


def _remove(value: Json, path: list[str]) -> None:
    key, rest = path[0], path[1:]
    if isinstance(value, list):
        for number in (
            range(len(value)) if key == "*" else [int(key)] if key.isdigit() and int(key) < len(value) else []
        ):
            if rest:
                _remove(value[number], rest)
            else:
                value[number] = None
    elif isinstance(value, dict):
        for name in list(value) if key == "*" else [key] if key in value else []:
            if rest:
                _remove(value[name], rest)
            else:
                del value[name]


def _equal(left: Json, right: Json) -> bool:
    # in JSON true is not 1
    return bool(left == right) and isinstance(left, bool) == isinstance(right, bool)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _first_difference(left: Json, right: Json) -> int:
    """Where two long texts part, so that both can be shown from there."""
    if not isinstance(left, str) or not isinstance(right, str):
        return 0
    same = next((n for n, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    return max(0, same - _WIDTH // 3)


def _brief(value: Json, start: int) -> str:
    if value is _ABSENT:
        return "(nothing)"
    text = json.dumps(value[start:] if isinstance(value, str) else value, ensure_ascii=False)
    if start:
        text = f"…{text}"
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
