"""A scripted conversation: what is asked next, given what was answered. Opens nothing.

It asks as the gateway's loop would: the whole history every time, white-space-only text left out of it, all results of
a round in one user message in call order, a forced tool_choice only until a tool has answered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recorder.cassette import Json
from recorder.errors import RecordingError
from recorder.messages import is_blank

_ROUND_ENDED = ("tool_use", "end_turn")
"""Stop reasons after which a round's calls are run; vLLM can label a forced call `end_turn`."""


@dataclass(frozen=True, slots=True)
class Script:
    """What is said, at most how often, and with which fields of the request besides ``messages``."""

    prompts: Sequence[str]
    turns: int
    fields: Mapping[str, Json]
    tool_outputs: Mapping[str, str] = field(default_factory=dict)


class Conversation:
    """Give it each answer, and it says the next request."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._prompts = iter(script.prompts)
        self._history: list[Json] = []
        self._settled = 0
        self._calls: list[dict[str, Any]] = []
        self._message: Json = None
        self._asked = 0
        self._tool_has_answered = False

    def ask(self) -> dict[str, Json] | None:
        """The body of the next request; None when all is said. Raises RecordingError: a tool without an output."""
        if self._asked == self._script.turns:
            return None
        if self._calls:
            self._message = {"role": "user", "content": [self._result(call) for call in self._calls]}
            self._tool_has_answered = True
        elif (prompt := next(self._prompts, None)) is not None:
            self._settled = len(self._history)
            self._message = {"role": "user", "content": prompt}
        else:
            return None
        self._asked += 1
        return self._body([*self._history, self._message])

    def answer(self, message: dict[str, Json] | None) -> None:
        """The message that came; None where none did: then the prompt behind it is taken out of the history."""
        self._calls = []
        if message is None:
            del self._history[self._settled :]
            return
        content = [block for block in message["content"] if not is_blank(block)]
        self._history += [
            self._message,
            {"role": "assistant", "content": content or [{"type": "text", "text": ""}]},
        ]
        if message.get("stop_reason") in _ROUND_ENDED:
            self._calls = [block for block in content if block.get("type") == "tool_use"]

    def _body(self, messages: list[Json]) -> dict[str, Json]:
        body = dict(self._script.fields) | {"messages": messages}
        choice = body.get("tool_choice")
        if self._tool_has_answered and isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
            kept = {name: value for name, value in choice.items() if name == "disable_parallel_tool_use"}
            body["tool_choice"] = {"type": "auto", **kept}
        return body

    def _result(self, call: dict[str, Any]) -> Json:
        name = str(call.get("name"))
        if name not in self._script.tool_outputs:
            raise RecordingError(f"the model called {name}, and the tool outputs have no text for it")
        return {"type": "tool_result", "tool_use_id": call.get("id"), "content": self._script.tool_outputs[name]}
