"""What a web page may ask: browsers let any page send requests to any host, and lend it any name for that host.

A gateway that asks for keys need not care: another page does not have one. Without keys, a page may ask (its requests
have an ``Origin``) if it is of this machine, of the gateway's own host, or of a listed origin; and on loopback ``Host``
must be no name of the internet, which a page's own server could have pointed here (DNS rebinding).
"""

from starlette.types import Message, Scope, Send

from gateway.errors import Forbidden
from gateway.settings import Settings
from gateway.wire.globs import Globs
from gateway.wire.headers import Headers, header
from gateway.wire.hosts import host_of, is_loopback, is_of_this_network, web_host

_KNOWN_HOSTS = 64
"""So many hosts that were found good are remembered."""

_LONGEST_SHOWN = 100

_CORS_OF_AN_ANSWER = frozenset(
    {b"access-control-allow-origin", b"access-control-allow-credentials", b"access-control-expose-headers"}
)
_ALLOWED_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
_PREFLIGHT_HOLDS_S = b"600"


class Borders:
    """Who is turned away at them, and what an answer says to the browser of who is not.

    ``answers_preflights``: the operator lists origins, and so the answer to a preflight is the gateway's to give.
    """

    def __init__(self, settings: Settings) -> None:
        self.answers_preflights = bool(settings.cors_origins)
        self._open = bool(settings.api_keys)
        self._on_loopback = is_loopback(settings.host.lower())
        self._literal_origins = frozenset(settings.cors_origins)
        self._origins = Globs(settings.cors_origins)
        self._hosts = Globs(name.lower() for name in settings.allowed_hosts)
        self._known_hosts: set[bytes] = set()

    def check_host(self, headers: Headers) -> None:
        """Raises :class:`Forbidden` for a name that somebody on the internet may have lent this machine."""
        if self._open or not self._on_loopback:
            return
        host = header(headers, b"host")
        if host is None or host in self._known_hosts:  # HTTP/1.0, which no browser speaks, may come without
            return
        name = host_of(host.decode("latin-1"))
        if not (is_of_this_network(name) or self._hosts.match(name)):
            raise Forbidden(
                f"{name[:_LONGEST_SHOWN]!r} is not known as a name of this gateway: --allowed-hosts lists its names"
            )
        if len(self._known_hosts) < _KNOWN_HOSTS:
            self._known_hosts.add(host)

    def check_origin(self, origin: bytes, headers: Headers) -> None:
        """Raises :class:`Forbidden` for a page that may not ask."""
        text = origin.decode("latin-1")
        if self._open or self._lists(text):
            return
        host = web_host(text)
        own = host_of((header(headers, b"host") or b"").decode("latin-1"))
        if host is None or not (host == own or (self._on_loopback and is_loopback(host))):
            raise Forbidden(
                f"pages of {text[:_LONGEST_SHOWN]!r} may not use this gateway: --cors-origins lists those that may"
            )

    def beyond(self, origin: bytes, scope: Scope, send: Send) -> tuple[Scope, Send]:
        """The same request, its answer marked for the page's browser; where none is listed, by upstream alone."""
        if not self.answers_preflights:
            return scope, send
        marks: Headers = [(b"vary", b"origin")]
        if self._lists(origin.decode("latin-1")):
            marks += [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", b"request-id")]

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [field for field in message["headers"] if field[0] not in _CORS_OF_AN_ANSWER]
                message = {**message, "headers": headers + marks}
            await send(message)

        # The short way to the client would go past the marks.
        return {**scope, "extensions": {}}, marked

    def _lists(self, origin: str) -> bool:
        return origin in self._literal_origins or self._origins.match(origin)


def is_preflight(scope: Scope) -> bool:
    """Whether a browser asks if it may ask (the fetch standard's CORS-preflight request)."""
    return scope["method"] == "OPTIONS" and header(scope["headers"], b"access-control-request-method") is not None


def preflight_headers(scope: Scope) -> Headers:
    """What the answer to a preflight allows, of whatever is asked for; which origin it is for is marked beside."""
    asked = header(scope["headers"], b"access-control-request-headers")
    return [
        (b"access-control-allow-methods", _ALLOWED_METHODS),
        *([] if asked is None else [(b"access-control-allow-headers", asked)]),
        (b"access-control-max-age", _PREFLIGHT_HOLDS_S),
    ]
