"""The gateway's errors: one hierarchy, each with the HTTP status and the Anthropic error type it becomes.

::

    MessagesGatewayError
    ├── SettingsError               a setting that the gateway cannot start with
    ├── ClientGone                  the client left before its request had come whole
    ├── Refused                     upstream answered a round with another status than 200
    ├── SearchFailed                a search did not work (gateway.tools.base, beside its causes)
    └── RequestError                answers a client's request
        ├── InvalidRequest          400
        │   └── ThreadUnsupported       a conversation that the server is to hold
        ├── AuthenticationFailed    401
        ├── NotFound                404
        ├── MethodNotAllowed        405
        ├── RequestTooLarge         413
        ├── HeadTooLarge            431
        ├── TurnTimeout             504
        ├── Overloaded              529
        └── UpstreamError           502
            ├── UpstreamUnreachable     no connection
            ├── UpstreamBroken          what came is not HTTP, not whole, or no message
            ├── UpstreamStreamError     upstream's own ``error`` event
            └── UpstreamTimeout     504

Beside it stands one error of a library's kind, a ``ValueError`` that never leaves the core:
:class:`gateway.turn.jsonvalue.Unreadable`. The recorder has a hierarchy of its own.

The envelope is Anthropic's: ``{"type": "error", "error": {"type": ..., "message": ...}, "request_id": ...}``. A message
names what was wrong and where; it never holds a key, prompt text or an upstream address.
"""

import json
from collections.abc import Mapping
from typing import ClassVar, Literal

ERROR_TYPES: dict[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""Anthropic's error type for an HTTP status; see :func:`error_type` for the ones not listed."""


_MEND = frozenset({408, 429})
"""Of the errors that are a request's own fault, those that time mends."""


def error_type(status: int) -> str:
    """The Anthropic error type for an HTTP ``status``: the listed one, else by its class (4xx, 5xx)."""
    if status in ERROR_TYPES:
        return ERROR_TYPES[status]
    return "invalid_request_error" if 400 <= status < 500 else "api_error"


def error_body(
    kind: str, message: str, *, request_id: str | None = None, details: Mapping[str, object] | None = None
) -> dict[str, object]:
    """The error envelope as a JSON object."""
    error: dict[str, object] = {"type": kind, "message": message}
    if details is not None:
        error["details"] = details
    body: dict[str, object] = {"type": "error", "error": error}
    if request_id is not None:
        body["request_id"] = request_id
    return body


class MessagesGatewayError(Exception):
    """Base of every error this project raises on purpose."""


class SettingsError(MessagesGatewayError):
    """A setting the gateway cannot start with. The message says which, and what to type instead."""


class ClientGone(MessagesGatewayError):
    """The client left before its request had come whole: nobody is there to be answered."""


class Refused(MessagesGatewayError):
    """Upstream answered a round with another status than 200: that ``status``, and what the client gets of the rest.

    ``headers`` are end-to-end ones, names in lower case; ``body`` is upstream's, or made of it.
    """

    def __init__(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.headers = headers
        self.body = body


class RequestError(MessagesGatewayError):
    """An error that answers a client's request.

    ``status`` is the HTTP status, ``message`` the sentence for the client, ``headers`` extra response headers.
    ``details`` is what a program may want to know of the error, None where there is no more to it.
    """

    status: ClassVar[int] = 500
    details: ClassVar[Mapping[str, object] | None] = None

    def __init__(self, message: str, *, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.headers = headers

    @property
    def type(self) -> str:
        """Anthropic's error type."""
        return error_type(self.status)

    @property
    def advice(self) -> tuple[tuple[bytes, bytes], ...]:
        """What Anthropic's clients go by: that asking again cannot mend it, where it cannot. They try again else."""
        return ((b"x-should-retry", b"false"),) if 400 <= self.status < 500 and self.status not in _MEND else ()

    def fields(self, request_id: str) -> list[tuple[bytes, bytes]]:
        """The header fields of the answer to the request of that id, but for its length."""
        named = [(b"content-type", b"application/json"), (b"request-id", request_id.encode("latin-1"))]
        return [*named, *self.headers, *self.advice]

    def body(self, request_id: str) -> bytes:
        """The JSON error envelope, UTF-8."""
        body = error_body(self.type, self.message, request_id=request_id, details=self.details)
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


class InvalidRequest(RequestError):
    """400: the request has something the gateway must read and cannot."""

    status = 400


class ThreadUnsupported(InvalidRequest):
    """400: the request asks for a conversation that the server holds (``thread``), or goes on with one.

    Nothing here holds any. The ``details`` are Anthropic's (``ThreadUnsupportedRequestErrorDetails`` in their SDKs):
    a client that reads them sends its whole history from then on.
    """

    details: ClassVar = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


class AuthenticationFailed(RequestError):
    """401: gateway keys are set and the client presented none of them."""

    status = 401


class Forbidden(RequestError):
    """403: a web page that may not ask, or a name that this gateway does not go by."""

    status = 403


class NotFound(RequestError):
    """404: a path the gateway neither serves nor proxies."""

    status = 404


class MethodNotAllowed(RequestError):
    """405: the path is served, but not for this method."""

    status = 405


class RequestTooLarge(RequestError):
    """413: the body is over the limit."""

    status = 413


class HeadTooLarge(RequestError):
    """431: the request's head is over the limit."""

    status = 431


class TurnTimeout(RequestError):
    """504: a turn took longer than it may, upstream and tools together."""

    status = 504


class Overloaded(RequestError):
    """529: too many turns at once, or the gateway is being stopped. Says when to try again."""

    status = 529

    def __init__(self, message: str) -> None:
        super().__init__(message, headers=((b"retry-after", b"2"),))


class UpstreamError(RequestError):
    """Upstream gave no whole answer."""

    status = 502


class UpstreamUnreachable(UpstreamError):
    """502: no connection to upstream."""


class UpstreamBroken(UpstreamError):
    """502: upstream dropped the connection, or what came is not HTTP or not a message."""


class UpstreamStreamError(UpstreamError):
    """Upstream's own ``error`` event: its message, and its type where that is one of Anthropic's."""

    def __init__(self, kind: object, message: str) -> None:
        super().__init__(message)
        self._kind = kind if isinstance(kind, str) and kind in ERROR_TYPES.values() else "api_error"

    @property
    def type(self) -> str:
        return self._kind


class UpstreamTimeout(UpstreamError):
    """504: upstream stalled. ``stage`` says waiting for what."""

    status = 504

    def __init__(self, message: str, *, stage: Literal["connect", "first byte", "idle"]) -> None:
        super().__init__(message)
        self.stage = stage
