"""Pings on a stream that passes through: between two whole events of it, where it has been silent for long.

Nothing is done for an event: one timer a stream looks at the time of the last byte, and where an event ends is only
looked at in the silence.
"""

import asyncio
import re
from collections.abc import Sequence

from gateway.handling.exchange import Exchange, Services
from gateway.upstream import Response
from gateway.wire.headers import Headers, header
from gateway.wire.sse import write_event

PING = write_event("ping", b'{"type":"ping"}')
COMMENT = b": ping\n"
"""For clients of other APIs, who take an event without a name, or a blank line, for one of theirs."""

MESSAGES_PATH = "/v1/messages"

_BLANK_LINE = re.compile(rb"(?:\n|\r(?!\n))(?:\r\n|\n|\r)\Z")
_LONGEST_BLANK_LINE = 4


class Silence:
    """The silences of one stream. It wakes whoever reads ``response`` when it is time for a ping."""

    def __init__(self, response: Response, interval_s: float) -> None:
        self._response = response
        self._interval = interval_s
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(interval_s, self._look)

    def close(self) -> None:
        """No more of it."""
        self._timer.cancel()

    def _look(self) -> None:
        left = self._response.silent_since + self._interval - self._loop.time()
        if left <= 0:
            self._response.nudge()
            left = self._interval
        self._timer = self._loop.call_later(left, self._look)


def silence_of(response: Response, headers: Headers, services: Services) -> Silence | None:
    """The silences of an answer that pings may be put into; None where they may not.

    That is an event stream in no content encoding, whose length nobody was told.
    """
    settings = services.settings
    if not settings.proxy_pings:
        return None
    kind = header(headers, b"content-type") or b""
    if not kind.lower().startswith(b"text/event-stream") or header(headers, b"content-length") is not None:
        return None
    if (header(headers, b"content-encoding") or b"identity").lower() != b"identity":
        return None
    return Silence(response, settings.ping_interval_s)


def ping_for(exchange: Exchange) -> bytes:
    """What breaks the silence of an answer to this request."""
    return PING if exchange.scope["path"] == MESSAGES_PATH else COMMENT


def is_between_events(pieces: Sequence[bytes]) -> bool:
    """Whether a stream of which these are the last bytes, if any, has no event begun."""
    end = b"".join(pieces)[-_LONGEST_BLANK_LINE:]
    return not end or _BLANK_LINE.search(end) is not None
