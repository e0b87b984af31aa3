"""What the HTTP search providers share: one bounded request, and what each status means."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from itertools import islice
from math import ceil
from typing import ClassVar, TypeVar

import httpx
import msgspec

from gateway.tools.base import HITS_MAX, Cause, SearchFailed, SearchQuery
from gateway.tools.inflate import ACCEPT_ENCODING, BoundedBody, TooLong, Undecodable
from gateway.tools.transport import transport_to
from gateway.tools.web_search.hit import Hit
from gateway.turn import jsonvalue
from gateway.turn.web_search import SearchResult

ANSWER_MAX_BYTES = 2 * 1024 * 1024
"""A longer answer, as it comes or inflated, is not read. A hundred results with their texts have a tenth of it."""
CONNECT_TIMEOUT_S = 10.0

# httpx logs each URL at info level, httpcore headers at debug level: the query and the key.
for _noisy in ("httpx", "httpcore"):
    logging.getLogger(_noisy).setLevel(logging.WARNING)

_CAUSES = {
    401: Cause.KEY_REJECTED,
    402: Cause.QUOTA_SPENT,
    403: Cause.KEY_REJECTED,
    413: Cause.TOO_LARGE,
    429: Cause.RATE_LIMITED,
}

Shape = TypeVar("Shape")


class HttpSearch(ABC):
    """A provider reached by one HTTP request a search.

    Redirects are not followed: a provider has no business sending the gateway elsewhere. The usual proxy variables
    (``HTTPS_PROXY``, ``NO_PROXY``) hold. There is no read timeout: the tool bounds the whole call.
    """

    name: str
    label: str
    origin: str = ""
    path: str
    causes: ClassVar[Mapping[int, Cause]] = {}
    """Statuses that mean something else with this provider than usually."""

    def __init__(self, origin: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        self.url = (origin or self.origin) + self.path
        self._headers = headers or {}

    @cached_property
    def client(self) -> httpx.AsyncClient:
        """Made for the first search: of an idle gateway the certificates of the world are a part that counts."""
        return httpx.AsyncClient(
            headers={
                "accept": "application/json",
                "accept-encoding": ACCEPT_ENCODING,
                "user-agent": "messages-gateway",
                **self._headers,
            },
            transport=transport_to(self.url, connect_timeout_s=CONNECT_TIMEOUT_S),
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            # The tool's slots bound the connections.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
        )

    @abstractmethod
    def request(self, query: SearchQuery) -> httpx.Request:
        """The request for ``query``."""

    @abstractmethod
    def read(self, body: bytes) -> list[SearchResult]:
        """The results in a 200 answer."""

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        """Ask the provider; see :class:`gateway.tools.base.SearchBackend`."""
        try:
            response = await self.client.send(self.request(query), stream=True)
            try:
                body = await self._body(response)
            finally:
                await response.aclose()
        except httpx.TimeoutException as error:
            raise SearchFailed(Cause.TIMED_OUT, self.label) from error
        except (Undecodable, TooLong) as error:
            raise SearchFailed(Cause.BAD_ANSWER, self.label) from error
        except httpx.TransportError as error:
            raise SearchFailed(Cause.UNREACHABLE, self.label) from error
        if response.status_code != 200:
            raise self._refused(response, body)
        return self.read(body)

    async def aclose(self) -> None:
        """Close the connections."""
        if "client" in vars(self):
            await self.client.aclose()

    def cause(self, status: int, body: bytes) -> Cause:
        """What an answer other than 200 means."""
        if status in self.causes:
            return self.causes[status]
        return _CAUSES.get(status, Cause.NOT_ACCEPTED if 400 <= status < 500 else Cause.PROVIDER_FAILED)

    def retry_after_s(self, headers: httpx.Headers) -> float | None:
        """After how many seconds the provider wants to be asked again: ``Retry-After``, a number or a date."""
        value = headers.get("retry-after", "")
        if value.isascii() and value.isdigit():
            return float(value[:9])
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return None
        # A date without a zone is UTC (RFC 9110 allows no other).
        return (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()

    def decode(self, body: bytes, shape: type[Shape]) -> Shape:
        """``body`` as ``shape``, whose lists of results are ``list[msgspec.Raw]``: see :meth:`hits`.

        Raises:
            SearchFailed: it is no JSON, or not of that shape.
        """
        try:
            try:
                return msgspec.json.decode(body, type=shape)
            except msgspec.DecodeError:
                return msgspec.json.decode(jsonvalue.mended(body), type=shape)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SearchFailed(Cause.BAD_ANSWER, self.label) from error

    def hits(self, listed: Iterable[msgspec.Raw]) -> list[Hit]:
        """The results of an answer that can be read, each by itself: one that is malformed does not hide the others.

        Raises:
            SearchFailed: there are some, and none of them can be read.
        """
        among = list(islice(listed, HITS_MAX))
        read = [Hit(value) for value in map(_value, among) if isinstance(value, dict)]
        if among and not read:
            raise SearchFailed(Cause.BAD_ANSWER, self.label)
        return read

    async def _body(self, response: httpx.Response) -> bytes:
        body = BoundedBody(response.headers.get("content-encoding", ""), ANSWER_MAX_BYTES)
        async for piece in response.aiter_raw():
            body.feed(piece)
        return body.whole()

    def _refused(self, response: httpx.Response, body: bytes) -> SearchFailed:
        cause = self.cause(response.status_code, body)
        wait = _wait_words(self.retry_after_s(response.headers))
        return SearchFailed(
            cause, self.label, detail=wait if cause is Cause.RATE_LIMITED else str(response.status_code)
        )


def _value(raw: msgspec.Raw) -> object:
    try:
        return jsonvalue.read(raw)
    except jsonvalue.Unreadable:
        return None


def _wait_words(seconds: float | None) -> str:
    if seconds is None:
        return "in a while"
    whole = max(1, ceil(seconds))
    if whole < 120:
        return f"in {whole} second{'s' if whole > 1 else ''}"
    return f"in {ceil(whole / 60)} minutes"
