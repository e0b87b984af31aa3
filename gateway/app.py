"""The ASGI application: which request goes where, and how each one ends.

``POST /v1/messages`` takes the short way, without Starlette; everything else goes through Starlette's routes.
"""

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress

import structlog
from starlette.exceptions import HTTPException
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from gateway.books.ledger import Ledger
from gateway.books.log import RequestLog, describe
from gateway.books.metrics import Metrics
from gateway.books.notices import LoggedNotices
from gateway.books.observer import Observer, Observers
from gateway.books.record import Record
from gateway.errors import ClientGone, MethodNotAllowed, NotFound, Overloaded, RequestError
from gateway.handling.access import Keys, is_plain
from gateway.handling.body import read_body
from gateway.handling.borders import Borders, is_preflight, preflight_headers
from gateway.handling.exchange import Exchange, Services
from gateway.handling.memory import Memory
from gateway.handling.proxied import pass_on
from gateway.handling.proxy import proxy
from gateway.handling.refuse import noting, refuse, send_whole
from gateway.handling.turnstile import Turnstile
from gateway.handling.watch import Watch
from gateway.model_server import ModelRules, ModelServer
from gateway.routes import BY_PATH, MESSAGES, ROUTES, Handler
from gateway.settings import Settings
from gateway.tools.runner import AnyRunner
from gateway.tools.runners import make_runners
from gateway.turn import KINDS, Kinds, Sealer, TurnRules
from gateway.wire.globs import Globs
from gateway.wire.headers import header
from gateway.wire.rewrite import ModelMap

FAREWELL_S = 2.0
"""How long requests that outlived the server's patience have to tell their clients so."""

_RAW_MESSAGES = MESSAGES.path.encode()


class Gateway:
    """The application.

    ``kinds`` are the tools it has. ``runners``, by the name of their kind, are used in place of those that the settings
    describe, and closed at the end. ``observers`` look on beside the metrics and the log.

    Raises :class:`gateway.errors.SettingsError` for settings that it cannot start with.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        kinds: Kinds = KINDS,
        runners: Mapping[str, AnyRunner] | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        self._settings = settings
        self._borders = Borders(settings)
        self._keys = Keys(settings.api_keys)
        self._services = _services(settings, kinds, make_runners(settings, runners or {}), observers)
        self._ledger = self._services.ledger
        self._watch = Watch()
        routes = [StarletteRoute(row.path, _Attended(self, row.handler), methods=[row.method]) for row in ROUTES]
        self._router = Router(routes, redirect_slashes=False, default=_Attended(self, pass_on))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the gateway speaks HTTP, not {scope['type']}")
        record = self._ledger.open(MESSAGES.path, scope)
        try:
            headers = scope["headers"]
            origin = header(headers, b"origin")
            if origin is not None:
                scope, send = self._borders.beyond(origin, scope, send)
                self._borders.check_origin(origin, headers)
            if scope["raw_path"] == _RAW_MESSAGES and scope["method"] == MESSAGES.method:
                self._borders.check_host(headers)
                self._keys.check(headers)
                await self.attend(MESSAGES.handler, scope, receive, send, record)
            else:
                await self._by_route(scope, receive, send, record, preflight=origin is not None and is_preflight(scope))
        except RequestError as error:
            await refuse(error, record, send)
        except ClientGone as gone:
            record.fails(gone)
        except asyncio.CancelledError:
            # The client went, and there is nobody to answer; or the server stops, and its patience has ended.
            if not record.left:
                await refuse(Overloaded("the gateway is being stopped"), record, send)
        except Exception as error:  # noqa: BLE001  (whatever it is, the client gets an answer and nothing internal)
            structlog.get_logger().error("unexpected error", route=record.route, **describe(error))
            await refuse(RequestError("the gateway failed at this request"), record, send)
        finally:
            self._ledger.close(record)

    async def attend(self, handler: Handler, scope: Scope, receive: Receive, send: Send, record: Record) -> None:
        """Read the request whole, then handle it for as long as the client stays."""
        target = scope["raw_path"]
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        exchange = Exchange(
            scope,
            receive,
            send,
            # in no variable, which would hold a large one for as long as the request is answered
            await read_body(scope["headers"], receive, self._settings.max_body_bytes),
            target.decode("latin-1"),
            record,
        )
        watched = self._watch.begin(receive, record)
        try:
            await handler(exchange, self._services)
        finally:
            self._watch.end(watched)

    async def _by_route(self, scope: Scope, receive: Receive, send: Send, record: Record, *, preflight: bool) -> None:
        path = scope["path"]
        route = BY_PATH.get(path)
        record.is_for("other" if route is None else path, quiet=route is not None and route.quiet)
        if route is None or not route.any_host:
            self._borders.check_host(scope["headers"])
        if not is_plain(path):
            raise NotFound("there is nothing at this path")
        send = noting(record, send)
        if preflight and self._borders.answers_preflights:
            await send_whole(send, 204, preflight_headers(scope), b"")
            return
        if preflight and route is not None and route.forwards:
            await self.attend(proxy, scope, receive, send, record)
            return
        if not preflight and (route is None or route.needs_key):
            self._keys.check(scope["headers"])

        scope["app"], scope["record"] = self, record
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            allowed = (error.headers or {}).get("Allow", "")
            raise MethodNotAllowed(
                f"this path takes {allowed}, not {scope['method']}", headers=((b"allow", allowed.encode()),)
            ) from None

    # Start and stop

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._farewells()
        await self._services.aclose()
        self._ledger.flush()
        await send({"type": "lifespan.shutdown.complete"})

    async def _farewells(self) -> None:
        """Wait for the requests that the server has just cancelled."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                while self._ledger.in_flight:  # noqa: ASYNC110  (once, at the very end)
                    await asyncio.sleep(0.01)


