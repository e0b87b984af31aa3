"""The text the model reads: results as compact numbered entries, cleaned of markup."""

import re
from collections.abc import Sequence
from html.parser import HTMLParser

from gateway.turn.web_search import NO_RESULTS, SearchResult

TITLE_MAX_CHARS = 200
DATE_MAX_CHARS = 60
SNIPPET_MAX_CHARS = 1000

_INLINE = frozenset(
    (
        "a", "abbr", "b", "cite", "code", "em", "font", "i", "img", "mark", "q", "s", "small", "span", "strike",
        "strong", "sub", "sup", "u", "wbr",
    )
)  # fmt: skip
_BREAKS = frozenset(
    (
        "blockquote", "br", "div", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "table",
        "td", "th", "tr", "ul", "tbody", "thead",
    )
)  # fmt: skip
_UNSEEN = frozenset(("script", "style"))
_MARKUP = _INLINE | _BREAKS | _UNSEEN
_CONTROL = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], " ")


class _Plain(HTMLParser):
    """Keeps the text; what looks like a tag but is no HTML (``List<String>``) is text too."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._unseen = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _MARKUP:
            self.handle_data(self.get_starttag_text() or "")
        elif tag in _UNSEEN:
            self._unseen = tag
        elif tag in _BREAKS:
            self.pieces.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag not in _MARKUP:
            self.handle_data(f"</{tag}>")
        elif tag == self._unseen:
            self._unseen = ""
        elif tag in _BREAKS:
            self.pieces.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.pieces.append(data)


def plain(raw: str, max_chars: int) -> str:
    """``raw`` without HTML tags and entities, white space folded to single spaces, at most ``max_chars`` long."""
    parser = _Plain()
    # Markup takes room, but not this much: the parser need not see a whole page.
    parser.feed(raw[: max_chars * 5])
    parser.close()
    text = "".join(parser.pieces).encode("utf-8", "replace").decode("utf-8")
    return _cut(" ".join(text.translate(_CONTROL).split()), max_chars)


def clean(result: SearchResult) -> SearchResult:
    """The result as it is shown: every text plain and bounded, the title never empty."""
    page_age = plain(result.page_age or "", DATE_MAX_CHARS)
    return SearchResult(
        title=plain(result.title, TITLE_MAX_CHARS) or result.url,
        url=result.url,
        snippet=plain(result.snippet, SNIPPET_MAX_CHARS),
        page_age=page_age or None,
    )


def render(results: Sequence[SearchResult], max_chars: int) -> tuple[str, tuple[SearchResult, ...]]:
    """The text for ``results``, at most ``max_chars`` long, and the results that it shows.

    Only whole entries are shown; where some had to go, a closing sentence says so. The first is cut to what there is
    room for, down to its title: a search that found something never reads as one that found nothing.
    """
    if not results:
        return NO_RESULTS, ()
    entries = [_entry(number, result) for number, result in enumerate(results, start=1)]
    text = "\n\n".join(entries)
    if len(text) <= max_chars:
        return text, tuple(results)
    for shown in range(len(results) - 1, 0, -1):
        text = "\n\n".join([*entries[:shown], _cut_note(shown, len(results))])
        if len(text) <= max_chars:
            return text, tuple(results[:shown])
    note = f"\n\n{_cut_note(1, len(results))}" if len(results) > 1 else "\n\n[Cut to fit.]"
    if len(note) > max_chars // 2:
        note = ""  # the ellipsis says it
    return _cut(entries[0], max_chars - len(note)) + note, tuple(results[:1])


def _entry(number: int, result: SearchResult) -> str:
    lines = [f"{number}. {result.title}", result.url, result.page_age or "", result.snippet]
    return "\n".join(line for line in lines if line)


def _cut_note(shown: int, found: int) -> str:
    return f"[Cut to fit: {shown} of {found} results are shown. Search for something narrower to see others.]"


def _cut(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    head = text[: max_chars - 1]
    return (re.split(r"\s(?=\S*$)", head)[0] or head).rstrip() + "…"
