"""A tiny Qwen3-shaped model that really calls tools, so that a real vLLM can run the whole loop on a CPU.

It knows one small world, the version numbers of well-known software, and how to look them up: it thinks, searches the
web once, twice at a time or one after the other, runs a command with a client's tool, copies what the tools said into
its answer, or just says hello. Nothing else is to be expected of it. `python -m tiny_model` makes it from a seed.
"""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where this project keeps what is dear to make: ``$XDG_CACHE_HOME/messages-gateway``, else under ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "messages-gateway"
