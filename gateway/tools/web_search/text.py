"""The text the model reads: results as compact numbered entries, cleaned of markup."""

import re
from collections.abc import Sequence
from html import unescape
from itertools import accumulate

from gateway.turn.web_search import NO_RESULTS, SearchResult

TITLE_MAX_CHARS = 200
DATE_MAX_CHARS = 60
SNIPPET_MAX_CHARS = 1000
_BETWEEN = "\n\n"

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
_MARKUP = _INLINE | _BREAKS | {"script", "style"}
_CONTROL = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], " ")


# No part of a tag reaches over the next "<", and nothing is tried twice: the work grows with the text's length alone.
_TAG = re.compile(r"""<(?:[!?][^<>]*+|/?([a-zA-Z][a-zA-Z0-9]*+)(?:[\s/](?>[^<>"']|"[^"<]*+"|'[^'<]*+')*+)?)>""")
_OPENING = re.compile(r"<!--|<(script|style)(?:[\s/][^<>]*+)?>", re.IGNORECASE)
_CLOSING = {
    "": re.compile("-->"),
    "script": re.compile(r"</script[^<>]*+>", re.IGNORECASE),
    "style": re.compile(r"</style[^<>]*+>", re.IGNORECASE),
}
# To read a number of a thousand digits takes the square of its length, and of more of them Python refuses it.
_NO_CHARACTER = re.compile(r"&#(?:[0-9]{9,}+|[xX][0-9a-fA-F]{9,}+);?")


def plain(raw: str, max_chars: int) -> str:
    """``raw`` without HTML tags and entities, white space folded to single spaces, at most ``max_chars`` long.

    What looks like a tag but is no HTML (``List<String>``) is text.
    """
    # Markup takes room, but not this much.
    seen = _TAG.sub(_in_place_of, _without_unseen(raw[: max_chars * 5]))
    text = unescape(_NO_CHARACTER.sub("\ufffd", seen)).encode("utf-8", "replace").decode("utf-8")
    return _cut(" ".join(text.translate(_CONTROL).split()), max_chars)


def _without_unseen(raw: str) -> str:
    """The text without scripts, styles and comments; a comment that does not end is none."""
    pieces, at, comments_end = [], 0, True
    while opening := _OPENING.search(raw, at):
        kind = (opening[1] or "").lower()
        closing = _CLOSING[kind].search(raw, opening.end()) if kind or comments_end else None
        pieces.append(raw[at : opening.start()])
        if closing is not None:
            at = closing.end()
        elif kind:
            at = len(raw)
        else:
            comments_end = False
            pieces.append(opening[0])
            at = opening.end()
    return "".join([*pieces, raw[at:]])


def _in_place_of(tag: re.Match[str]) -> str:
    name = tag[1].lower() if tag[1] else ""
    if name and name not in _MARKUP:
        return tag[0]
    return " " if name in _BREAKS else ""


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
    lengths = list(accumulate(len(entry) + len(_BETWEEN) for entry in entries))
    if lengths[-1] - len(_BETWEEN) <= max_chars:
        return _BETWEEN.join(entries), tuple(results)
    for shown in range(len(results) - 1, 0, -1):
        note = _cut_note(shown, len(results))
        if lengths[shown - 1] + len(note) <= max_chars:
            return _BETWEEN.join([*entries[:shown], note]), tuple(results[:shown])
    note = _BETWEEN + (_cut_note(1, len(results)) if len(results) > 1 else "[Cut to fit.]")
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
