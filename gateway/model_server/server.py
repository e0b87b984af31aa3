"""A model server: where it is, how it is asked, and what is known of it."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import closing, suppress
from typing import Any, Literal

from gateway.errors import UpstreamError
from gateway.model_server.listing import Listing, ServedModel, read_listing
from gateway.model_server.shared import Shared
from gateway.model_server.templates import Setting, Templates
from gateway.tokens import Dialect, dialect_of
from gateway.turn import Mode, jsonvalue
from gateway.upstream import Headers, Response, Upstream
from gateway.wire.headers import upstream_headers

ClientHeaders = Iterable[tuple[bytes, bytes]]
"""Those of a client's request, names in lower case."""


class ModelServer:
    """One server that runs models, which is what the rest of the gateway calls *upstream*.

    ``origin`` and the timeouts are as for :class:`gateway.upstream.Upstream`. ``key`` is the gateway's own for it, and
    takes the place of the client's credentials; without one these go to it, unless ``client_credentials`` is False
    (they are for the gateway, then). ``dialect`` is what it speaks, as the operator says, ``deferred_tools`` what it is
    given of those. ``clock`` gives seconds.

    Nothing is asked until a request needs it, and then with that request's credentials. ``GET /v1/models`` is asked for
    all that wants to know what it holds: the answer is kept, and read by one reader. A question that is being asked
    is not asked a second time with the same credentials; nobody waits for the answer to another's.

    Raises SettingsError for an origin that is none.
    """

    ANSWER_TIMEOUT_S = 10.0
    """How long a request waits for what the server says of itself; it then goes on without."""
    RETRY_S = 10.0
    """A model that is not in the list has it asked for again, but not more often than this."""
    REFRESH_S = 300.0
    """A list older than this serves on, while a new one is asked for."""
    MAX_MODELS = 10_000
    """With more, those that the newest list does not hold are forgotten."""
    READY_TIMEOUT_S = 5.0
    READY_KEPT_S = 1.0

    def __init__(
        self,
        origin: str,
        *,
        key: str | None = None,
        client_credentials: bool = True,
        dialect: Literal["auto"] | Dialect = "auto",
        deferred_tools: Setting = "auto",
        connect_timeout_s: float = 10,
        first_byte_timeout_s: float = 600,
        idle_timeout_s: float = 300,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.origin = origin
        self._key = key
        self._keeps_credentials = not client_credentials
        self._client = Upstream(
            origin,
            connect_timeout_s=connect_timeout_s,
            first_byte_timeout_s=first_byte_timeout_s,
            idle_timeout_s=idle_timeout_s,
        )
        self._clock = clock
        self._questions = Shared()
        self._models: dict[str, ServedModel] = {}
        self._listed_at = float("-inf")
        self._dialect = None if dialect == "auto" else dialect
        self._templates = Templates(deferred_tools, self._post, clock)
        self._ready = False
        self._ready_at = float("-inf")

    # Requests of clients

    def headers(self, client: ClientHeaders, *, identity: bool) -> Headers:
        """A client's headers as they go on; with ``identity`` the answer is to come without a content encoding."""
        return upstream_headers(
            client, upstream_api_key=self._key, gateway_keys=self._keeps_credentials, identity=identity
        )

    def request(self, method: str, target: str, headers: Headers, body: bytes = b"") -> Coroutine[Any, Any, Response]:
        """Send a request: see :meth:`gateway.upstream.Upstream.request`."""
        return self._client.request(method, target, headers, body)

    # Questions of the gateway's own

    async def list_models(self, client: ClientHeaders = ()) -> Listing:
        """What ``GET /v1/models`` answers to the credentials in ``client``; a list is kept for whoever asks next.

        Raises :class:`UpstreamError`.
        """
        return await self._list(self._asking(client))

    async def refusal(self, client: ClientHeaders) -> Listing | None:
        """What it says to a client whose credentials it does not take; None where it does, or the gateway has its own.

        Raises :class:`UpstreamError`.
        """
        if self._key is not None or self._keeps_credentials:
            return None
        listing = await self.list_models(client)
        return listing if listing.refused else None

    async def window(self, model: str, client: ClientHeaders) -> int | None:
        """The context window of a model in tokens, None where it is not known."""
        age = self._clock() - self._listed_at
        known = self._models.get(model)
        if age >= (self.RETRY_S if known is None else self.REFRESH_S):
            headers = self._asking(client)
            asked = self._questions.ask(("models", *headers), lambda: self._learn(headers))
            if known is None:
                await asked
                known = self._models.get(model)
        return known.window if known else None

    async def dialect(self, client: ClientHeaders) -> Dialect:
        """What the server speaks. One that does not tell is taken for vLLM.

        That is remembered too, but nothing is where the server cannot be reached, is unwell, or refuses the
        credentials.
        """
        if self._dialect is None:
            headers = self._asking(client)
            await self._questions.ask(("dialect", *headers), lambda: self._find_dialect(headers))
        return self._dialect or "vllm"

    async def deferred_mode(self, model: str, client: ClientHeaders) -> Mode:
        """What a model is given of deferred tools and references. For now ``expand``, where that cannot be told."""
        mode = self._templates.known(model)
        if mode is None:
            headers = self._asking(client)
            await self._questions.ask(("template", model, *headers), lambda: self._templates.learn(model, headers))
            mode = self._templates.known(model)
        return mode or "expand"

    async def is_ready(self) -> bool:
        """Whether the server is there and does not say that it is unwell. Its word holds for a second.

        Asked without a client's credentials, for the answer is for everybody; that they are wanted is an answer.
        """
        if self._clock() - self._ready_at >= self.READY_KEPT_S:
            await self._questions.ask(("ready",), self._probe)
        return self._ready

    async def aclose(self) -> None:
        """End all questions and every connection."""
        await self._questions.aclose()
        await self._client.aclose()

    # How they are asked

    def _asking(self, client: ClientHeaders) -> Headers:
        """The headers of a question: the credentials that the client's request would have."""
        return [field for field in self.headers(client, identity=True) if field[0] in _OF_A_QUESTION]

    async def _get(self, path: str, headers: Headers) -> tuple[int, Headers, bytes]:
        response = await self._client.request("GET", path, headers)
        with closing(response):
            return response.status, response.headers, await response.read()

    async def _post(self, path: str, headers: Headers, body: bytes) -> tuple[int, bytes]:
        response = await self._client.request("POST", path, [*headers, (b"content-type", b"application/json")], body)
        with closing(response):
            return response.status, await response.read()

    async def _list(self, headers: Headers) -> Listing:
        listing = read_listing(*await self._get("/v1/models", headers))
        if listing.models is not None:
            listed = {model.id: model for model in listing.models}
            # A list may depend on who asks for it: what another client was told stays.
            both = {**self._models, **listed}
            self._models = both if len(both) <= self.MAX_MODELS else listed
            self._listed_at = self._clock()
        return listing

    async def _learn(self, headers: Headers) -> None:
        try:
            async with asyncio.timeout(self.ANSWER_TIMEOUT_S):
                if (await self._list(headers)).refused:
                    return  # one client's bad credentials say nothing about the next
        except (UpstreamError, TimeoutError):
            pass  # the request itself will tell the client what is wrong
        self._listed_at = self._clock()

    async def _find_dialect(self, headers: Headers) -> None:
        try:
            async with asyncio.timeout(self.ANSWER_TIMEOUT_S):
                self._dialect = await self._ask_dialect(headers)
        except (UpstreamError, TimeoutError):
            pass  # as above

    async def _ask_dialect(self, headers: Headers) -> Dialect:
        if not self._models:
            listing = await self._list(headers)
            _expect_word(listing.status)
        owners = {model.owner for model in self._models.values()}
        found = dialect_of(owners)
        if found is None:
            status, _, body = await self._get("/version", headers)
            _expect_word(status)
            found = dialect_of(owners, _value(body) if status == 200 else None)
        return found or "vllm"

    async def _probe(self) -> None:
        try:
            async with asyncio.timeout(self.READY_TIMEOUT_S):
                response = await self._client.request("GET", "/health", self._asking(()))
                with closing(response):
                    self._ready = response.status < 500
                    with suppress(UpstreamError):
                        await response.read(_HEALTH_MAX_BYTES)  # so that the connection can be used again
        except (UpstreamError, TimeoutError):
            self._ready = False
        self._ready_at = self._clock()


_OF_A_QUESTION = frozenset({b"authorization", b"x-api-key", b"accept-encoding"})
_HEALTH_MAX_BYTES = 65536


def _expect_word(status: int) -> None:
    """Raises where an answer says nothing about the server."""
    if status in (401, 403) or status >= 500:
        raise UpstreamError(f"upstream answered {status}")


def _value(body: bytes) -> Any:
    try:
        return jsonvalue.read(body)
    except jsonvalue.Unreadable:
        return None
