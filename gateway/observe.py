"""What an operator sees: one log line a request, and the metrics. Never prompt text, never a key."""

from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal

Outcome = Literal[
    "ok",
    "client_error",
    "upstream_error",
    "upstream_unreachable",
    "timeout",
    "cut",
    "client_gone",
    "gateway_error",
]
"""How a request ended; exactly one each.

``client_error``: a 4xx, ours or upstream's. ``upstream_error``: upstream answered 5xx, or no message. ``timeout``:
upstream stalled. ``cut``: the answer broke off after it had begun.
"""


@dataclass(slots=True)
class Record:
    """What becomes of one request, for its log line and the metrics.

    ``rounds`` counts upstream requests, ``tools`` has the name of each gateway tool run, ``upstream_ms`` is the time
    from sending to the last byte, summed over rounds; token counts are None where upstream gave none.
    """

    route: str
    model: str = ""
    rounds: int = 0
    tools: list[str] = field(default_factory=list)
    upstream_ms: float = 0.0
    total_ms: float = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None
    outcome: Outcome = "ok"
    status: int = 0
    started: float = field(default_factory=perf_counter)
