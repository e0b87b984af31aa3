"""Tools that Anthropic defines and the client runs: ``bash``, ``text_editor``, ``memory`` and ``computer``.

A client declares one by its type alone, ``{"type": "bash_20250124", "name": "bash"}``: Anthropic's models know its
schema. Other servers want one, so the published schema stands upstream in the tool's place, under the tool's own name;
a call of it is the client's ``tool_use`` as ever.

Source: the tools' types in the ``anthropic`` SDK (the memory tool's commands among them) and Anthropic's pages on the
bash, text editor, memory and computer use tools. Versions differ where it is said here; one that is newer than all of
them is taken for the newest.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

Schema = dict[str, Any]

_TYPE = re.compile(r"(bash|text_editor|memory|computer)_(\d{8})")
_KEPT = ("cache_control", "defer_loading", "strict")
"""What of the declaration is not the tool's own, and holds for any function."""


def is_client_tool(declared_type: str) -> bool:
    """Whether a tool's ``type`` is that of one of these."""
    return _TYPE.fullmatch(declared_type) is not None


def published(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """The function that stands for a declaration upstream; None where it declares none of these tools."""
    declared_type = entry.get("type")
    found = _TYPE.fullmatch(declared_type) if isinstance(declared_type, str) else None
    if found is None:
        return None
    default_name, describe = _TOOLS[found[1]]
    description, schema = describe(int(found[2]), entry)
    function = {"name": entry.get("name", default_name), "description": description, "input_schema": schema}
    return function | {name: entry[name] for name in _KEPT if name in entry}


def _bash(version: int, entry: Mapping[str, Any]) -> tuple[str, Schema]:
    properties = {
        "command": _text("The command to run. Required, unless the shell is restarted."),
        "restart": {"type": "boolean", "description": "Whether to start the shell anew."},
    }
    return "Run commands in a bash shell that keeps its state from one call to the next.", _object(properties)


def _text_editor(version: int, entry: Mapping[str, Any]) -> tuple[str, Schema]:
    commands = ["view", "create", "str_replace", "insert"]
    if version < 20250429:
        commands.append("undo_edit")
    properties = _editing(commands, "Path of the file or directory.")
    if version < 20250728:
        del properties["insert_text"]
        properties["new_str"] = _text("For `str_replace`: the new text. For `insert`: the text to insert.")
    return "View, create and edit text files.", _object(properties, "command", "path")


def _memory(version: int, entry: Mapping[str, Any]) -> tuple[str, Schema]:
    commands = ["view", "create", "str_replace", "insert", "delete", "rename"]
    properties = _editing(commands, "Path of a file or directory, below /memories. For all but `rename`.")
    properties["old_path"] = _text("For `rename`: the path that it has.")
    properties["new_path"] = _text("For `rename`: the path that it is to have.")
    what = "Keep notes in files below /memories, which outlive this conversation. Look there before you begin."
    return what, _object(properties, "command")


def _editing(commands: list[str], path: str) -> Schema:
    lines = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
    return {
        "command": {"type": "string", "enum": commands, "description": "What to do."},
        "path": _text(path),
        "view_range": {**lines, "description": "For `view`: first and last line, counted from 1; -1 is the end."},
        "file_text": _text("For `create`: what the file is to hold."),
        "old_str": _text("For `str_replace`: the text to replace, exactly as it is and only once in the file."),
        "new_str": _text("For `str_replace`: the new text."),
        "insert_line": {"type": "integer", "description": "For `insert`: the line to insert after; 0 is the start."},
        "insert_text": _text("For `insert`: the text to insert."),
    }


def _computer(version: int, entry: Mapping[str, Any]) -> tuple[str, Schema]:
    actions = ["key", "type", "mouse_move", "left_click", "left_click_drag", "right_click", "middle_click"]
    actions += ["double_click", "screenshot", "cursor_position"]
    properties = {
        "action": {"type": "string", "enum": actions, "description": "What to do."},
        "coordinate": _point("Where, as x and y in pixels from the upper left."),
        "text": _text("For `type`: the text. For `key`: the key or keys, as in `ctrl+s`."),
    }
    if version >= 20250124:
        actions += ["left_mouse_down", "left_mouse_up", "triple_click", "scroll", "hold_key", "wait"]
        directions = ["up", "down", "left", "right"]
        properties["start_coordinate"] = _point("For `left_click_drag`: where to begin.")
        properties["scroll_direction"] = {"type": "string", "enum": directions, "description": "For `scroll`."}
        properties["scroll_amount"] = {"type": "integer", "description": "For `scroll`: how many clicks of the wheel."}
        properties["duration"] = {"type": "number", "description": "For `hold_key` and `wait`: seconds."}
    if version >= 20251124 and entry.get("enable_zoom") is True:
        actions.append("zoom")
        corners = {"type": "array", "items": {"type": "integer"}, "minItems": 4, "maxItems": 4}
        properties["region"] = {**corners, "description": "For `zoom`: x and y of two opposite corners."}
    size = (entry.get("display_width_px"), entry.get("display_height_px"))
    what = "Use a computer with mouse, keyboard and screen. Take a screenshot to see what is there."
    if all(type(pixels) is int for pixels in size):
        what += f" The screen is {size[0]} pixels wide and {size[1]} high."
    return what, _object(properties, "action")


def _object(properties: Schema, *required: str) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _point(description: str) -> Schema:
    point = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
    return {**point, "description": description}


_TOOLS: dict[str, tuple[str, Callable[[int, Mapping[str, Any]], tuple[str, Schema]]]] = {
    "bash": ("bash", _bash),
    "text_editor": ("str_replace_based_edit_tool", _text_editor),
    "memory": ("memory", _memory),
    "computer": ("computer", _computer),
}
"""By the type's name: what the tool is called, and what of a version and a declaration becomes of it."""
