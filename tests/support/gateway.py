"""The real application under the real server, on a free port, for tests that speak HTTP to it.

async with ScriptedUpstream(json_answer(message(text("hi")))) as upstream:
    async with running_gateway(Settings(upstream=upstream.origin)) as gateway:
        answer = await gateway.client.post("/v1/messages", json={...})
"""

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from gateway.app import Gateway
from gateway.books.observer import Observer
from gateway.server.serve import loopback
from gateway.settings import Settings
from gateway.tools.base import SearchBackend
from gateway.tools.runner import AnyRunner
from gateway.tools.web_search import WebSearch
from gateway.turn import KINDS, Kinds

_COUNT = re.compile(r'messages_gateway_requests_total\{outcome="(\w+)",route="/v1/messages",status="\w+"\} (\S+)')

JSON = {"content-type": "application/json"}
"""What the client declares its bodies as, unless a test says otherwise."""


@dataclass(frozen=True, slots=True)
class RunningGateway:
    """Where the gateway is, and an httpx client for it."""

    url: str
    client: httpx.AsyncClient

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def outcomes(self) -> dict[str, int]:
        """The requests to ``/v1/messages`` that are over, by outcome."""
        shown = (await self.client.get("/metrics")).text
        counts: dict[str, int] = {}
        for outcome, count in _COUNT.findall(shown):
            counts[outcome] = counts.get(outcome, 0) + int(float(count))
        return counts


@asynccontextmanager
async def running_gateway(
    settings: Settings,
    *,
    search: AnyRunner | None = None,
    backend: SearchBackend | None = None,
    kinds: Kinds = KINDS,
    runners: Mapping[str, AnyRunner] | None = None,
    observers: Iterable[Observer] = (),
) -> AsyncIterator[RunningGateway]:
    """Run a gateway.

    ``search`` stands in for the whole search tool, ``backend`` for the provider behind the real one. ``kinds``,
    other ``runners`` and ``observers`` are the gateway's own parameters.
    """
    runners = dict(runners or {})
    if backend is not None:
        search = WebSearch(
            backend,
            timeout_s=settings.tool_timeout_s,
            concurrency=settings.tool_concurrency,
            max_results=settings.search_max_results,
            result_max_chars=settings.tool_result_max_chars,
        )
    if search is not None:
        runners["web_search"] = search
    async with (
        loopback(Gateway(settings, kinds=kinds, runners=runners, observers=observers)) as url,
        # Without certificates, which take longer to load than most tests to run.
        httpx.AsyncClient(base_url=url, timeout=10, verify=False, trust_env=False, headers=JSON) as client,
    ):
        yield RunningGateway(url, client)
