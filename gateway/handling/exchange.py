"""One client request on its way through the gateway, and the parts that serve it."""

from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from gateway.books.metrics import Metrics
from gateway.books.record import Record
from gateway.settings import Settings
from gateway.tools.base import SearchTool
from gateway.turn import TurnRules
from gateway.upstream import Upstream


@dataclass(slots=True)
class Exchange:
    """One client request, its body read whole.

    ``body`` is what goes upstream: the client's, or with the model map and the token cap applied. ``client_model`` is
    set only where the map changed the name: the name the answer must carry. ``target`` is the origin-form with query.
    ``record`` is filled on the way and logged once by the app. Where ``send`` does
    more than the server's own does, that is ``server_send``: see :mod:`gateway.server.direct`.

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
    server_send: Send | None = None


@dataclass(frozen=True, slots=True)
class Services:
    """What lives as long as the server process."""

    settings: Settings
    upstream: Upstream
    web_search: SearchTool
    rules: TurnRules
    metrics: Metrics
