"""The ASGI application: which request goes where, and how each one ends.

``POST /v1/messages`` takes the short way, without Starlette; everything else goes through Starlette's routes.
"""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib.metadata import version
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from gateway import openapi
from gateway.books.ledger import Ledger
from gateway.books.log import RequestLog, describe
from gateway.books.metrics import Metrics
from gateway.books.record import Record, model_of
from gateway.errors import (
    MethodNotAllowed,
    NotFound,
    Overloaded,
    RequestError,
    UpstreamError,
    error_body,
    error_type,
)
from gateway.handling.access import Keys, is_plain
from gateway.handling.ask import asking_headers
from gateway.handling.body import ClientGone, read_body
from gateway.handling.classify import TokenRequest, classify
from gateway.handling.exchange import Exchange, Services
from gateway.handling.proxy import proxy
from gateway.handling.refuse import JSON, noting, refuse, send_whole
from gateway.handling.run_tokens import run_token_request
from gateway.handling.run_turn import run_turn
from gateway.handling.turnstile import Turnstile
from gateway.handling.watch import Watch
from gateway.model_server.dialect import UpstreamDialect
from gateway.model_server.models import ServedModel, ask, client_models, find_model, model_page, read_list
from gateway.model_server.windows import ModelRules, Windows
from gateway.settings import Settings
from gateway.tokens import Dialect
from gateway.tools.base import SearchTool
from gateway.tools.web_search import make_search
from gateway.turn import MessagesRounds, Rounds, Sealer, TokenRounds, Turn, TurnRules, translate_count
from gateway.upstream import Upstream
from gateway.wire.headers import Headers, header, response_headers
from gateway.wire.rewrite import ModelMap

Handler = Callable[[Exchange], Awaitable[None]]

ROUTES = (
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/models",
    "/",
    "/health",
    "/ready",
    "/metrics",
    "/openapi.json",
)
"""What is served at exactly this path. In the log and the metrics the rest is ``proxied`` or ``other``."""

OPEN_ROUTES = frozenset({"/", "/health", "/ready", "/openapi.json"})
"""What needs no key."""

READY_TIMEOUT_S = 5.0

STOPPING = "stopping"
"""In the server's state (ASGI's ``scope["state"]``) once it is being stopped."""

FAREWELL_S = 2.0
"""How long requests that outlived the server's patience have to tell their clients so."""


