"""What suits Claude Code with a given model: settings that its own defaults, made for Anthropic's models, get wrong.

Measured with Claude Code 2.1.197 and 2.1.332 (`make e2e-claude`, docs/recipes/claude-code.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.model_server.listing import ServedModel

SMALL_WINDOW = 65_536
"""Below it Claude Code, which keeps room for an answer and for a summary, would sum up after each step."""

SMALL_ANSWER = 8
"""Of a small window it may ask for this part of it as an answer: that leaves room for its tools."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """One environment variable of Claude Code, what it is to be, and why, in a clause."""

    name: str
    value: str
    why: str


def tunings(model: ServedModel, environ: Mapping[str, str]) -> list[Tuning]:
    """What to set for a model; what ``environ`` has is the user's own decision."""
    found = [Tuning("ENABLE_TOOL_SEARCH", "true", "tools are looked up when they are needed, a third less of prompt")]
    if model.window is not None:
        window = Tuning("CLAUDE_CODE_MAX_CONTEXT_TOKENS", str(model.window), "the model's window")
        found.append(window)
        if model.window < SMALL_WINDOW:
            value = str(model.window // SMALL_ANSWER)
            found.append(Tuning("CLAUDE_CODE_MAX_OUTPUT_TOKENS", value, "the window is small"))
    if model.owner and model.owner != "vllm":
        why = "that line of the prompt changes from version to version, and upstream does not strip it"
        found.append(Tuning("CLAUDE_CODE_ATTRIBUTION_HEADER", "0", why))
    return [one for one in found if not environ.get(one.name)]