class _Attended:
    """A handler as an ASGI application, for Starlette's routes."""

    def __init__(self, gateway: Gateway, handler: Handler) -> None:
        self._gateway = gateway
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._gateway.attend(self._handler, scope, receive, send, scope["record"])


def _services(
    settings: Settings, kinds: Kinds, runners: Mapping[str, AnyRunner], others: Iterable[Observer]
) -> Services:
    metrics = Metrics()
    observers = Observers([metrics, RequestLog(settings.log_level, settings.log_format), *others])
    key = settings.upstream_api_key
    upstream = ModelServer(
        settings.upstream,
        key=key.get_secret_value() if key else None,
        client_credentials=not settings.api_keys,
        dialect=settings.upstream_dialect,
        deferred_tools=settings.deferred_tools,
        connect_timeout_s=settings.connect_timeout_s,
        first_byte_timeout_s=settings.first_byte_timeout_s,
        idle_timeout_s=settings.idle_timeout_s,
    )
    seal_keys = [key.get_secret_value() for key in settings.seal_keys] or [secrets.token_urlsafe(32)]
    names = ModelMap(settings.model_map)
    return Services(
        settings=settings,
        upstream=upstream,
        runners=runners,
        rules=TurnRules(
            sealer=Sealer(seal_keys),
            aliases=settings.tool_aliases,
            max_rounds=settings.max_rounds,
            max_tool_calls=settings.max_tool_calls,
            must_answer=settings.at_max_rounds == "answer",
            max_retained_bytes=settings.max_turn_bytes,
            kinds=kinds if settings.gateway_tools is None else kinds.taking(settings.gateway_tools),
            drop_unknown=settings.unknown_server_tools == "drop",
            notices=LoggedNotices(),
        ),
        metrics=metrics,
        ledger=Ledger(observers),
        observers=observers,
        names=names,
        model_rules=ModelRules(names, settings.max_tokens_cap, upstream),
        turnstile=Turnstile(settings.max_concurrent_turns),
        memory=Memory(settings.max_held_bytes),
        proxied=Globs(settings.proxy_paths),
    )
