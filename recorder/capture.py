"""A response as it comes in, for a cassette: its bytes, and when each event of a stream was whole."""

import time

from recorder.cassette import Response
from recorder.headers import HeaderPairs, recorded_headers

_LAST_EVENT = b"event: message_stop"


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
