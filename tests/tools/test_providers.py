"""The HTTP providers: what each is asked, what its answers become, and every failure of every one of them."""

import asyncio
import gzip
import json
import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import respx

from gateway.tools.base import SearchBackend
from gateway.tools.web_search import WebSearch, http, make_backend
from gateway.turn.web_search import NO_RESULTS, SearchCall, SearchOutcome, SearchResult, UserLocation
from tests.support.upstream import ScriptedUpstream, json_answer

pytestmark = pytest.mark.anyio

KEY = "tvly-3f9d-top-secret"


@pytest.fixture(autouse=True)
def connections_that_respx_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers in the stead of httpx's own connections (those of the gateway: test_transport)."""
    monkeypatch.setattr(http, "transport_to", lambda *_, **__: None)


@dataclass(frozen=True)
class Case:
    """A provider, one answer of its documented shape, and the results that answer holds."""

    name: str
    label: str
    endpoint: str
    method: str
    answer: dict[str, Any]
    empty: dict[str, Any]
    results: tuple[SearchResult, ...]
    key_header: tuple[str, str] | None
    refusals: dict[str, tuple[int, object]] = field(default_factory=dict)

    def backend(self) -> SearchBackend:
        base_url = "http://searx.internal:8888" if self.name == "searxng" else None
        return make_backend(self.name, base_url=base_url, api_key=KEY)


