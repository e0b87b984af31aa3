"""Streams as a client reads them."""

import json
from typing import Any

from gateway.wire.sse import SSEReader


def events_in(data: bytes) -> list[dict[str, Any]]:
    """The JSON of each event in the bytes of a stream."""
    return [json.loads(frame.data) for frame in SSEReader(1 << 30).feed(data)]
