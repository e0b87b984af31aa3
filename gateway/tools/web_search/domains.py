"""Domain filters: whether a result's address lies within the domains a caller allows or blocks."""

import posixpath
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

import idna

from gateway.tools.base import SearchQuery

URL_MAX_CHARS = 2000
"""A longer address is dropped: no browser is sure to take it."""

_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# A backslash too: browsers read it as a slash, urlsplit does not, so that the two would see different hosts.
# What turns the direction of text makes one address look like another; a lone surrogate is no character at all.
_NOT_IN_A_URL = re.compile(r"[\x00-\x20\x7f-\xa0\\\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a web page is: ``host`` lower case and in punycode, ``path`` decoded and without dot segments."""

    host: str
    path: str


def read_url(url: str) -> Address | None:
    """The address of an http(s) URL; None for anything else, and for a URL no two programs read alike."""
    if len(url) > URL_MAX_CHARS or _NOT_IN_A_URL.search(url):
        return None
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return Address(_normal_host(parts.hostname or ""), _normal_path(parts.path)) if valid else None


@dataclass(frozen=True, slots=True)
class Domain:
    """One entry of a filter: a domain with its subdomains, below ``path`` (``/`` is all of it).

    A typed ``www.`` means the site: the bare domain matches too, other subdomains do not.
    """

    host: str
    path: str = "/"

    @classmethod
    def parse(cls, typed: str) -> "Domain | None":
        """Read what a person typed: scheme, port, ``*.``, a closing ``/*``, query and fragment are ignored."""
        rest = _SCHEME.sub("", typed.strip()).removeprefix("//").removeprefix("*.")
        try:
            parts = urlsplit("//" + rest)
            host = parts.hostname
        except ValueError:
            return None
        if not host:
            return None
        return cls(_normal_host(host), _normal_path(parts.path.removesuffix("*")))

    def matches(self, address: Address) -> bool:
        """Whether ``address`` lies within."""
        host, path = address.host, address.path
        same_site = host == self.host or host.endswith("." + self.host) or "www." + host == self.host
        return same_site and (self.path == "/" or path == self.path or path.startswith(self.path + "/"))


class DomainFilter:
    """What a call allows and blocks.

    An allowed entry that names no domain matches nothing; it does not open the web.
    """

    def __init__(self, allowed: Sequence[str], blocked: Sequence[str]) -> None:
        self._only_allowed = bool(allowed)
        self._allowed = _parse_all(allowed)
        self._blocked = _parse_all(blocked)

    def __bool__(self) -> bool:
        """Whether anything is filtered at all."""
        return self._only_allowed or bool(self._blocked)

    def admits(self, address: Address) -> bool:
        """Whether a result at ``address`` may be shown."""
        if self._only_allowed and not any(domain.matches(address) for domain in self._allowed):
            return False
        return not any(domain.matches(address) for domain in self._blocked)

    @property
    def include_hosts(self) -> tuple[str, ...]:
        """Hosts that together hold all that is allowed; empty where nothing restricts."""
        return tuple(dict.fromkeys(domain.host.removeprefix("www.") for domain in self._allowed))

    @property
    def exclude_hosts(self) -> tuple[str, ...]:
        """Hosts blocked as a whole."""
        return tuple(dict.fromkeys(domain.host for domain in self._blocked if domain.path == "/"))


def with_site_operators(query: SearchQuery, *, max_chars: int = 1500, max_words: int = 200) -> str:
    """The query with ``site:`` operators for a provider without domain parameters, within the provider's limits.

    A text over the limit is cut between words. Operators that do not fit are left out: they only save results that the
    filter would drop.
    """
    text = shorten(query.text, max_chars=max_chars, max_words=max_words)
    sites = [f"site:{host}" for host in query.include_hosts]
    operators = ["(" + " OR ".join(sites) + ")"] if len(sites) > 1 else sites
    operators += [f"-site:{host}" for host in query.exclude_hosts]
    whole = " ".join([text, *operators])
    return whole if len(whole) <= max_chars and len(whole.split()) <= max_words else text


def shorten(text: str, *, max_chars: int, max_words: int | None = None) -> str:
    """``text`` cut between words to the limits; a single word longer than ``max_chars`` is cut inside."""
    text = " ".join(text.split()[:max_words])
    if len(text) <= max_chars:
        return text
    cut = text[:max_chars]
    return cut if text[max_chars] == " " or " " not in cut else cut.rpartition(" ")[0]


def _parse_all(typed: Iterable[str]) -> tuple[Domain, ...]:
    return tuple(domain for domain in map(Domain.parse, typed) if domain is not None)


def _normal_host(host: str) -> str:
    if not host.isascii():
        # What is no name for DNS is compared as it is.
        with suppress(idna.IDNAError):
            host = idna.encode(host, uts46=True).decode("ascii")
    return host.rstrip(".").lower()


def _normal_path(path: str) -> str:
    """Decoded, dot segments resolved, no slash at the end (but ``/`` for the root)."""
    return "/" + posixpath.normpath("/" + unquote(path)).lstrip("/")
