"""The tool around a backend: slots, timeout, retry, filters, and nothing raised."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from gateway.tools.base import Cause, SearchBackend, SearchFailed, SearchQuery
from gateway.tools.canned import CannedSearch
from gateway.tools.web_search import WebSearch
from gateway.turn.web_search import NO_RESULTS, SearchCall, SearchOutcome, SearchResult, UserLocation

pytestmark = pytest.mark.anyio


def page(url: str, title: str = "A page") -> SearchResult:
    return SearchResult(title, url, "What it says.", None)


@asynccontextmanager
async def searching(
    backend: SearchBackend,
    *,
    timeout_s: float = 60,
    concurrency: int = 16,
    max_results: int = 8,
    result_max_chars: int = 20_000,
) -> AsyncIterator[WebSearch]:
    tool = WebSearch(
        backend,
        timeout_s=timeout_s,
        concurrency=concurrency,
        max_results=max_results,
        result_max_chars=result_max_chars,
    )
    try:
        yield tool
    finally:
        await tool.aclose()


class Backend:
    """Runs the test's function for each search; ``queries`` are what it was asked."""

    name = "scripted"
    label = "The scripted search"

    def __init__(self, answer: Callable[[int], list[SearchResult]]) -> None:
        self._answer = answer
        self.queries: list[SearchQuery] = []
        self.closed = False

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        self.queries.append(query)
        return self._answer(len(self.queries))

    async def aclose(self) -> None:
        self.closed = True


class HeldBackend:
    """Answers a search only once it is released; ``stubborn`` ones do not end on cancellation, as a blocked thread."""

    name = "held"
    label = "The held search"

    def __init__(self, *, stubborn: bool = False) -> None:
        self._stubborn = stubborn
        self.started: asyncio.Queue[str] = asyncio.Queue()
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.release = asyncio.Event()

    async def search(self, query: SearchQuery) -> list[SearchResult]:
        self.started.put_nowait(query.text)
        work = asyncio.ensure_future(self.release.wait())
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if self._stubborn:
                await work
            raise
        finally:
            work.cancel()
            self.ended.put_nowait(query.text)
        return [page("https://example.com/")]

    async def aclose(self) -> None:
        pass


async def test_the_call_reaches_the_backend_and_the_results_the_text() -> None:
    backend = Backend(lambda _: [page("https://example.com/a", "<b>First</b>")])
    berlin = UserLocation(city="Berlin", country="DE")
    async with searching(backend) as tool:
        outcome = await tool.run(SearchCall("  latest\n rust ", user_location=berlin))
    assert outcome == SearchOutcome(
        text="1. First\nhttps://example.com/a\nWhat it says.",
        results=(SearchResult("First", "https://example.com/a", "What it says."),),
    )
    assert backend.queries == [SearchQuery("latest rust", 8, location=berlin)]
    assert backend.closed


async def test_an_empty_search_is_no_failure() -> None:
    async with searching(CannedSearch()) as tool:
        assert await tool.run(SearchCall("rust")) == SearchOutcome(text=NO_RESULTS)


async def test_filters_are_enforced_whatever_the_backend_does() -> None:
    backend = Backend(
        lambda _: [
            page("https://other.net/"),
            page("https://docs.example.com/a"),
            page("https://example.com/private/b"),
            page("https://example.com/c"),
        ]
    )
    async with searching(backend) as tool:
        outcome = await tool.run(
            SearchCall("rust", allowed_domains=("example.com",), blocked_domains=("example.com/private",))
        )
    assert [result.url for result in outcome.results] == ["https://docs.example.com/a", "https://example.com/c"]
    assert "other.net" not in outcome.text
    assert "private" not in outcome.text
    assert backend.queries == [SearchQuery("rust", 24, include_hosts=("example.com",))]


async def test_what_filters_leave_nothing_of_is_an_empty_search() -> None:
    async with searching(CannedSearch(default=[page("https://other.net/")])) as tool:
        outcome = await tool.run(SearchCall("rust", allowed_domains=("example.com",)))
    assert outcome == SearchOutcome(text=NO_RESULTS)


async def test_each_page_is_shown_once_and_only_pages_are() -> None:
    found = [
        page("https://example.com/a", "first"),
        page("https://EXAMPLE.com/a/#part", "again"),
        page("https://example.com/a?page=2", "second"),
        page("javascript:alert(1)", "script"),
        page("https://example.com/x y", "space"),
        page("", "nowhere"),
    ]
    async with searching(CannedSearch(default=found)) as tool:
        outcome = await tool.run(SearchCall("rust"))
    assert [result.title for result in outcome.results] == ["first", "second"]


async def test_no_more_results_than_set() -> None:
    found = [page(f"https://example.com/{n}") for n in range(20)]
    async with searching(CannedSearch(default=found), max_results=3) as tool:
        outcome = await tool.run(SearchCall("rust"))
    assert [result.url for result in outcome.results] == [f"https://example.com/{n}" for n in range(3)]


async def test_a_long_text_is_cut_and_the_results_with_it() -> None:
    found = [page(f"https://example.com/{n}") for n in range(8)]
    async with searching(CannedSearch(default=found), result_max_chars=200) as tool:
        outcome = await tool.run(SearchCall("rust"))
    assert len(outcome.text) <= 200
    assert len(outcome.results) == 2
    assert outcome.text.endswith("[Cut to fit: 2 of 8 results are shown. Search for something narrower to see others.]")


async def test_a_failed_connection_is_tried_once_more() -> None:
    def answer(attempt: int) -> list[SearchResult]:
        if attempt == 1:
            raise SearchFailed(Cause.UNREACHABLE, "The scripted search")
        return [page("https://example.com/")]

    backend = Backend(answer)
    async with searching(backend) as tool:
        outcome = await tool.run(SearchCall("rust"))
    assert outcome.error is None
    assert len(backend.queries) == 2