BRAVE = Case(
    name="brave",
    label="Brave Search",
    endpoint="https://api.search.brave.com/res/v1/web/search",
    method="GET",
    answer={
        "type": "search",
        "query": {"original": "rust", "more_results_available": True},
        "web": {
            "type": "search",
            "results": [
                {
                    "title": "Announcing Rust 1.90",
                    "url": "https://blog.rust-lang.org/1.90",
                    "description": "The Rust team is <strong>happy</strong> &amp; proud.",
                    "page_age": "2025-09-18T00:00:00",
                    "age": "September 18, 2025",
                    "profile": {"name": "Rust Blog", "img": "https://imgs.search.brave.com/x"},
                },
                {"title": "Releases", "url": "https://releases.rs/", "description": None, "age": "2 days ago"},
            ],
        },
    },
    empty={"type": "search", "query": {"original": "rust"}},
    results=(
        SearchResult(
            "Announcing Rust 1.90",
            "https://blog.rust-lang.org/1.90",
            "The Rust team is happy & proud.",
            "2025-09-18T00:00:00",
        ),
        SearchResult("Releases", "https://releases.rs/", "", "2 days ago"),
    ),
    key_header=("x-subscription-token", KEY),
    refusals={
        "key": (
            422,
            {"type": "ErrorResponse", "error": {"code": "SUBSCRIPTION_TOKEN_INVALID", "status": 422}, "time": 1},
        ),
        "quota": (429, {"type": "ErrorResponse", "error": {"code": "QUOTA_LIMITED", "status": 429}, "time": 1}),
        "rate": (429, {"type": "ErrorResponse", "error": {"code": "RATE_LIMITED", "status": 429}, "time": 1}),
        "not accepted": (422, {"type": "ErrorResponse", "error": {"code": "VALIDATION", "status": 422}, "time": 1}),
    },
)
TAVILY = Case(
    name="tavily",
    label="Tavily",
    endpoint="https://api.tavily.com/search",
    method="POST",
    answer={
        "query": "rust",
        "answer": None,
        "images": [],
        "results": [
            {
                "title": "Announcing Rust 1.90",
                "url": "https://blog.rust-lang.org/1.90",
                "content": "The Rust team is happy.",
                "score": 0.98,
                "raw_content": None,
                "published_date": "Thu, 18 Sep 2025 00:00:00 GMT",
            }
        ],
        "response_time": 1.1,
    },
    empty={"query": "rust", "results": [], "response_time": 0.2},
    results=(
        SearchResult(
            "Announcing Rust 1.90",
            "https://blog.rust-lang.org/1.90",
            "The Rust team is happy.",
            "Thu, 18 Sep 2025 00:00:00 GMT",
        ),
    ),
    key_header=("authorization", f"Bearer {KEY}"),
    refusals={
        "key": (401, {"detail": {"error": "Unauthorized: missing or invalid API key."}}),
        "quota": (432, {"detail": {"error": "This request exceeds your plan's set usage limit."}}),
        "pay-as-you-go": (433, {"detail": {"error": "This request exceeds the pay-as-you-go limit."}}),
        "rate": (429, {"detail": {"error": "Your request has been blocked due to excessive requests."}}),
        "not accepted": (400, {"detail": {"error": "Query is too long."}}),
    },
)
EXA = Case(
    name="exa",
    label="Exa",
    endpoint="https://api.exa.ai/search",
    method="POST",
    answer={
        "requestId": "b5947044c4b78efa9552a7c89b306d95",
        "resolvedSearchType": "neural",
        "results": [
            {
                "id": "https://blog.rust-lang.org/1.90",
                "title": "Announcing Rust 1.90",
                "url": "https://blog.rust-lang.org/1.90",
                "publishedDate": "2025-09-18T00:00:00.000Z",
                "author": None,
                "highlights": ["The Rust team", "is happy"],
                "highlightScores": [0.5, 0.4],
            },
            {"id": "x", "title": None, "url": "https://releases.rs/", "highlights": []},
        ],
        "costDollars": {"total": 0.005},
    },
    empty={"requestId": "x", "results": []},
    results=(
        SearchResult(
            "Announcing Rust 1.90",
            "https://blog.rust-lang.org/1.90",
            "The Rust team … is happy",
            "2025-09-18T00:00:00.000Z",
        ),
        SearchResult("https://releases.rs/", "https://releases.rs/", "", None),
    ),
    key_header=("x-api-key", KEY),
    refusals={
        "key": (401, {"requestId": "x", "error": "Invalid API key", "tag": "INVALID_API_KEY"}),
        "quota": (402, {"requestId": "x", "error": "You have no more credits", "tag": "NO_MORE_CREDITS"}),
        "rate": (429, {"error": "You've exceeded your Exa rate limit"}),
        "not accepted": (400, {"requestId": "x", "error": "Invalid request body", "tag": "INVALID_REQUEST_BODY"}),
    },
)
YOU = Case(
    name="you",
    label="You.com",
    endpoint="https://ydc-index.io/v1/search",
    method="POST",
    answer={
        "results": {
            "web": [
                {
                    "url": "https://blog.rust-lang.org/1.90",
                    "title": "Announcing Rust 1.90",
                    "description": "A release.",
                    "snippets": ["The Rust team", "is happy"],
                    "thumbnail_url": "https://example.com/t.png",
                    "page_age": "2025-09-18T00:00:00",
                },
                {"url": "https://releases.rs/", "title": "Releases", "description": "All of them."},
            ],
            "news": [{"url": "https://news.example.com/rust", "title": "Rust news", "description": "New."}],
        },
        "metadata": {"query": "rust", "search_uuid": "x", "latency": 0.2},
    },
    empty={"results": {}, "metadata": {"query": "rust"}},
    results=(
        SearchResult(
            "Announcing Rust 1.90", "https://blog.rust-lang.org/1.90", "The Rust team … is happy", "2025-09-18T00:00:00"
        ),
        SearchResult("Releases", "https://releases.rs/", "All of them.", None),
        SearchResult("Rust news", "https://news.example.com/rust", "New.", None),
    ),
    key_header=("x-api-key", KEY),
    refusals={
        "key": (401, {"detail": "Invalid or expired API key"}),
        "quota": (402, {"detail": "Insufficient credits"}),
        "rate": (429, {"detail": "Too many requests"}),
        "not accepted": (422, {"detail": [{"loc": ["body", "count"], "msg": "too big"}]}),
    },
)
SEARXNG = Case(
    name="searxng",
    label="SearXNG",
    endpoint="http://searx.internal:8888/search",
    method="GET",
    answer={
        "query": "rust",
        "number_of_results": 0,
        "results": [
            {
                "template": "default.html",
                "url": "https://blog.rust-lang.org/1.90",
                "title": "Announcing Rust 1.90",
                "content": "The Rust team is happy.",
                "publishedDate": "2025-09-18T00:00:00",
                "engine": "brave",
                "engines": ["brave"],
                "score": 1.0,
                "category": "general",
            },
            {"url": "https://releases.rs/", "title": "Releases", "content": "", "publishedDate": None},
        ],
        "answers": [],
        "infoboxes": [],
        "suggestions": [],
        "unresponsive_engines": [["google", "timeout"]],
    },
    empty={"query": "rust", "results": [], "unresponsive_engines": []},
    results=(
        SearchResult(
            "Announcing Rust 1.90", "https://blog.rust-lang.org/1.90", "The Rust team is happy.", "2025-09-18T00:00:00"
        ),
        SearchResult("Releases", "https://releases.rs/", "", None),
    ),
    key_header=None,
    refusals={
        "rate": (429, "Too Many Requests"),
        "not accepted": (400, "No query"),
        "format": (403, "<!doctype html><title>403 Forbidden</title>"),
    },
)
CASES = (BRAVE, TAVILY, EXA, YOU, SEARXNG)
every_provider = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)

