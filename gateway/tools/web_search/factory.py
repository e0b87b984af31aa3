"""From settings to a backend, and to the tool that searches it."""

from collections.abc import Callable
from pkgutil import resolve_name

from gateway.errors import SettingsError
from gateway.settings import Settings
from gateway.tools.base import SearchBackend
from gateway.tools.search_providers import DEFAULT_PROVIDER, PROVIDERS, Address
from gateway.tools.web_search.tool import WebSearch


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
    """The backend for ``provider``, a name in the table; only its own module is imported.

    ``base_url`` is what the settings hold (:class:`gateway.settings.Settings`): where the provider is asked instead. A
    path in it goes before the endpoint's own. ``api_key`` is ignored by providers that take none.

    Raises:
        SettingsError: a setting is missing or cannot be used; the message says what to type.
    """
    row = PROVIDERS[provider]
    given: dict[str, str | None] = {}
    if row.needs_key:
        given["api_key"] = _key(provider, api_key)
    if row.address is not Address.NONE:
        given["origin"] = base_url
    elif base_url:
        raise SettingsError(
            f"--search-base-url: {provider} has no endpoint of its own; leave it out, or choose the provider it "
            "belongs to, as in --search-provider searxng"
        )
    if row.address is Address.REQUIRED and not base_url:
        raise SettingsError(
            f"--search-provider {provider} needs the address of your instance: add --search-base-url "
            "http://127.0.0.1:8888"
        )
    backend: Callable[..., SearchBackend] = resolve_name(f"{__package__}.{row.backend}")
    return backend(**given)


def _key(provider: str, api_key: str | None) -> str:
    key = (api_key or "").strip()
    if not key:
        raise SettingsError(
            f"--search-provider {provider} needs a key: set GATEWAY_SEARCH_API_KEY, or use --search-provider "
            f"{DEFAULT_PROVIDER}, which needs none"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise SettingsError("GATEWAY_SEARCH_API_KEY holds characters that no key has; set it again")
    return key
