"""How credentials look: in a text by their form, in a header, a field or a query by its name."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

REDACTED = "[redacted]"

Spans = list[tuple[int, int, str]]
"""(start, end, kind) of parts of a text."""

SECRET_HEADER = re.compile(
    r"auth|cookie|token|secret|passw|credential|session|signature|(api|access|subscription|private)[-_]?key"
)
"""Stands somewhere in the lower-case name of a header that holds a credential; the two below are whole names."""
_KEY_HEADER = re.compile(r"token|secret|passw|(api|access|subscription|private)[-_]?key")
_LEAST = 8
_WINDOW, _OVERLAP = 1 << 18, 1 << 14
_NAME = (
    r"(?:(?:api|access|secret|private|subscription)[-_]?key|secret|password|passwd|passphrase"
    r"|token|credentials?|authorization)"
)
_NAME_HINTS = ("key", "secret", "passw", "token", "credential", "authorization")
SECRET_FIELD = re.compile(rf"[\w-]*{_NAME}", re.IGNORECASE)
"""What a field that holds a credential is called: anything that ends so. Counters (``max_tokens``) do not."""
_QUERY_NAME = rf"(?:{SECRET_FIELD.pattern}|key|token|auth|sig|signature|x-amz-[\w-]+)"
SECRET_QUERY_FIELD = re.compile(_QUERY_NAME, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern whose last group (or whole match) is secret.

    ``hints`` are a cheap test, in lower case. Where upper and lower case are one, the pattern is in lower case and so
    is the text it is given: much quicker than IGNORECASE.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    lower: bool


def _rule(kind: str, hints: str | tuple[str, ...], pattern: str, *, lower: bool = False) -> _Rule:
    return _Rule(kind, (hints,) if isinstance(hints, str) else hints, re.compile(pattern), lower)


_RULES = (
    _rule(
        "private key",
        "private key-----",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^\"']*?(?:-----END[A-Z ]*-----|(?=[\"'])|\Z)",
    ),
    _rule("API key", "sk-", r"\bsk-[A-Za-z0-9_-]{16,}"),
    _rule("API key", "tvly-", r"\btvly-[A-Za-z0-9_-]{10,}"),
    _rule("API key", "bsa", r"\bBSA[A-Za-z0-9_-]{20,}"),
    _rule("API key", "hf_", r"\bhf_[A-Za-z0-9]{20,}"),
    _rule("API key", "gsk_", r"\bgsk_[A-Za-z0-9]{20,}"),
    _rule("API key", "xai-", r"\bxai-[A-Za-z0-9]{20,}"),
    _rule("API key", "nvapi-", r"\bnvapi-[A-Za-z0-9_-]{20,}"),
    _rule("API key", "aiza", r"\bAIza[A-Za-z0-9_-]{30,}"),
    _rule("access key", "akia", r"\bAKIA[A-Z0-9]{16}\b"),
    _rule(
        "access token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"\b(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}",
    ),
    _rule("access token", "glpat-", r"\bglpat-[A-Za-z0-9_-]{16,}"),
    _rule("access token", "xox", r"\bxox[abeprs]-[A-Za-z0-9-]{10,}"),
    _rule("access token", "eyj", r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    _rule("credential", "bearer", r"\bbearer\s+((?=[^\s\"'\\]*\d)[\w.~+/=-]{12,})", lower=True),
    _rule("credential", "basic", r"\bauthorization\W{1,4}basic\s+([\w+/=-]{8,})", lower=True),
    _rule("password in a URL", "://", r"://[^/\s:@\"'\\]*:([^/\s@\"'\\]+)@"),
    _rule("key in a URL", "=", rf"[?&;]{_QUERY_NAME}=([^&;#\s\"'<>\\`)]+)", lower=True),
    _rule(
        "key in JSON",
        '"',
        # what the second line leaves out is a token of the model's, with its log probability
        rf"\"{SECRET_FIELD.pattern}\\?\"\s*:\s*\\?\"([^\"\\]{{8,}}+)"
        r"(?!(?:\\.|[^\"\\])*\\?\"\s*,\s*\\?\"logprob)",
        lower=True,
    ),
    _rule("assigned key", _NAME_HINTS, rf"{_NAME}\s*[=:]\s*[\"']?((?=[^\s\"']*\d)[\w.~+/-]{{12,}})", lower=True),
)


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
    for rule in _RULES:
        if any(hint in lower for hint in rule.hints):
            for match in rule.pattern.finditer(lower if rule.lower else text):
                group = match.lastindex or 0
                if match[group] != REDACTED:
                    found.append((match.start(group), match.end(group), rule.kind))
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
