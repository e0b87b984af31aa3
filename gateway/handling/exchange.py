"""One client request on its way through the gateway, and the parts that serve it."""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from gateway.books.ledger import Ledger
from gateway.books.metrics import Metrics
from gateway.books.observer import Observers
from gateway.books.record import Record
from gateway.handling.memory import Memory
from gateway.handling.turnstile import Turnstile
from gateway.model_server import ModelRules, ModelServer
from gateway.settings import Settings
from gateway.tools.runner import AnyRunner
from gateway.turn import TurnRules
from gateway.wire.globs import Globs
from gateway.wire.rewrite import ModelMap


@dataclass(slots=True)
class Exchange:
    """One client request, its body read whole.

    ``body`` is what goes upstream: the client's, or with the model map and the token cap applied. ``client_model`` is
    set only where the map changed the name: the name the answer must carry. ``target`` is the origin-form with query.
    ``record`` is filled on the way and logged once by the app.

    The app watches ``receive`` itself: when the client goes, the task that serves the exchange is cancelled, so a
    handler only has to let go of what it holds (``finally``) and leaves ``record.outcome`` alone.
    """

    scope: Scope
    receive: Receive
    send: Send
    body: bytes
    target: str
    record: Record
    client_model: str | None = None


@dataclass(frozen=True, slots=True)
class Services:
    """What lives as long as the server process. ``runners`` are of the kinds of tool, by their names."""

    settings: Settings
    upstream: ModelServer
    runners: Mapping[str, AnyRunner]
    rules: TurnRules
    metrics: Metrics
    ledger: Ledger
    observers: Observers
    names: ModelMap
    model_rules: ModelRules
    turnstile: Turnstile
    memory: Memory
    proxied: Globs
    """The paths that pass on."""

    async def aclose(self) -> None:
        """Close what reaches out."""
        for runner in self.runners.values():
            await runner.aclose()
        await self.upstream.aclose()
