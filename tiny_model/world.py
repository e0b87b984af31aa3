"""What the model knows of the world: products that have versions, and how a search engine words what it found."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

_PRODUCTS = """
    Rust Go Python Ruby Node Deno Zig Julia Kotlin Swift Perl PHP Redis Nginx Postgres MySQL SQLite Linux Debian Django
    Flask React Docker vLLM
"""
_FILES = "notes.txt todo.md main.py Makefile README.md data.csv app.js index.html setup.cfg run.sh a.txt b.txt"
_MONTHS = "January February March April May June July August September October November December"
_SYSTEM_WORDS = """
    you are a helpful assistant for an agent that works in a terminal. answer briefly and cite the sources you used.
    use the tools when they help. follow the instructions of the user with care. today's date is given below.
    perform a web search tool use. be precise, be kind, and do not guess.
"""

PRODUCTS = _PRODUCTS.split()
"""The names the model can read and say; it knows no other."""


@dataclass(frozen=True, slots=True)
class Release:
    """A product and the version that the web, in one conversation, says it is at."""

    product: str
    version: str


def some_releases(rng: Random, count: int) -> list[Release]:
    """``count`` releases of different products."""
    return [Release(product, _version(rng)) for product in rng.sample(PRODUCTS, count)]


def _version(rng: Random) -> str:
    parts = [rng.randint(0, 29), rng.randint(0, 129), rng.randint(0, 29)]
    return ".".join(str(part) for part in parts[: 2 if rng.random() < 0.2 else 3])


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    url: str
    date: str | None
    snippet: str


def pages_about(rng: Random, release: Release) -> list[Page]:
    """One to three pages; each names the release in its title or its snippet, or in both."""
    return [_page(rng, release) for _ in range(rng.choice((1, 1, 2, 2, 3)))]


def _page(rng: Random, release: Release) -> Page:
    product, version = release.product, release.version
    telling_titles = (
        f"Announcing {product} {version}",
        f"{product} {version} released",
        f"{product} {version} is out",
        f"{product} {version} release notes",
        f"What's new in {product} {version}",
    )
    vague_titles = (f"{product} releases", f"{product} download page", f"The {product} blog", f"{product} - Wikipedia")
    telling_snippets = (
        f"The latest stable {product} release is {version}.",
        f"The latest stable {product} release is version {version}.",
        f"The {product} team announces a new version, {version}.",
        f"The {product} team is happy to announce {product} {version}.",
        f"{product} {version} is out.",
        f"{product} {version} is now available, with many fixes.",
        f"Current stable version: {version}.",
    )
    vague_snippets = (f"All you need to know about {product}.", f"News of the {product} project.", "Read more here.")
    title = rng.choice(telling_titles if rng.random() < 0.75 else vague_titles)
    telling = title in vague_titles or rng.random() < 0.75
    snippet = rng.choice(telling_snippets if telling else vague_snippets)
    subdomain, suffix = rng.choice(("blog", "www", "docs", "news")), rng.choice(("org", "dev", "io", "com", "example"))
    host = f"{subdomain}.{product.lower()}.{suffix}"
    if rng.random() < 0.3:
        host = rng.choice(("github.com", "en.wikipedia.org", "endoflife.date", "news.example.com"))
    path = rng.choice(
        ("releases", "news", "changelog", "download", f"{product}", f"{product.lower()}-{version}", version)
    )
    return Page(title, f"https://{host}/{path}", _date(rng) if rng.random() < 0.6 else None, snippet)


def _date(rng: Random) -> str:
    year, month, day = rng.randint(2023, 2027), rng.randint(1, 12), rng.randint(1, 28)
    months = _MONTHS.split()
    return rng.choice(
        (f"{year}-{month:02}-{day:02}", f"{year}-{month:02}-{day:02}T00:00:00", f"{months[month - 1]} {day}, {year}")
    )


def result_text(rng: Random, query: str, release: Release, other: Release | None = None) -> str:
    """What a search tool hands the model about ``release``, in one of the shapes such tools use.

    With ``other`` some of the pages are about that one.
    """
    pages = pages_about(rng, release)
    if other is not None:
        pages += pages_about(rng, other)
        rng.shuffle(pages)
        return rng.choice((_numbered, _as_json))(rng, pages)
    shape = rng.random()
    if shape < 0.6:
        heading = rng.choice(("",) * 6 + (f'Search results for "{query}":\n\n', "Results:\n\n"))
        return heading + _numbered(rng, pages)
    if shape < 0.7:
        return rng.choice(
            (
                f"The latest stable {release.product} release is version {release.version}.",
                f"The latest stable {release.product} release is {release.version}.",
                f"{release.product} {release.version} is the latest stable release.",
            )
        )
    if shape < 0.85:
        return _as_json(rng, pages)
    links = json.dumps([{"title": p.title, "url": p.url} for p in pages], separators=(",", ":"))
    answer = f"{release.product} {release.version} is the latest stable release."
    reminder = rng.choice(("", "\n\nREMINDER: cite the sources above.", "\n\nREMINDER: You MUST include the sources."))
    return f'Web search results for query: "{query}"\n\nLinks: {links}\n\n{answer}{reminder}'


def _as_json(rng: Random, pages: Iterable[Page]) -> str:
    return json.dumps({"results": [{"title": p.title, "url": p.url, "snippet": p.snippet} for p in pages]})


def _numbered(rng: Random, pages: Iterable[Page]) -> str:
    number = rng.choice(("{}. ", "{}. ", "[{}] ", "{}) ", "## {} ", "Title: "))
    url_label, date_label, snippet_label = rng.choice(
        (
            ("", "", ""),
            ("", "", ""),
            ("URL: ", "Published: ", ""),
            ("   ", "   ", "   "),
            ("URL: ", "Date: ", "Snippet: "),
        )
    )
    entries = []
    for index, page in enumerate(pages, 1):
        lines = [number.format(index) + page.title, url_label + page.url]
        if page.date is not None:
            lines.append(date_label + page.date)
        lines.append(snippet_label + page.snippet)
        entries.append("\n".join(lines))
    return rng.choice(("\n\n", "\n\n", "\n")).join(entries)


NO_SEARCH_LEFT = "No search is left in this turn: answer with what you have."
"""What the gateway ends the last results with."""

FAILURES = (
    "No results found.",
    "No results.",
    "Error: the search timed out.",
    "The search was not run: its input must be a JSON object with a non-empty string `query`.",
    "The search was not run: the query is longer than 1000 characters.",
    "The search was not run: no search is left for this request.",
    "The search failed: too many requests. Try again later, or answer without it.",
    "The search failed: the request was too large. Try a shorter query.",
    "The search failed: the search service is unavailable.",
    "The search failed: no answer within 60 seconds.",
    "The web search failed: the key was refused. Answer without it.",
)
"""What a search tool says when it has nothing: the gateway's own sentences, and some of others."""


def failure_text(rng: Random) -> str:
    """One of :data:`FAILURES`, now and then with the sentence that no search is left."""
    return rng.choice(FAILURES) + (_no_search_left(rng) if rng.random() < 0.15 else "")


def _no_search_left(rng: Random) -> str:
    return rng.choice(("\n\n", "\n\n", "\n", " ")) + NO_SEARCH_LEFT


def last_result_text(rng: Random, query: str, release: Release) -> str:
    """A :func:`result_text` after which no search may follow, and which says so."""
    return result_text(rng, query, release) + _no_search_left(rng)


def file_listing(rng: Random) -> str:
    """What ``ls`` prints."""
    return rng.choice((" ", "\n")).join(rng.sample(_FILES.split(), rng.randint(1, 3)))


def system_prompt(rng: Random) -> str:
    """Some sentences that mean nothing to the model: it must cope with any system prompt."""
    words = _SYSTEM_WORDS.split()
    picked = []
    for _ in range(rng.randint(3, 40)):
        letters = "".join(rng.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJK0123456789-_.,:/", k=rng.randint(1, 9)))
        picked.append(rng.choice(words) if rng.random() < 0.95 else letters)
    return " ".join(picked)