class Gateway:
    """The application. ``search`` is used in place of the tool that the settings describe, and closed at the end."""

    def __init__(self, settings: Settings, *, search: SearchTool | None = None) -> None:
        self._settings = settings
        self._search = search
        self._keys = Keys(settings.api_keys)
        self._metrics = Metrics()
        self._ledger = Ledger(self._metrics, RequestLog(settings.log_level, settings.log_format))
        self._names = ModelMap(settings.model_map)
        self._proxied = ModelMap(dict.fromkeys(settings.proxy_paths, ""))
        self._router = Router(self._routes(), redirect_slashes=False, default=_Attended(self, self._anything_else))
        self._turnstile = Turnstile(settings.max_concurrent_turns)
        self._watch: Watch
        self._services: Services
        self._dialect: UpstreamDialect
        self._rules: ModelRules

    def _routes(self) -> list[Route]:
        return [
            Route("/v1/messages", _Attended(self, self._messages), methods=["POST"]),
            Route("/v1/messages/count_tokens", _Attended(self, self._count_tokens), methods=["POST"]),
            Route("/v1/models", _Attended(self, self._models), methods=["GET"]),
            Route("/", self._root, methods=["GET"]),
            Route("/health", self._health, methods=["GET"]),
            Route("/ready", _Attended(self, self._ready), methods=["GET"]),
            Route("/metrics", self._show_metrics, methods=["GET"]),
            Route("/openapi.json", self._describe, methods=["GET"]),
        ]

    # Start, stop, and the one way through

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the gateway speaks HTTP, not {scope['type']}")
        record = self._ledger.open("/v1/messages")
        try:
            if scope["raw_path"] == b"/v1/messages" and scope["method"] == "POST":
                self._keys.check(scope["headers"])
                await self.attend(self._messages, scope, receive, send, record)
            else:
                await self._by_route(scope, receive, send, record)
        except RequestError as error:
            await refuse(error, record, send)
        except ClientGone:
            record.outcome = "client_gone"
        except asyncio.CancelledError:
            # The client went, and there is nobody to answer; or the server stops, and its patience has ended.
            if record.outcome != "client_gone":
                await refuse(Overloaded("the gateway is being stopped"), record, send)
        except Exception as error:  # noqa: BLE001  (whatever it is, the client gets an answer and nothing internal)
            structlog.get_logger().error("unexpected error", route=record.route, **describe(error))
            await refuse(RequestError("the gateway failed at this request"), record, send)
        finally:
            self._ledger.close(record)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        settings = self._settings
        upstream = Upstream(
            settings.upstream,
            connect_timeout_s=settings.connect_timeout_s,
            first_byte_timeout_s=settings.first_byte_timeout_s,
            idle_timeout_s=settings.idle_timeout_s,
        )
        search = self._search or make_search(settings)
        keys = [key.get_secret_value() for key in settings.seal_keys] or [secrets.token_urlsafe(32)]
        rules = TurnRules(
            sealer=Sealer(keys),
            aliases=settings.tool_aliases,
            max_rounds=settings.max_rounds,
            max_retained_bytes=settings.max_turn_bytes,
        )
        self._watch = Watch(asyncio.get_running_loop())
        self._services = Services(settings, upstream, search, rules, self._metrics)
        self._dialect = UpstreamDialect(settings.upstream_dialect, upstream)
        self._rules = ModelRules(self._names, settings.max_tokens_cap, Windows(upstream))
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._farewells()
        await search.aclose()
        await upstream.aclose()
        self._ledger.flush()
        await send({"type": "lifespan.shutdown.complete"})

    async def _farewells(self) -> None:
        """Wait for the requests that the server has just cancelled."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                while self._ledger.in_flight:  # noqa: ASYNC110  (once, at the very end)
                    await asyncio.sleep(0.01)

    async def _by_route(self, scope: Scope, receive: Receive, send: Send, record: Record) -> None:
        path = scope["path"]
        record.route = path if path in ROUTES else "other"
        if not is_plain(path):
            raise NotFound("there is nothing at this path")
        if record.route not in OPEN_ROUTES:
            self._keys.check(scope["headers"])

        scope["app"], scope["record"] = self, record
        try:
            await self._router(scope, receive, noting(record, send))
        except HTTPException as error:
            allowed = (error.headers or {}).get("Allow", "")
            raise MethodNotAllowed(
                f"this path takes {allowed}, not {scope['method']}", headers=((b"allow", allowed.encode()),)
            ) from None

    async def attend(self, handler: Handler, scope: Scope, receive: Receive, send: Send, record: Record) -> None:
        """Read the request whole, then handle it for as long as the client stays."""
        body = await read_body(scope["headers"], receive, self._settings.max_body_bytes)
        target = scope["raw_path"]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        exchange = Exchange(scope, receive, send, body, target.decode("latin-1"), record)
        watched = self._watch.begin(receive, record)
        try:
            await handler(exchange)
        finally:
            self._watch.end(watched)

    # What goes upstream

    async def _messages(self, exchange: Exchange) -> None:
        await self._apply_rules(exchange)
        turn, tokens = classify(exchange.body, self._services.rules, exchange.client_model)
        if turn is not None:
            await self._turn(exchange, turn, tokens)
        elif tokens is not None:
            await self._tokens(exchange, tokens)
        else:
            await proxy(exchange, self._services)

    async def _turn(self, exchange: Exchange, turn: Turn, tokens: TokenRequest | None) -> None:
        self._note(exchange)
        with self._turnstile:
            exchange.record.turn = True
            rounds: Rounds = MessagesRounds(turn, exchange.target)
            if tokens is not None:
                rounds = TokenRounds(turn, tokens.fields, await self._ask_dialect(exchange), exchange.target)
            await run_turn(rounds, exchange, self._services)

    async def _tokens(self, exchange: Exchange, tokens: TokenRequest) -> None:
        if await self._ask_dialect(exchange) == "lmdeploy":
            await proxy(exchange, self._services)  # it speaks the fields itself
            return
        self._note(exchange)
        with self._turnstile:
            await run_token_request(tokens, exchange, self._services)

    async def _ask_dialect(self, exchange: Exchange) -> Dialect:
        return await self._dialect.find(self._upstream_headers(exchange))

    def _note(self, exchange: Exchange) -> None:
        """For the record: an answer that the gateway makes itself."""
        record = exchange.record
        record.model = exchange.client_model or model_of(exchange.body)
        exchange.server_send = exchange.send
        exchange.send = noting(record, exchange.send)

    async def _count_tokens(self, exchange: Exchange) -> None:
        await self._apply_rules(exchange)
        exchange.body = translate_count(exchange.body, self._services.rules) or exchange.body
        await proxy(exchange, self._services)

    async def _apply_rules(self, exchange: Exchange) -> None:
        if self._rules.in_force:
            headers = self._upstream_headers(exchange)
            exchange.body, exchange.client_model = await self._rules.apply(exchange.body, headers)

    async def _anything_else(self, exchange: Exchange) -> None:
        path = exchange.scope["path"]
        if not self._proxied.matches(path):
            raise NotFound("there is nothing at this path")
        if exchange.scope["method"] == "TRACE":  # its answer is the request, the key for upstream with it
            raise MethodNotAllowed("TRACE is not passed on", headers=((b"allow", b"GET, HEAD, POST, PUT, DELETE"),))
        exchange.record.route = "proxied"
        model_id = path.removeprefix("/v1/models/")
        if model_id != path and exchange.scope["method"] == "GET" and _wants_anthropic(exchange):
            await self._answer_models(exchange, lambda models: find_model(models, model_id))
        else:
            await proxy(exchange, self._services)

    async def _models(self, exchange: Exchange) -> None:
        if _wants_anthropic(exchange):
            query = dict(parse_qsl(exchange.scope["query_string"].decode("latin-1"), keep_blank_values=True))
            await self._answer_models(exchange, lambda models: model_page(models, query))
        else:
            await proxy(exchange, self._services)

    async def _answer_models(self, exchange: Exchange, view: Callable[[list[ServedModel]], dict[str, Any]]) -> None:
        sent = perf_counter()
        status, headers, body = await ask(self._services.upstream, self._upstream_headers(exchange))
        exchange.record.rounds, exchange.record.upstream_ms = 1, (perf_counter() - sent) * 1000
        if status == 200:
            body = json.dumps(view(client_models(read_list(body), self._names))).encode()
            headers = [(b"content-type", b"application/json")]
        await send_whole(exchange.send, status, response_headers(headers), body)

    async def _ready(self, exchange: Exchange) -> None:
        if STOPPING in exchange.scope["state"]:
            await self._not_ready(exchange, "the gateway is being stopped")
            return
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                response = await self._services.upstream.request("GET", "/health", self._upstream_headers(exchange))
            response.close()
            ready = response.status < 500
        except (UpstreamError, TimeoutError):
            ready = False
        if ready:
            await send_whole(exchange.send, 200, JSON, b'{"status":"ready"}')
        else:
            await self._not_ready(exchange, "upstream cannot be reached, or says that it is not well")

    async def _not_ready(self, exchange: Exchange, why: str) -> None:
        await send_whole(exchange.send, 503, JSON, json.dumps(error_body(error_type(503), why)).encode())

    def _upstream_headers(self, exchange: Exchange) -> Headers:
        """For a question of the gateway's own: with the credentials that the client's request would have."""
        return [field for field in asking_headers(exchange, self._settings) if field[0] in _OWN_HEADERS]

    # What the gateway answers itself

    async def _root(self, _: Request) -> Response:
        return JSONResponse({"name": "messages-gateway", "version": version("messages-gateway")})

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def _show_metrics(self, _: Request) -> Response:
        self._ledger.flush()
        return Response(self._metrics.render(), media_type="text/plain; version=1.0.0; charset=utf-8")

    async def _describe(self, _: Request) -> Response:
        return JSONResponse(openapi.describe(self._settings.proxy_paths))


class _Attended:
    """A handler as an ASGI application, for Starlette's routes."""

    def __init__(self, gateway: Gateway, handler: Handler) -> None:
        self._gateway = gateway
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gateway.attend(self._handler, scope, receive, send, scope["record"])


_OWN_HEADERS = frozenset({b"authorization", b"x-api-key", b"accept-encoding"})


def _wants_anthropic(exchange: Exchange) -> bool:
    return header(exchange.scope["headers"], b"anthropic-version") is not None
