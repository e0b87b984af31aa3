"""The ddgs backend: the real library, one of its engines turned to a server of the test's."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import ddgs.ddgs as library
import pytest
from ddgs.engines import ENGINES
from ddgs.engines.mojeek import Mojeek
from ddgs.exceptions import DDGSException, RatelimitException

from gateway.tools.web_search import WebSearch, ddgs
from gateway.turn.web_search import NO_RESULTS, SearchCall, SearchOutcome, SearchResult, UserLocation

pytestmark = pytest.mark.anyio

RESULTS = b"""<html><body><ul class="results-standard">
<li><h2><a href="https://blog.rust-lang.org/1.90">Announcing Rust 1.90</a></h2>
<p class="s">The Rust team is happy.</p></li>
<li><h2><a href="https://releases.rs/">Rust releases</a></h2><p class="s">All of them.</p></li>
</ul></body></html>"""
NOTHING = b"<html><body><p>No pages found</p></body></html>"


class Engine(ThreadingHTTPServer):
    """A search engine on a free port. ``gate`` holds its answers back, ``asked`` is set by the first question."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.body = 200, RESULTS
        self.gate, self.asked = threading.Event(), threading.Event()
        self.gate.set()
        self.queries: list[dict[str, list[str]]] = []
        self.cookies: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/search"


class _Handler(BaseHTTPRequestHandler):
    server: Engine

    def do_GET(self) -> None:
        self.server.queries.append(parse_qs(urlsplit(self.path).query))
        self.server.asked.set()
        self.server.gate.wait(10)
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    for variable in ("DDGS_PROXY", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
    server = Engine()
    monkeypatch.setattr(Mojeek, "search_url", server.url)
    monkeypatch.setitem(ENGINES, "text", {"mojeek": Mojeek})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.gate.set()
    server.shutdown()
    server.server_close()
    thread.join()


async def run(call: SearchCall) -> SearchOutcome:
    tool = WebSearch(ddgs.DdgsSearch(), timeout_s=60, concurrency=16, max_results=8, result_max_chars=20_000)
    try:
        return await tool.run(call)
    finally:
        await tool.aclose()


def unavailable(outcome: SearchOutcome) -> str:
    assert outcome.error == "unavailable"
    return outcome.text


async def test_pages_become_results(engine: Engine) -> None:
    outcome = await run(SearchCall("rust"))
    assert outcome.error is None
    assert outcome.results == (
        SearchResult("Announcing Rust 1.90", "https://blog.rust-lang.org/1.90", "The Rust team is happy."),
        SearchResult("Rust releases", "https://releases.rs/", "All of them."),
    )
    assert engine.queries == [{"q": ["rust"]}]


async def test_domains_become_site_operators_and_are_enforced(engine: Engine) -> None:
    outcome = await run(SearchCall("rust", allowed_domains=("rust-lang.org",)))
    assert [result.url for result in outcome.results] == ["https://blog.rust-lang.org/1.90"]
    assert engine.queries == [{"q": ["rust site:rust-lang.org"]}]


async def test_nothing_found_is_no_failure(engine: Engine) -> None:
    engine.body = NOTHING
    assert await run(SearchCall("rust")) == SearchOutcome(text=NO_RESULTS)


async def test_an_engine_that_cannot_be_reached(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.server_close()
    text = unavailable(await run(SearchCall("rust")))
    assert "The ddgs search could not be reached" in text
    assert "127.0.0.1" not in text


async def test_an_engine_that_does_not_answer(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddgs, "ENGINE_TIMEOUT_S", 0.1)
    engine.gate.clear()
    assert "did not answer in time" in unavailable(await run(SearchCall("rust")))


async def test_a_page_the_library_cannot_read(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(self: Mojeek, html_text: str) -> None:
        raise DDGSException("no such element")

    monkeypatch.setattr(Mojeek, "extract_results", unreadable)
    assert "cannot be read" in unavailable(await run(SearchCall("rust")))


async def test_a_rate_limit_the_library_names(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def limited(self: library.DDGS, query: str, **kwargs: Any) -> None:
        raise RatelimitException("202")

    monkeypatch.setattr(library.DDGS, "text", limited)
    outcome = await run(SearchCall("rust"))
    assert outcome.error == "too_many_requests"
    assert "getting too many requests" in outcome.text


@pytest.mark.parametrize(
    ("country", "region"), [("DE", "de-de"), ("GB", "uk-en"), ("Germany", "us-en"), (None, "us-en")]
)
async def test_the_country_chooses_the_region(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, country: str | None, region: str
) -> None:
    regions: list[str] = []
    build = Mojeek.build_payload

    def seen(self: Mojeek, query: str, region: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        regions.append(region)
        return build(self, query, region, *args, **kwargs)

    monkeypatch.setattr(Mojeek, "build_payload", seen)
    await run(SearchCall("rust", user_location=UserLocation(country=country)))
    assert regions == [region]


async def test_a_call_is_let_go_while_its_thread_blocks_and_the_slot_stays_taken(engine: Engine) -> None:
    engine.gate.clear()
    tool = WebSearch(ddgs.DdgsSearch(), timeout_s=60, concurrency=1, max_results=8, result_max_chars=20_000)
    left = asyncio.create_task(tool.run(SearchCall("left")))
    await asyncio.to_thread(engine.asked.wait)
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    following = asyncio.create_task(tool.run(SearchCall("following")))
    await asyncio.sleep(0.05)
    assert engine.queries == [{"q": ["left"]}]
    engine.gate.set()
    assert (await following).error is None
    assert engine.queries == [{"q": ["left"]}, {"q": ["following"]}]
    await tool.aclose()


async def test_the_query_is_not_logged_at_any_level(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await run(SearchCall("confidential"))
    engine.server_close()
    await run(SearchCall("confidential"))
    assert "confidential" not in caplog.text
