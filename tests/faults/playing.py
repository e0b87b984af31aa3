"""Plays one fault at one place, and says how the request ended for the client and in the books."""

import asyncio
import io
import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from gateway.books.log import RequestLog
from gateway.settings import Settings
from tests.faults.table import Expected
from tests.faults.upstreams import BETWEEN, FAULTS, REFUSES, Fault, Right
from tests.support.events import events_in
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.playbook import QUESTION, SEARCH
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import Answer, ScriptedUpstream, SeenRequest, text, tool_use

CALL = [text("I look it up."), tool_use("web_search", {"query": "rust"})]
SAID = [text("Rust is at 1.89, naïve as it sounds.")]
LONGEST_S = 10
"""Nothing hangs: every request is over by then."""
PATIENCE_S = 0.15
"""The timeouts of a gateway whose upstream stalls."""


@dataclass
class Seen:
    """What the client got, byte for byte, and what the gateway did meanwhile."""

    status: int = 0
    headers: httpx.Headers = field(default_factory=httpx.Headers)
    body: bytes = b""
    broken: bool = False
    outcomes: dict[str, int] = field(default_factory=dict)
    line: dict[str, Any] = field(default_factory=dict)
    """What the log says of it."""
    searched: list[str] = field(default_factory=list)
    asked: list[SeenRequest] = field(default_factory=list)

    @property
    def is_stream(self) -> bool:
        return "event-stream" in self.headers.get("content-type", "")

    @property
    def events(self) -> list[dict[str, Any]]:
        return events_in(self.body)

    def text(self) -> str:
        if not self.is_stream:
            return "".join(block.get("text", "") for block in json.loads(self.body)["content"])
        return "".join(event["delta"].get("text", "") for event in self.events if "index" in event and "delta" in event)

    def expected(self, fault: Fault) -> Expected:
        """It, in the words of the table."""
        [outcome] = self.outcomes
        return Expected(self.status, self._ending(fault), outcome)

    def _ending(self, fault: Fault) -> str:
        if self.broken:
            assert fault.body.startswith(self.body), "the client saw what upstream had not sent"
            return "cut"
        if self.body == fault.body:
            return "same"
        last: dict[str, Any] = self.events[-1] if self.is_stream else json.loads(self.body)
        if last["type"] == "error":
            assert "127.0.0.1" not in last["error"]["message"]
            kind: str = last["error"]["type"]
            return kind
        assert last["type"] == ("message_stop" if self.is_stream else "message")
        assert self.text() == "".join(block.value["text"] for block in [CALL[0], *SAID])
        return "whole"


async def play(name: str, column: str) -> tuple[Seen, Fault]:
    """The fault ``name`` in the place of ``column``: in the answer that is proxied, a turn's first or later round."""
    place, transport = column.split()
    stream = transport == "SSE"
    fault = FAULTS[name](Right(CALL if place == "first" else SAID, stream))
    before: list[Answer] = []
    if place == "later":
        calling = Right(CALL, stream).answer(then="close" if name in (BETWEEN, REFUSES) else "keep").answer
        before = [lambda _: last_answer(upstream, calling)] if name == REFUSES else [calling]
    after = [Right(SAID, stream).answer().answer] if place == "first" else []
    upstream = ScriptedUpstream(*before, fault.answer, *after)
    seen = Seen()
    search = ScriptedSearch(default=found("It is 1.89."))
    log = io.StringIO()
    patience: dict[str, Any] = {}
    if name.startswith("stalls"):
        patience = {"first_byte_timeout_s": PATIENCE_S, "idle_timeout_s": PATIENCE_S}
    async with asyncio.timeout(LONGEST_S), upstream:
        if name == REFUSES and place != "later":
            upstream.stop_listening()
        settings = Settings(upstream=upstream.origin, **patience)
        watching = [RequestLog("info", "json", log)]
        async with running_gateway(settings, search=search, observers=watching) as gateway:
            await ask(gateway, {"tools": []} if place == "proxy" else {"tools": [SEARCH]}, stream, seen)
            seen.outcomes = await outcomes(gateway)
    [seen.line] = [json.loads(line) for line in log.getvalue().splitlines()]
    seen.searched, seen.asked = search.queries, upstream.requests
    return seen, fault


def last_answer(upstream: ScriptedUpstream, answer: Answer) -> Answer:
    """The answer, from an upstream that from now on is gone."""
    upstream.stop_listening()
    return answer


async def ask(gateway: RunningGateway, members: dict[str, Any], stream: bool, seen: Seen) -> None:
    body = {"model": "qwen3", "max_tokens": 64, "stream": stream, "messages": [QUESTION], **members}
    try:
        async with gateway.client.stream("POST", "/v1/messages", json=body) as response:
            seen.status, seen.headers = response.status_code, response.headers
            async for piece in response.aiter_raw():
                seen.body += piece
    except httpx.RemoteProtocolError:
        seen.broken = True


async def outcomes(gateway: RunningGateway) -> dict[str, int]:
    """The requests to ``/v1/messages`` by outcome; none but the one that asks is under way any more."""
    assert "messages_gateway_requests_in_flight 1.0" in (await gateway.client.get("/metrics")).text
    return await gateway.outcomes()