SENTENCES = {
    "key": ("unavailable", "rejected the API key"),
    "quota": ("unavailable", "is used up"),
    "pay-as-you-go": ("unavailable", "is used up"),
    "rate": ("too_many_requests", "is getting too many requests. Try again in a while"),
    "not accepted": ("unavailable", "did not accept this search"),
    "format": ("unavailable", "adds json to search.formats"),
    "too large": ("request_too_large", "too large"),
    "broken": ("unavailable", "failed on its side (HTTP 503)"),
    "redirect": ("unavailable", "failed on its side (HTTP 302)"),
    "unreadable": ("unavailable", "cannot be read"),
    "timeout": ("unavailable", "did not answer in time"),
    "unreachable": ("unavailable", "could not be reached"),
}


async def run(case: Case, call: SearchCall | None = None, *, max_results: int = 8) -> SearchOutcome:
    """One search with the provider, through the whole tool."""
    tool = WebSearch(case.backend(), timeout_s=60, concurrency=16, max_results=max_results, result_max_chars=20_000)
    try:
        return await tool.run(call or SearchCall("rust"))
    finally:
        await tool.aclose()


def answering(mock: respx.MockRouter, case: Case, *args: Any, **kwargs: Any) -> respx.Route:
    """Answer the provider's endpoint; anything else the backend might ask fails the test."""
    return mock.route(method=case.method, url__startswith=case.endpoint).respond(*args, **kwargs)


async def asked(case: Case, call: SearchCall, *, max_results: int = 8) -> dict[str, Any]:
    """The parameters the provider gets: of the query string, or of the JSON body."""
    with respx.mock() as mock:
        route = answering(mock, case, json=case.answer)
        await run(case, call, max_results=max_results)
    request = route.calls.last.request
    if case.method == "POST":
        body = json.loads(request.content)
        assert isinstance(body, dict)
        return body
    return {name: values[0] for name, values in parse_qs(urlsplit(str(request.url)).query).items()}


def check(outcome: SearchOutcome, case: Case, kind: str) -> None:
    """A failure's code and sentence, and that they give nothing away."""
    code, sentence = SENTENCES[kind]
    assert (outcome.error, outcome.results) == (code, ())
    assert sentence in outcome.text
    assert case.label in outcome.text
    assert KEY not in outcome.text
    assert urlsplit(case.endpoint).netloc not in outcome.text


@every_provider
async def test_an_answer_becomes_results(case: Case) -> None:
    with respx.mock() as mock:
        answering(mock, case, json=case.answer)
        outcome = await run(case)
    assert outcome.error is None
    assert outcome.results == case.results
    assert outcome.text.startswith("1. Announcing Rust 1.90\nhttps://blog.rust-lang.org/1.90\n")


@every_provider
async def test_an_empty_answer_is_no_failure(case: Case) -> None:
    with respx.mock() as mock:
        answering(mock, case, json=case.empty)
        assert await run(case) == SearchOutcome(text=NO_RESULTS)


@every_provider
async def test_the_key_goes_in_its_own_header_and_nowhere_else(case: Case) -> None:
    with respx.mock() as mock:
        route = answering(mock, case, json=case.answer)
        await run(case)
    request = route.calls.last.request
    holding = [(name, value) for name, value in request.headers.items() if KEY in value]
    assert holding == ([case.key_header] if case.key_header else [])
    assert KEY not in str(request.url)
    assert KEY.encode() not in request.content


