"""Every request gets one line and one count, soon and not at once."""

import asyncio
import io

import pytest

from gateway.books.ledger import Ledger
from gateway.books.log import RequestLog
from gateway.books.metrics import Metrics
from gateway.books.observer import Observers
from gateway.books.outcome import Outcome
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio


SCOPE = {"type": "http", "method": "POST", "raw_path": b"/v1/messages", "headers": []}


class Books:
    """A ledger, and what it wrote."""

    def __init__(self) -> None:
        self.file = io.StringIO()
        self.metrics = Metrics()
        self.ledger = Ledger(Observers([self.metrics, RequestLog("info", "text", self.file)]))

    def one(self, outcome: Outcome = "ok", **fields: object) -> None:
        record = self.ledger.open("/v1/messages", SCOPE)
        record.outcome = outcome
        for name, value in fields.items():
            setattr(record, name, value)
        self.ledger.close(record)

    def metric(self, name: str) -> float:
        for line in self.metrics.render().decode().splitlines():
            if line.startswith(f"messages_gateway_{name} "):
                return float(line.rpartition(" ")[2])
        raise AssertionError(f"there is no {name}")


async def test_lines_and_counts_come_by_themselves() -> None:
    books = Books()
    books.one(status=200, rounds=1, input_tokens=7, output_tokens=5, upstream_ms=20)
    books.one(status=200, rounds=1, input_tokens=3, output_tokens=5, upstream_ms=20)
    books.one("timeout", status=504, rounds=1)
    await eventually(lambda: books.file.getvalue().count("\n") == 3)
    assert books.metric('requests_total{outcome="ok",route="/v1/messages",status="2xx"}') == 2
    assert books.metric('requests_total{outcome="timeout",route="/v1/messages",status="5xx"}') == 1
    assert books.metric('tokens_total{direction="input"}') == 10
    assert books.metric('tokens_total{direction="output"}') == 10
    assert books.metric('upstream_seconds_count{route="/v1/messages"}') == 3
    assert books.metric('upstream_seconds_bucket{le="0.05",route="/v1/messages"}') == 3


async def test_what_upstream_says_for_numbers_costs_no_other_its_line() -> None:
    books = Books()
    for tokens in ("7", "x\nFAKE LINE", [1], {"a": 1}, -5, 10**400, 1.5, True, None, ""):
        record = books.ledger.open("/v1/messages", SCOPE)
        record.counts({"input_tokens": tokens, "output_tokens": 2})
        books.ledger.close(record)
    books.one(status=200, input_tokens=3)
    books.ledger.flush()
    lines = books.file.getvalue().splitlines()
    counts = [line.rpartition("input_tokens=")[2].partition(" request_id=")[0] for line in lines]
    assert counts == ["- output_tokens=2"] * 10 + ["3 output_tokens=-"]
    assert books.metric('tokens_total{direction="input"}') == 3
    assert books.metric('tokens_total{direction="output"}') == 20


async def test_requests_in_flight() -> None:
    books = Books()
    records = [books.ledger.open("/v1/messages", SCOPE) for _ in range(3)]
    await eventually(lambda: books.metric("requests_in_flight") == 3)
    for record in records:
        books.ledger.close(record)
    books.ledger.flush()
    assert books.metric("requests_in_flight") == 0


async def test_only_turns_have_rounds() -> None:
    books = Books()
    books.one(rounds=1)
    books.one(rounds=3, turn=True)
    books.ledger.flush()
    assert books.metric("turn_rounds_count") == 1
    assert books.metric("turn_rounds_sum") == 3


async def test_tool_calls() -> None:
    books = Books()
    books.metrics.tool_call("web_search", None)
    books.metrics.tool_call("web_search", "unavailable")
    assert books.metric('tool_calls_total{outcome="ok",tool="web_search"}') == 1
    assert books.metric('tool_calls_total{outcome="unavailable",tool="web_search"}') == 1


async def test_a_request_without_an_answer_counts_too() -> None:
    books = Books()
    books.one("client_gone")
    books.ledger.flush()
    assert books.metric('requests_total{outcome="client_gone",route="/v1/messages",status="none"}') == 1


async def test_an_idle_ledger_sleeps() -> None:
    books = Books()
    books.one()
    books.ledger.flush()
    before = books.file.getvalue()
    await asyncio.sleep(0.1)
    assert books.ledger._timer is None
    assert books.file.getvalue() == before
