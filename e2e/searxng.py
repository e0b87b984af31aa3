"""A search backend on loopback that answers as a SearXNG instance does (`GET /search?format=json`)."""

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

RESULTS: list[dict[str, Any]] = [
    {
        "title": "Announcing Rust 1.95.0",
        "url": "https://blog.rust-lang.org/2026/04/16/Rust-1.95.0/",
        "content": "The Rust team is happy to announce a new version of Rust, 1.95.0.",
        "publishedDate": "2026-04-16T00:00:00",
        "engine": "duckduckgo",
    },
    {
        "title": "Rust Release Notes",
        "url": "https://doc.rust-lang.org/stable/releases.html",
        "content": "Version 1.95.0 (2026-04-16). Language, compiler and library changes.",
        "publishedDate": None,
        "engine": "duckduckgo",
    },
]
VERSION = "1.95.0"
LINKS = tuple(str(result["url"]) for result in RESULTS)


class CannedSearxng:
    """The backend as an ASGI app; `queries` are the searches it ran."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.app = Starlette(routes=[Route("/search", self._search)])

    async def _search(self, request: Request) -> Response:
        if request.query_params.get("format") != "json":
            return PlainTextResponse("Forbidden", status_code=403)
        query = request.query_params["q"]
        self.queries.append(query)
        return JSONResponse({"query": query, "number_of_results": len(RESULTS), "results": RESULTS})