@pytest.mark.parametrize(
    ("case", "kind"),
    [(case, kind) for case in CASES for kind in case.refusals],
    ids=lambda part: getattr(part, "name", part),
)
async def test_a_refusal_says_why_and_is_not_tried_again(case: Case, kind: str) -> None:
    status, body = case.refusals[kind]
    with respx.mock() as mock:
        route = answering(mock, case, status, json=body)
        outcome = await run(case)
    check(outcome, case, kind)
    assert route.call_count == 1


@every_provider
@pytest.mark.parametrize(("kind", "status"), [("too large", 413), ("broken", 503)])
async def test_other_statuses_are_not_tried_again(case: Case, kind: str, status: int) -> None:
    with respx.mock() as mock:
        route = answering(mock, case, status, text="<html>no</html>")
        outcome = await run(case)
    check(outcome, case, kind)
    assert route.call_count == 1


@every_provider
async def test_a_redirect_is_not_followed(case: Case) -> None:
    with respx.mock() as mock:
        route = answering(mock, case, 302, headers={"location": "http://169.254.169.254/latest/meta-data"})
        outcome = await run(case)
    check(outcome, case, "redirect")
    assert route.call_count == 1


@every_provider
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>busy</html>",
        b'{"results": [',
        b"[]",
        b"null",
        b'{"web": 1, "results": 1}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=["empty", "html", "cut", "list", "null", "wrong type", "not utf-8", "deep"],
)
async def test_an_answer_that_is_none_cannot_be_read(case: Case, body: bytes) -> None:
    with respx.mock() as mock:
        route = answering(mock, case, content=body)
        outcome = await run(case)
    check(outcome, case, "unreadable")
    assert route.call_count == 1


