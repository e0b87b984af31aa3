"""From settings to a backend, and to the tool that searches it."""

from urllib.parse import urlsplit

from gateway.errors import SettingsError
from gateway.settings import Settings
from gateway.tools.base import SearchBackend
from gateway.tools.web_search.tool import WebSearch

PROVIDERS = ("ddgs", "searxng", "brave", "tavily", "exa", "you")
"""What ``--search-provider`` takes; the first is the default."""

_KEYED = frozenset(("brave", "tavily", "exa", "you"))


def make_search(settings: Settings) -> WebSearch:
    """The search tool that the settings describe. Raises :class:`gateway.errors.SettingsError`."""
    key = settings.search_api_key
    backend = make_backend(
        settings.search_provider,
        base_url=settings.search_base_url,
        api_key=key.get_secret_value() if key else None,
    )
    return WebSearch(
        backend,
        timeout_s=settings.tool_timeout_s,
        concurrency=settings.tool_concurrency,
        max_results=settings.search_max_results,
        result_max_chars=settings.tool_result_max_chars,
    )


def make_backend(provider: str, *, base_url: str | None, api_key: str | None) -> SearchBackend:
    """The backend for ``provider``; only its own module is imported, so that the gateway starts quickly.

    ``base_url`` is where the provider is asked instead (a path in it goes before the endpoint's own).
    ``api_key`` is ignored by providers that take none.

    Raises:
        SettingsError: a setting is missing or cannot be used; the message says what to type.
    """
    origin = _origin(base_url) if base_url else None
    key = _key(provider, api_key) if provider in _KEYED else ""
    match provider:
        case "ddgs":
            if origin:
                raise SettingsError(
                    "--search-base-url: ddgs has no endpoint of its own; leave it out, or choose the provider it "
                    "belongs to, as in --search-provider searxng"
                )
            from gateway.tools.web_search.ddgs import DdgsSearch

            return DdgsSearch()
        case "searxng":
            if not origin:
                raise SettingsError(
                    "--search-provider searxng needs the address of your instance: add --search-base-url "
                    "http://127.0.0.1:8888"
                )
            from gateway.tools.web_search.searxng import SearxngSearch

            return SearxngSearch(origin)
        case "brave":
            from gateway.tools.web_search.brave import BraveSearch

            return BraveSearch(key, origin)
        case "tavily":
            from gateway.tools.web_search.tavily import TavilySearch

            return TavilySearch(key, origin)
        case "exa":
            from gateway.tools.web_search.exa import ExaSearch

            return ExaSearch(key, origin)
        case "you":
            from gateway.tools.web_search.you import YouSearch

            return YouSearch(key, origin)
    raise SettingsError(f"--search-provider: {provider!r} is none of {', '.join(PROVIDERS)}")


def _origin(base_url: str) -> str:
    try:
        parts = urlsplit(base_url.strip())
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = None
    if not usable or parts.query or parts.fragment or parts.username is not None:
        raise SettingsError("--search-base-url must be an origin such as http://127.0.0.1:8888")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _key(provider: str, api_key: str | None) -> str:
    key = (api_key or "").strip()
    if not key:
        raise SettingsError(
            f"--search-provider {provider} needs a key: set GATEWAY_SEARCH_API_KEY, or use --search-provider ddgs, "
            "which needs none"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise SettingsError("GATEWAY_SEARCH_API_KEY holds characters that no key has; set it again")
    return key
