"""From settings to a backend, and what is said where a setting is missing."""

from urllib.parse import urlsplit

import pytest

from gateway.errors import SettingsError
from gateway.tools.web_search import PROVIDERS, make_backend
from gateway.tools.web_search.http import HttpSearch

pytestmark = pytest.mark.anyio

ENDPOINTS = {
    "brave": "https://api.search.brave.com/res/v1/web/search",
    "tavily": "https://api.tavily.com/search",
    "exa": "https://api.exa.ai/search",
    "you": "https://ydc-index.io/v1/search",
}


def test_the_first_provider_is_the_default_and_needs_nothing() -> None:
    assert make_backend(PROVIDERS[0], base_url=None, api_key=None).name == "ddgs"


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_every_provider_can_be_made(provider: str) -> None:
    base_url = "http://127.0.0.1:8888" if provider == "searxng" else None
    backend = make_backend(provider, base_url=base_url, api_key="key")
    assert backend.name == provider
    await backend.aclose()


@pytest.mark.parametrize(("provider", "endpoint"), ENDPOINTS.items())
async def test_a_base_url_replaces_the_origin_and_keeps_the_path(provider: str, endpoint: str) -> None:
    own = make_backend(provider, base_url=None, api_key="key")
    moved = make_backend(provider, base_url="http://127.0.0.1:1234/", api_key="key")
    assert isinstance(own, HttpSearch)
    assert isinstance(moved, HttpSearch)
    assert own.url == endpoint
    assert moved.url == "http://127.0.0.1:1234" + urlsplit(endpoint).path
    await own.aclose()
    await moved.aclose()


async def test_a_searxng_below_a_path_is_found_there() -> None:
    backend = make_backend("searxng", base_url="https://example.org/searxng/", api_key=None)
    assert isinstance(backend, HttpSearch)
    assert backend.url == "https://example.org/searxng/search"
    await backend.aclose()


@pytest.mark.parametrize("provider", ENDPOINTS)
@pytest.mark.parametrize("api_key", [None, "", "  "])
def test_a_missing_key_says_what_to_set(provider: str, api_key: str | None) -> None:
    with pytest.raises(SettingsError, match=f"--search-provider {provider} needs a key: set GATEWAY_SEARCH_API_KEY"):
        make_backend(provider, base_url=None, api_key=api_key)


@pytest.mark.parametrize("api_key", ["schlüssel", "two words", "line\nbreak"])
def test_a_key_no_header_can_hold_is_refused_without_being_shown(api_key: str) -> None:
    with pytest.raises(SettingsError, match="GATEWAY_SEARCH_API_KEY") as refused:
        make_backend("brave", base_url=None, api_key=api_key)
    assert api_key not in str(refused.value)


async def test_white_space_around_a_key_is_no_part_of_it() -> None:
    backend = make_backend("brave", base_url=None, api_key=" key\n")
    assert isinstance(backend, HttpSearch)
    assert backend.client.headers["x-subscription-token"] == "key"
    await backend.aclose()


def test_searxng_without_an_address_says_what_to_type() -> None:
    with pytest.raises(SettingsError, match=r"add --search-base-url http://127\.0\.0\.1:8888"):
        make_backend("searxng", base_url=None, api_key=None)


def test_ddgs_has_no_address_to_replace() -> None:
    with pytest.raises(SettingsError, match="--search-base-url: ddgs has no endpoint"):
        make_backend("ddgs", base_url="http://127.0.0.1:8888", api_key=None)


@pytest.mark.parametrize(
    "base_url",
    ["127.0.0.1:8888", "ftp://example.org", "http://", "http://a:99999", "http://a/?q=1", "http://me:pw@a", "http://["],
)
def test_a_base_url_that_is_no_origin_is_refused(base_url: str) -> None:
    with pytest.raises(SettingsError, match="--search-base-url must be an origin such as"):
        make_backend("searxng", base_url=base_url, api_key=None)


def test_an_unknown_provider_is_told_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="'bing' is none of ddgs, searxng, brave, tavily, exa, you"):
        make_backend("bing", base_url=None, api_key=None)
