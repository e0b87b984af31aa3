"""From settings to a backend, and what is said where a setting is missing."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.errors import SettingsError
from gateway.settings import Settings, load
from gateway.tools import web_search
from gateway.tools.search_providers import DEFAULT_PROVIDER, PROVIDERS, Address, Provider
from gateway.tools.web_search import make_backend, make_search
from gateway.tools.web_search.http import HttpSearch
from gateway.turn.web_search import SearchCall
from tests.support.upstream import ScriptedUpstream, json_answer

pytestmark = pytest.mark.anyio

ENDPOINTS = {
    "brave": "https://api.search.brave.com/res/v1/web/search",
    "tavily": "https://api.tavily.com/search",
    "exa": "https://api.exa.ai/search",
    "you": "https://ydc-index.io/v1/search",
}


def test_the_first_provider_is_the_default_and_needs_nothing() -> None:
    assert make_backend(DEFAULT_PROVIDER, base_url=None, api_key=None).name == "ddgs"
    assert Settings().search_provider == "ddgs"


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_every_provider_can_be_made(provider: str) -> None:
    base_url = "http://127.0.0.1:8888" if provider == "searxng" else None
    backend = make_backend(provider, base_url=base_url, api_key="key")
    assert backend.name == provider
    await backend.aclose()


@pytest.mark.parametrize(("provider", "endpoint"), ENDPOINTS.items())
async def test_a_base_url_replaces_the_origin_and_keeps_the_path(provider: str, endpoint: str) -> None:
    own = make_backend(provider, base_url=None, api_key="key")
    given = load({"search_base_url": "http://127.0.0.1:1234/"}).search_base_url
    moved = make_backend(provider, base_url=given, api_key="key")
    assert isinstance(own, HttpSearch)
    assert isinstance(moved, HttpSearch)
    assert own.url == endpoint
    assert moved.url == "http://127.0.0.1:1234" + urlsplit(endpoint).path
    await own.aclose()
    await moved.aclose()


@pytest.mark.parametrize(
    ("provider", "endpoint"), [("searxng", "/search"), ("brave", "/res/v1/web/search"), ("you", "/v1/search")]
)
@pytest.mark.parametrize("base_url", ["https://example.org/searx", "https://example.org/searx/"])
async def test_an_instance_below_a_path_is_found_there(provider: str, endpoint: str, base_url: str) -> None:
    given = load({"search_base_url": base_url}).search_base_url
    backend = make_backend(provider, base_url=given, api_key="key")
    assert isinstance(backend, HttpSearch)
    assert backend.url == "https://example.org/searx" + endpoint
    await backend.aclose()


async def test_a_search_below_a_path_asks_there() -> None:
    async with ScriptedUpstream(json_answer({"results": []})) as instance:
        tool = make_search(load({"search_provider": "searxng", "search_base_url": f"{instance.origin}/searx"}))
        await tool.run(SearchCall("rust"))
        await tool.aclose()
    assert [request.target.partition("?")[0] for request in instance.requests] == ["/searx/search"]


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
    [
        *("127.0.0.1:8888", "ftp://example.org", "http://", "http://a:99999", "http://a:0", "http://["),
        *("http://a/?q=1", "http://a/searx#top", "http://me:pw@a", "http://a/se arx"),
    ],
)
def test_a_base_url_that_is_none_is_refused(base_url: str) -> None:
    with pytest.raises(SettingsError, match=r"^--search-base-url: .*as in http://127\.0\.0\.1:8888$") as refused:
        load({"search_base_url": base_url})
    assert "pw" not in str(refused.value)


def test_an_unknown_provider_is_told_the_known_ones() -> None:
    known = "'ddgs', 'searxng', 'brave', 'tavily', 'exa', 'you'"
    with pytest.raises(SettingsError, match=f"^--search-provider: 'bing' is none of {known}$"):
        load({"search_provider": "bing"})


def test_a_backend_is_one_file_and_one_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A provider of somebody's own, as the next one would be added: settings and factory know it by its row."""
    (tmp_path / "attic.py").write_text(ATTIC)
    monkeypatch.setattr(web_search, "__path__", [*web_search.__path__, str(tmp_path)])
    monkeypatch.setitem(PROVIDERS, "attic", Provider("attic:AtticSearch", needs_key=True, address=Address.REQUIRED))
    with pytest.raises(SettingsError, match="--search-provider attic needs a key"):
        make_search(load({"search_provider": "attic"}))
    with pytest.raises(SettingsError, match="--search-provider attic needs the address of your instance"):
        make_search(load({"search_provider": "attic", "search_api_key": "k"}))
    backend = make_backend("attic", base_url="http://127.0.0.1:1/x", api_key="k")
    assert (backend.name, backend.label) == ("attic", "The attic at http://127.0.0.1:1/x, with k")


ATTIC = """
from gateway.tools.canned import CannedSearch

class AtticSearch(CannedSearch):
    name = "attic"

    def __init__(self, api_key, origin):
        super().__init__()
        self.label = f"The attic at {origin}, with {api_key}"
"""
