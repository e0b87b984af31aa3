"""A cassette that a person can read in the terminal: turns, blocks, calls and results, usage, timings."""

import json
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from recorder.cassette import Cassette, Json, Response, Turn
from recorder.record import outcome

_MOST_LINES = 40
_MOST_CHARACTERS = 4000

_STYLES = {
    "thinking": "italic dim",
    "tool_use": "cyan",
    "server_tool_use": "cyan",
    "tool_result": "green",
    "web_search_tool_result": "green",
    "user": "bold",
    "error": "red",
}

Row = tuple[str, str]
"""What it is, and its text."""


def show(cassette: Cassette, console: Console) -> None:
    """Print it, turn by turn. Raises CassetteError."""
    console.print(_table([(name, _text(value)) for name, value in cassette.recorded().items()]))
    for turn in cassette:
        console.print()
        console.print(Rule(Text(_title(turn)), align="left"))
        console.print(_table(_rows(turn)))


def _table(rows: list[Row]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(Text(label), Text(_printable(text), style=_STYLES.get(label, "")))
    return table


def _title(turn: Turn) -> str:
    request, response = turn.request, turn.response
    parts = [turn.filename, f"{request.method} {request.path}", str(response.status_code), *_timing(response)]
    return "  ".join(parts)


def _timing(response: Response) -> Iterator[str]:
    if response.is_stream:
        yield f"stream, first event after {response.event_ms[0]:.0f} ms" if response.event_ms else "stream"
    if response.elapsed_ms is not None:
        yield f"{response.elapsed_ms:.0f} ms in all"


def _rows(turn: Turn) -> list[Row]:
    request, rows = turn.request, list[Row]()
    if isinstance(body := request.body, dict):
        rows += [("asked", _asked(body)), *_new_messages(body)]
    elif request.text or body is not None:
        rows.append(("asked", request.text or _text(body)))
    message, problem = outcome(turn.response)
    if message is not None:
        rows += [*_content(message["content"], "text"), ("", _ending(message))]
    elif "message" in request.path and request.method == "POST":
        rows.append(("error", problem))
    else:
        rows.append(("answer", turn.response.content.read().decode("utf-8", "replace")))
    return rows + [("redacted", item) for item in turn.redacted]


def _asked(body: dict[str, Json]) -> str:
    """The request's fields but the conversation, each in a word or two."""
    fields = {name: value for name, value in body.items() if name not in ("messages", "system", "tools")}
    words = [f"{name} {_text(value)}" for name, value in fields.items()]
    if isinstance(tools := body.get("tools"), list):
        names = [str(tool.get("name", "?")) for tool in tools if isinstance(tool, dict)]
        words.append(f"tools {', '.join(names)}")
    return " · ".join(words)


def _new_messages(body: dict[str, Json]) -> Iterator[Row]:
    """What the request adds to the last answer; all that is before was in earlier turns."""
    messages = body.get("messages")
    history = [item for item in messages if isinstance(item, dict)] if isinstance(messages, list) else []
    answers = [number for number, item in enumerate(history) if item.get("role") == "assistant"]
    start = answers[-1] + 1 if answers else 0
    if start:
        yield "", f"({start} messages before)"
    elif "system" in body:
        yield from _content(body["system"], "system")
    for message in history[start:]:
        yield from _content(message.get("content"), str(message.get("role")))


def _content(content: Json, label: str) -> Iterator[Row]:
    for block in content if isinstance(content, list) else [content]:
        yield _block(block, label) if isinstance(block, dict) else (label, _text(block))


def _block(block: dict[str, Any], label: str) -> Row:
    kind = str(block.get("type"))
    match kind:
        case "text":
            return label, str(block.get("text", "")).strip() or "(nothing but white space)"
        case "thinking":
            return kind, str(block.get("thinking", "")).strip()
        case "tool_use" | "server_tool_use":
            return kind, f"{block.get('name')} {_text(block.get('input'))}"
        case "tool_result":
            content = block.get("content")
            texts = [text for _, text in _content(content, kind)] if content is not None else []
            return kind, ("error: " if block.get("is_error") else "") + "\n".join(texts)
    return kind, _text({name: value for name, value in block.items() if name != "type"})


def _ending(message: dict[str, Json]) -> str:
    usage = message.get("usage")
    counts = [f"{name} {_text(value)}" for name, value in usage.items()] if isinstance(usage, dict) else []
    return " · ".join([f"stop {message.get('stop_reason')}", *counts])


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _printable(text: str) -> str:
    """Short enough for a terminal, and nothing in it that a terminal would obey."""
    lines = text[:_MOST_CHARACTERS].split("\n")
    cut = len(text) > _MOST_CHARACTERS or len(lines) > _MOST_LINES
    shown = [
        "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in line) for line in lines
    ]
    return "\n".join(shown[:_MOST_LINES]) + (" …" if cut else "")
