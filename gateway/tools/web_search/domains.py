"""Domain filters: whether a result's address lies within the domains a caller allows or blocks."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from gateway.tools.base import SearchQuery
from gateway.tools.web_search.hosts import read_host

URL_MAX_CHARS = 2000
"""A longer address is dropped: no browser is sure to take it."""

_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# A backslash too: browsers read it as a slash, urlsplit does not, so that the two would see different hosts.
# What turns the direction of text makes one address look like another; a lone surrogate is no character at all.
_NOT_IN_A_URL = re.compile(r"[\x00-\x20\x7f-\xa0\\\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a web page is: ``host`` as :func:`read_host` has it, ``path`` decoded and without dot segments."""

    host: str
    path: str


def read_url(url: str) -> Address | None:
    """The address of an http(s) URL; None for anything else, and for a URL no two programs read alike."""
    if len(url) > URL_MAX_CHARS or _NOT_IN_A_URL.search(url):
        return None
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.port != 0
    except ValueError:
        return None
    host = read_host(_host_in(parts.netloc)) if valid else None
    return None if host is None else Address(host, _normal_path(parts.path))


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
        if len(typed) > URL_MAX_CHARS:
            return None  # no page's address is so long
        rest = _SCHEME.sub("", typed.strip()).removeprefix("//").removeprefix("*.")
        try:
            parts = urlsplit("//" + rest)
        except ValueError:
            return None
        host = read_host(_host_in(parts.netloc))
        return None if host is None else cls(host, _normal_path(parts.path.removesuffix("*")))


class _Domains:
    """The entries of one list. Whether an address lies within one takes no longer for a thousand than for one."""

    def __init__(self, typed: Iterable[str]) -> None:
        self.entries = tuple(domain for domain in map(Domain.parse, typed) if domain is not None)
        self._paths: dict[str, set[str]] = {}
        for domain in self.entries:
            self._paths.setdefault(domain.host, set()).add(domain.path)

    def hold(self, address: Address) -> bool:
        """Whether ``address`` lies within one of them."""
        of_site = [self._paths[host] for host in _sites(address.host) if host in self._paths]
        return bool(of_site) and any(path in paths for path in _above(address.path) for paths in of_site)


def _sites(host: str) -> Iterator[str]:
    """The hosts of entries that this one lies within."""
    yield host
    yield "www." + host
    while "." in host:
        host = host.partition(".")[2]
        yield host


def _above(path: str) -> Iterator[str]:
    """The paths of entries that this one lies below."""
    yield "/"
    at = 0
    while (at := path.find("/", at + 1)) >= 0:
        yield path[:at]
    yield path


class DomainFilter:
    """What a call allows and blocks.

    An allowed entry that names no domain matches nothing; it does not open the web.
    """

    def __init__(self, allowed: Sequence[str], blocked: Sequence[str]) -> None:
        self._only_allowed = bool(allowed)
        self._allowed = _Domains(allowed)
        self._blocked = _Domains(blocked)

    def __bool__(self) -> bool:
        """Whether anything is filtered at all."""
        return self._only_allowed or bool(self._blocked.entries)

    def admits(self, address: Address) -> bool:
        """Whether a result at ``address`` may be shown."""
        return (not self._only_allowed or self._allowed.hold(address)) and not self._blocked.hold(address)

    @property
    def include_hosts(self) -> tuple[str, ...]:
        """Hosts that together hold all that is allowed; empty where nothing restricts."""
        return tuple(dict.fromkeys(domain.host.removeprefix("www.") for domain in self._allowed.entries))

    @property
    def exclude_hosts(self) -> tuple[str, ...]:
        """Hosts blocked as a whole."""
        return tuple(dict.fromkeys(domain.host for domain in self._blocked.entries if domain.path == "/"))


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


def _host_in(netloc: str) -> str:
    """The host as it is written; ``hostname`` of the standard library has made other letters of some."""
    host = netloc.rpartition("@")[2]
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _normal_path(path: str) -> str:
    """Decoded, dot segments resolved, no slash at the end (but ``/`` for the root)."""
    return "/" + posixpath.normpath("/" + unquote(path)).lstrip("/")