@every_provider
async def test_an_answer_without_end_is_not_read_to_it(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ANSWER_MAX_BYTES", 100)
    with respx.mock() as mock:
        answering(mock, case, json=case.answer)
        outcome = await run(case)
    check(outcome, case, "unreadable")


BOMB = gzip.compress(b" " * 9_000_000)
PACKED = {
    "none": ("gzip", b"{}"),
    "a part": ("gzip", gzip.compress(b"{}")[:-4]),
    "a bomb": ("gzip", BOMB),
    "a bomb in a bomb": ("gzip, gzip", gzip.compress(BOMB)),
    "two codings": ("gzip, gzip", gzip.compress(gzip.compress(b"{}"))),
    "another coding": ("br", b"{}"),
}


@every_provider
@pytest.mark.parametrize("coding", PACKED)
async def test_an_answer_that_does_not_unpack_to_one_cannot_be_read(case: Case, coding: str) -> None:
    encoding, body = PACKED[coding]
    async with ScriptedUpstream(json_answer(body, headers=[("content-encoding", encoding)])) as provider:
        tool = WebSearch(
            make_backend(case.name, base_url=provider.origin, api_key=KEY),
            timeout_s=60,
            concurrency=16,
            max_results=8,
            result_max_chars=20_000,
        )
        outcome = await tool.run(SearchCall("rust"))
        await tool.aclose()
    check(outcome, case, "unreadable")
    assert len(provider.requests) == 1
    assert provider.requests[0].header(b"accept-encoding") == b"gzip"


HITS = {"brave": "web.results", "tavily": "results", "exa": "results", "you": "results.web", "searxng": "results"}


def with_hits(case: Case, hits: list[Any]) -> bytes:
    """The provider's answer with these results in place of its own."""
    answer: Any = hits
    for name in reversed(HITS[case.name].split(".")):
        answer = {name: answer}
    return json.dumps(answer).encode()


GOOD = {"title": "Rust", "url": "https://rust-lang.org/"}
RUST = SearchResult("Rust", "https://rust-lang.org/", "")


@every_provider
@pytest.mark.parametrize(
    "odd", [5, None, [], "x", {}, {"title": "no address"}, {**GOOD, "url": 5}, {"url": ["x"]}], ids=repr
)
async def test_a_hit_that_is_none_does_not_hide_the_others(case: Case, odd: Any) -> None:
    with respx.mock() as mock:
        answering(mock, case, content=with_hits(case, [odd, GOOD, odd]))
        outcome = await run(case)
    assert (outcome.error, outcome.results) == (None, (RUST,))


@every_provider
@pytest.mark.parametrize("odd", [5, None, ["x"], {}], ids=repr)
async def test_of_a_hit_is_shown_what_can_be_read(case: Case, odd: Any) -> None:
    texts = ("title", "description", "content", "page_age", "age", "published_date", "publishedDate")
    hit = {**dict.fromkeys((*texts, "highlights", "snippets"), odd), "url": "https://rust-lang.org/"}
    if odd == ["x"]:
        hit |= {"highlights": [odd, 5], "snippets": [odd, 5]}
    with respx.mock() as mock:
        answering(mock, case, content=with_hits(case, [hit, GOOD]))
        outcome = await run(case)
    assert (outcome.error, outcome.results) == (None, (SearchResult(RUST.url, RUST.url, ""),))


@every_provider
async def test_half_a_character_is_shown_as_one(case: Case) -> None:
    with respx.mock() as mock:
        answering(mock, case, content=with_hits(case, [{**GOOD, "title": "Rust \ud83e and \ud83e\udd80"}]))
        outcome = await run(case)
    assert outcome.results == (SearchResult("Rust \ufffd and 🦀", RUST.url, ""),)


@every_provider
async def test_hits_of_which_none_can_be_read_are_no_empty_search(case: Case) -> None:
    with respx.mock() as mock:
        answering(mock, case, content=with_hits(case, [5, "x"]))
        outcome = await run(case)
    check(outcome, case, "unreadable")


@every_provider
async def test_a_connection_too_slow_to_come_up_is_a_timeout(case: Case) -> None:
    with respx.mock() as mock:
        route = mock.route(url__startswith=case.endpoint).mock(side_effect=httpx.ConnectTimeout)
        outcome = await run(case)
    check(outcome, case, "timeout")
    assert route.call_count == 1


@every_provider
@pytest.mark.parametrize("failure", [httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError])
async def test_a_failed_connection_is_tried_twice(case: Case, failure: type[httpx.TransportError]) -> None:
    with respx.mock() as mock:
        route = mock.route(url__startswith=case.endpoint).mock(side_effect=failure(f"at {case.endpoint}"))
        outcome = await run(case)
    check(outcome, case, "unreachable")
    assert route.call_count == 2


@every_provider
async def test_the_second_connection_may_work(case: Case) -> None:
    with respx.mock() as mock:
        mock.route(url__startswith=case.endpoint).mock(
            side_effect=[httpx.ConnectError("refused"), httpx.Response(200, json=case.answer)]
        )
        assert (await run(case)).results == case.results


@every_provider
@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({"retry-after": "7"}, "Try again in 7 seconds,"),
        ({"retry-after": "1"}, "Try again in 1 second,"),
        ({"retry-after": "0"}, "Try again in 1 second,"),
        ({"retry-after": "600"}, "Try again in 10 minutes,"),
        ({"retry-after": "soon"}, "Try again in a while,"),
        ({}, "Try again in a while,"),
    ],
)
async def test_a_rate_limit_says_when_to_try_again(case: Case, headers: dict[str, str], words: str) -> None:
    with respx.mock() as mock:
        answering(mock, case, 429, headers=headers)
        outcome = await run(case)
    assert outcome.error == "too_many_requests"
    assert words in outcome.text


async def test_a_retry_after_may_be_a_date() -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(minutes=30), usegmt=True)
    with respx.mock() as mock:
        answering(mock, TAVILY, 429, headers={"retry-after": when})
        outcome = await run(TAVILY)
    assert "Try again in 30 minutes," in outcome.text


async def test_brave_tells_the_wait_in_a_header_of_its_own() -> None:
    with respx.mock() as mock:
        answering(mock, BRAVE, 429, headers={"x-ratelimit-reset": "3, 1419704"})
        outcome = await run(BRAVE)
    assert "Try again in 3 seconds," in outcome.text


async def test_searxng_whose_engines_are_silent_has_not_searched() -> None:
    silent = {"query": "rust", "results": [], "unresponsive_engines": [["google", "Suspended: too many requests"]]}
    with respx.mock() as mock:
        answering(mock, SEARXNG, json=silent)
        outcome = await run(SEARXNG)
    assert outcome.error == "unavailable"
    assert "did not answer" in outcome.text


