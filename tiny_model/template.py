"""The chat template, and what of a conversation the model has to say itself.

The same template file renders the training text here and the prompts inside vLLM. It keeps every thought in the
history, so that a conversation that goes on is an extension of what the model saw before, and a prefix cache hits.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tiny_model.conversations import Conversation

TEMPLATE = Path(__file__).with_name("chat_template.jinja").read_text(encoding="utf-8")


@cache
def _template() -> Template:
    # As transformers sets it up: its `tojson` neither escapes HTML nor sorts keys, Jinja's own does both.
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(TEMPLATE)


def pieces(conversation: Conversation) -> Iterator[tuple[str, bool]]:
    """The conversation's text in pieces, each with whether it is the model's to say."""
    done = 0
    for index, message in enumerate(conversation.messages):
        if message["role"] == "assistant":
            prompt = _rendered(conversation, index, asks=True)
            whole = _rendered(conversation, index + 1, asks=False)
            if not whole.startswith(prompt):
                raise ValueError(f"the template changes what came before message {index}")
            yield prompt[done:], False
            yield whole[len(prompt) :].removesuffix("\n"), True
            done = len(whole) - 1


def _rendered(conversation: Conversation, upto: int, *, asks: bool) -> str:
    return _template().render(
        messages=conversation.messages[:upto],
        tools=conversation.tools or None,
        add_generation_prompt=asks,
        enable_thinking=conversation.thinking,
    )
