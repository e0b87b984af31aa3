"""The web that the tiny model searches: a SearXNG-shaped backend on loopback that knows some releases."""

import asyncio
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

RELEASES = {"Rust": "1.95.0", "Go": "1.27.1", "Redis": "8.4.2", "Python": "3.15.0", "Django": "6.1.3"}


class ReleaseSearxng:
    """The backend as an ASGI app; `queries` are the searches it ran, `delay_s` how long each takes."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.delay_s = 0.0
        self.app = Starlette(routes=[Route("/search", self._search)])

    async def _search(self, request: Request) -> Response:
        query = request.query_params["q"]
        self.queries.append(query)
        await asyncio.sleep(self.delay_s)
        words = query.lower().split()
        results = [
            page
            for product, version in RELEASES.items()
            if product.lower() in words
            for page in _pages(product, version)
        ]
        return JSONResponse({"query": query, "number_of_results": len(results), "results": results})


def _pages(product: str, version: str) -> list[dict[str, Any]]:
    return [
        {
            "title": f"Announcing {product} {version}",
            "url": f"https://blog.{product.lower()}.example/releases/{version}",
            "content": f"The {product} team is happy to announce {product} {version}.",
            "publishedDate": "2026-04-16T00:00:00",
            "engine": "duckduckgo",
        },
        {
            "title": f"{product} releases",
            "url": f"https://docs.{product.lower()}.example/releases",
            "content": f"The latest stable {product} release is {version}.",
            "publishedDate": None,
            "engine": "duckduckgo",
        },
    ]