PARIS = UserLocation(city="Paris", region="Île-de-France", country="fr", timezone="Europe/Paris")
FILTERED = SearchCall(
    "rust", allowed_domains=("example.com/blog", "b.net"), blocked_domains=("c.org", "d.org/x"), user_location=PARIS
)


async def test_what_brave_is_asked() -> None:
    plain = {"q": "rust", "count": "8", "result_filter": "web", "text_decorations": "false"}
    assert await asked(BRAVE, SearchCall("rust")) == plain
    assert await asked(BRAVE, FILTERED) == {
        **plain,
        "q": "rust (site:example.com OR site:b.net) -site:c.org",
        "count": "20",
        "country": "FR",
    }
    long = await asked(BRAVE, SearchCall("word " * 200))
    assert len(long["q"].split()) == 50


async def test_brave_is_told_where_the_user_is_as_far_as_a_header_holds_it() -> None:
    with respx.mock() as mock:
        route = answering(mock, BRAVE, json=BRAVE.answer)
        await run(BRAVE, FILTERED)
    sent = {name: value for name, value in route.calls.last.request.headers.items() if name.startswith("x-loc-")}
    assert sent == {"x-loc-city": "Paris", "x-loc-country": "FR", "x-loc-timezone": "Europe/Paris"}


async def test_what_tavily_is_asked() -> None:
    assert await asked(TAVILY, SearchCall("rust")) == {"query": "rust", "max_results": 8}
    assert await asked(TAVILY, FILTERED) == {
        "query": "rust",
        "max_results": 20,
        "include_domains": ["example.com", "b.net"],
        "exclude_domains": ["c.org"],
        "country": "france",
    }
    assert len((await asked(TAVILY, SearchCall("word " * 200)))["query"]) <= 400


async def test_what_exa_is_asked() -> None:
    plain = {"query": "rust", "numResults": 8, "contents": {"highlights": True}}
    assert await asked(EXA, SearchCall("rust")) == plain
    assert await asked(EXA, FILTERED) == {
        **plain,
        "numResults": 24,
        "includeDomains": ["example.com", "b.net"],
        "excludeDomains": ["c.org"],
        "userLocation": "FR",
    }


async def test_what_you_is_asked() -> None:
    assert await asked(YOU, SearchCall("rust")) == {"query": "rust", "count": 8}
    assert await asked(YOU, FILTERED) == {
        "query": "rust",
        "count": 24,
        "include_domains": ["example.com", "b.net"],
        "country": "FR",
    }
    assert await asked(YOU, SearchCall("rust", blocked_domains=("c.org",))) == {
        "query": "rust",
        "count": 24,
        "exclude_domains": ["c.org"],
    }


async def test_what_searxng_is_asked() -> None:
    assert await asked(SEARXNG, SearchCall("rust")) == {"q": "rust", "format": "json"}
    assert await asked(SEARXNG, FILTERED) == {
        "q": "rust (site:example.com OR site:b.net) -site:c.org",
        "format": "json",
    }


@every_provider
@pytest.mark.parametrize("country", ["", "Germany", "XX", "d\r\nx"])
async def test_a_country_the_provider_may_not_know_is_no_obstacle(case: Case, country: str) -> None:
    params = await asked(case, SearchCall("rust", user_location=UserLocation(country=country)))
    assert "country" not in params
    assert params.get("userLocation") in (None, "XX")


async def test_a_caller_who_leaves_closes_the_connection() -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        assert await reader.read() == b""
        gone.set()
        writer.close()

    async with await asyncio.start_server(stall, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        backend = make_backend("searxng", base_url=f"http://127.0.0.1:{port}", api_key=None)
        tool = WebSearch(backend, timeout_s=60, concurrency=1, max_results=8, result_max_chars=20_000)
        left = asyncio.create_task(tool.run(SearchCall("rust")))
        await asked.wait()
        left.cancel()
        await asyncio.wait_for(gone.wait(), 1)
        await tool.aclose()


@every_provider
async def test_neither_query_nor_key_is_logged_at_any_level(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with respx.mock() as mock:
        answering(mock, case, json=case.answer)
        await run(case, SearchCall("confidential"))
    assert "confidential" not in caplog.text
    assert KEY not in caplog.text
