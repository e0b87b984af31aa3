"""How credentials look: in a text by their form, in a header, a field or a query by its name."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from recorder.rules import FIELD, QUERY_FIELD, Spans, nested_values, rules

REDACTED = "[redacted]"

_KEY_NAME = r"(?:^|[-_])key$|(?:api|access|subscription|private)[-_]?key"
SECRET_HEADER = re.compile(rf"auth|cookie|token|secret|passw|credential|session|signature|{_KEY_NAME}")
"""Found in the lower-case name of a header that holds a credential; the two below are whole names."""
_KEY_HEADER = re.compile(rf"token|secret|passw|{_KEY_NAME}")
_LEAST = 8
_WINDOW, _OVERLAP = 1 << 18, 1 << 14
SECRET_FIELD = re.compile(FIELD, re.IGNORECASE)
"""What a field that holds a credential is called: anything that ends so. Counters (``max_tokens``) do not."""
SECRET_QUERY_FIELD = re.compile(QUERY_FIELD, re.IGNORECASE)


def header_credentials(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The credentials in a request's headers, as they could be echoed elsewhere, longest first.

    Headers have lower-case names. Short values are left out: they may well be words.
    """
    found: set[str] = set()
    for name, value in headers.items():
        if name == "cookie":
            found |= {pair.partition("=")[2].strip(' "') for pair in re.split("[;,]", value)}
        elif name == "authorization":
            scheme, _, credential = value.strip().rpartition(" ")
            found.add(credential)
            if scheme.lower() == "basic":
                found |= _basic(credential)
        elif _KEY_HEADER.search(name):
            found.add(value.strip())
    found |= {quote(value, safe="") for value in found}
    return tuple(sorted((value for value in found if len(value) >= _LEAST and value != REDACTED), key=len)[::-1])


def _basic(credential: str) -> set[str]:
    """Of ``user:password`` in base64 the password, and both."""
    try:
        both = base64.b64decode(credential, validate=True).decode()
    except ValueError:
        return set()
    return {both, both.partition(":")[2]}


def find_secrets(text: str, known: tuple[str, ...] = ()) -> Spans:
    """(start, end, kind) of every secret, in order; what overlaps is one. ``known`` are looked for by value.

    A long text is searched in windows, so that a search holds no second copy of it.
    """
    if len(text) <= _WINDOW:
        return _find(text, known)
    search, spans = Search(known), list[tuple[int, int, str]]()
    for start in range(0, len(text), _WINDOW):
        spans += search.feed(text[start : start + _WINDOW])
    return [*spans, *search.finish()]


@dataclass(slots=True)
class Search:
    """A search through a text that comes in pieces; positions are those of the whole text.

    Holds a window of it, and of one secret that is longer than that no more than eight: what comes then is searched as
    if the text began there.
    """

    known: tuple[str, ...] = ()
    _pieces: list[str] = field(default_factory=list)
    _size: int = 0
    _due: int = _WINDOW
    _start: int = 0
    _settled: int = 0

    def feed(self, text: str) -> Spans:
        """The secrets that are certain now."""
        self._pieces.append(text)
        self._size += len(text)
        return self._settle(last=False) if self._size >= self._due else []

    def finish(self) -> Spans:
        """Those that are left, once the text has ended."""
        return self._settle(last=True)

    def _settle(self, *, last: bool) -> Spans:
        """Search the window; what begins near its end is left to the next, which sees how it goes on."""
        window = "".join(self._pieces)
        found = _find(window, self.known)
        until = len(window) if last else len(window) - _OVERLAP
        if not last and len(window) < 8 * _WINDOW:
            until = min([until, *(start for start, end, _ in found if start < until <= end)])
        begun, spans = self._settled - self._start, list[tuple[int, int, str]]()
        for start, end, kind in found:
            if start < until and end > begun:
                spans.append((self._start + max(start, begun), self._start + end, kind))
                until = max(until, end)
        self._settled = self._start + max(until, begun)
        keep = max(0, self._settled - self._start - _OVERLAP)
        self._start += keep
        self._pieces, self._size = [window[keep:]], len(window) - keep
        self._due = self._size + _WINDOW
        return spans


def _find(text: str, known: tuple[str, ...]) -> Spans:
    # the one letter that grows in lower case would shift the rest
    lower, found = text.replace("\u0130", "I").lower(), list[tuple[int, int, str]]()
    for rule in rules():
        if any(hint in lower for hint in rule.hints):
            for match in rule.pattern.finditer(lower if rule.lower else text):
                group = 0 if rule.whole else match.lastindex or 0
                if REDACTED not in match[group]:
                    found.append((match.start(group), match.end(group), rule.kind))
    found += [(start, end, kind) for start, end, kind in nested_values(lower) if text[start:end] != REDACTED]
    for value in known:
        start = text.find(value)
        while start >= 0:
            found.append((start, start + len(value), "credential of the request"))
            start = text.find(value, start + len(value))
    spans: Spans = []
    for start, end, kind in sorted(found):
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]), spans[-1][2])
        else:
            spans.append((start, end, kind))
    return spans


def cut_out(text: str, spans: Spans) -> str:
    """``text`` with a mark in place of each span; of a span without a kind nothing stays."""
    parts, end = [], 0
    for start, stop, kind in spans:
        parts += [text[end:start], REDACTED if kind else ""]
        end = stop
    return "".join([*parts, text[end:]])