@pytest.mark.parametrize(("cause", "attempts"), [(cause, 2 if cause is Cause.UNREACHABLE else 1) for cause in Cause])
async def test_a_failure_is_an_outcome_and_nothing_else_is_tried_again(cause: Cause, attempts: int) -> None:
    def answer(_: int) -> list[SearchResult]:
        raise SearchFailed(cause, "The scripted search", detail="in 3 seconds")

    backend = Backend(answer)
    async with searching(backend) as tool:
        outcome = await tool.run(SearchCall("rust"))
    assert (outcome.error, outcome.results) == (cause.code, ())
    assert "The scripted search" in outcome.text
    assert len(backend.queries) == attempts


async def test_a_bug_in_a_backend_is_logged_without_what_it_says_and_becomes_unavailable() -> None:
    def answer(_: int) -> list[SearchResult]:
        raise ValueError("cannot read: secret words")

    with capture_logs() as logs:
        async with searching(Backend(answer)) as tool:
            outcome = await tool.run(SearchCall("secret words"))
    assert outcome.error == "unavailable"
    assert "secret" not in outcome.text
    assert [(log["event"], log["provider"], log["error"]) for log in logs] == [
        ("search backend broke", "scripted", "ValueError")
    ]
    assert "secret" not in repr(logs)


async def test_a_failure_is_logged_by_its_cause_alone() -> None:
    def answer(_: int) -> list[SearchResult]:
        raise SearchFailed(Cause.QUOTA_SPENT, "The scripted search")

    with capture_logs() as logs:
        async with searching(Backend(answer)) as tool:
            await tool.run(SearchCall("secret words"))
    assert logs == [{"event": "search failed", "provider": "scripted", "cause": "quota_spent", "log_level": "warning"}]


async def test_a_query_that_is_no_unicode_is_searched_all_the_same() -> None:
    backend = Backend(lambda _: [])
    async with searching(backend) as tool:
        assert (await tool.run(SearchCall("half \ud800 pair"))).error is None
    assert backend.queries[0].text == "half ? pair"


async def test_a_search_over_its_time_is_an_outcome_and_frees_its_slot() -> None:
    backend = HeldBackend()
    async with searching(backend, timeout_s=0.02, concurrency=1) as tool:
        assert (await tool.run(SearchCall("slow"))).error == "unavailable"
        assert await backend.ended.get() == "slow"
        backend.release.set()
        assert (await tool.run(SearchCall("quick"))).error is None


async def test_the_wait_for_a_slot_counts() -> None:
    backend = HeldBackend(stubborn=True)
    async with searching(backend, timeout_s=0.02, concurrency=1) as tool:
        await tool.run(SearchCall("first"))
        assert await backend.started.get() == "first"
        second = await tool.run(SearchCall("second"))
        assert second.error == "unavailable"
        assert "did not answer in time" in second.text
        assert backend.started.empty()
        backend.release.set()


async def test_a_caller_who_leaves_stops_the_search_and_frees_the_slot() -> None:
    backend = HeldBackend()
    async with searching(backend, concurrency=1) as tool:
        left = asyncio.create_task(tool.run(SearchCall("left")))
        await backend.started.get()
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        assert await backend.ended.get() == "left"
        backend.release.set()
        assert (await tool.run(SearchCall("next"))).error is None


async def test_a_caller_who_leaves_the_queue_never_searches() -> None:
    backend = HeldBackend()
    async with searching(backend, concurrency=1) as tool:
        first = asyncio.create_task(tool.run(SearchCall("first")))
        await backend.started.get()
        waiting = asyncio.create_task(tool.run(SearchCall("waiting")))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        backend.release.set()
        assert (await first).error is None
        assert backend.started.empty()


async def test_a_backend_that_cannot_stop_lets_the_call_go_and_keeps_its_slot() -> None:
    backend = HeldBackend(stubborn=True)
    async with searching(backend, concurrency=1) as tool:
        left = asyncio.create_task(tool.run(SearchCall("stuck")))
        await backend.started.get()
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        following = asyncio.create_task(tool.run(SearchCall("following")))
        for _ in range(5):
            await asyncio.sleep(0)
        assert backend.ended.empty()
        assert backend.started.empty(), "the slot was given away while the backend still works"
        backend.release.set()
        assert (await following).error is None
        assert await backend.ended.get() == "stuck"


async def test_searches_run_at_once_up_to_the_concurrency() -> None:
    backend = HeldBackend()
    async with searching(backend, concurrency=2) as tool:
        running = [asyncio.create_task(tool.run(SearchCall(str(n)))) for n in range(3)]
        assert {await backend.started.get(), await backend.started.get()} == {"0", "1"}
        assert backend.started.empty()
        backend.release.set()
        assert [outcome.error for outcome in await asyncio.gather(*running)] == [None, None, None]


async def test_closing_ends_what_runs() -> None:
    backend = HeldBackend()
    async with searching(backend) as tool:
        running = asyncio.create_task(tool.run(SearchCall("rust")))
        await backend.started.get()
        await tool.aclose()
        outcome = await running
    assert outcome.error == "unavailable"
    assert "shutting down" in outcome.text


async def test_the_canned_search_answers_by_query() -> None:
    rust, rest = [page("https://rust-lang.org/")], [page("https://example.com/")]
    async with searching(CannedSearch({"rust": rust}, default=rest)) as tool:
        assert (await tool.run(SearchCall("rust"))).results[0].url == "https://rust-lang.org/"
        assert (await tool.run(SearchCall("other"))).results[0].url == "https://example.com/"
