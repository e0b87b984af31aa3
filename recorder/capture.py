"""A response as it comes in, for a cassette: its bytes, and when each event of a stream was whole."""

import time
from collections.abc import Iterable

from recorder.cassette import Response

_OF_THE_CONNECTION = {
    "connection",
    "content-length",
    "date",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
"""Headers that say nothing once the connection is gone; RFC 9110, section 7.6.1, and what the body's length says."""

_LAST_EVENT = b"event: message_stop"

HeaderPairs = Iterable[tuple[bytes, bytes]]


def recorded_headers(pairs: HeaderPairs) -> dict[str, str]:
    """Headers as a cassette holds them: lower-case names, doubles joined, without those of the connection."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name not in _OF_THE_CONNECTION:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


class Capture:
    """Collects one response. Times are counted from when it was made, which is when the request is sent."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._response = Response(0)
        self._line_open = False
        self._event_open = False
        self._tail = b""

    @property
    def size(self) -> int:
        """Bytes of the body so far."""
        return self._response.content.size

    @property
    def message_stopped(self) -> bool:
        """Is it a stream whose last event, ``message_stop``, has come?"""
        return self._response.is_stream and _LAST_EVENT in self._tail and not self._event_open

    def head(self, status_code: int, headers: HeaderPairs) -> None:
        """The status and headers have come."""
        self._response.status_code = status_code
        self._response.headers = recorded_headers(headers)
        self._response.is_stream = self._response.headers.get("content-type", "").startswith("text/event-stream")

    def feed(self, data: bytes) -> None:
        """Bytes of the body have come."""
        self._response.content.write(data)
        if self._response.is_stream:
            self._note_events(data)
            self._tail = (self._tail + data)[-100:]

    def finish(self) -> Response:
        """The response, whole."""
        if self._event_open:
            self._response.event_ms.append(self._now())
        self._response.elapsed_ms = self._now()
        return self._response

    def _note_events(self, data: bytes) -> None:
        *lines, rest = data.split(b"\n")
        for line in lines:
            if line in (b"", b"\r") and not self._line_open:
                self._response.event_ms.append(self._now())
                self._event_open = False
            else:
                self._event_open = True
            self._line_open = False
        if rest:
            self._event_open = True
            self._line_open = self._line_open or rest != b"\r"

    def _now(self) -> float:
        return (time.monotonic() - self._began) * 1000
