"""Domain filters: which addresses an entry covers, and what a provider is told of it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tools.base import SearchQuery
from gateway.tools.web_search.domains import Domain, DomainFilter, read_url, shorten, with_site_operators


def covers(entry: str, url: str) -> bool:
    """Whether a filter entry covers a page."""
    address = read_url(url)
    assert address is not None, f"not a page: {url}"
    return DomainFilter([entry], []).admits(address)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("example.com", "https://example.com/"),
        ("example.com", "http://example.com"),
        ("example.com", "https://docs.example.com/a?b=c"),
        ("example.com", "https://www.example.com:8443/a"),
        ("example.com", "https://EXAMPLE.com./a"),
        ("Example.COM.", "https://example.com/a"),
        ("https://example.com", "http://example.com/a"),
        ("https://example.com/", "https://example.com/a"),
        ("//example.com", "https://example.com/a"),
        ("example.com:8080", "https://example.com/a"),
        ("*.example.com", "https://docs.example.com/a"),
        ("www.example.com", "https://example.com/a"),
        ("www.example.com", "https://www.example.com/a"),
        ("example.com/blog", "https://www.example.com/blog/x"),
        ("example.com/blog", "https://example.com/blog"),
        ("example.com/blog/", "https://example.com/blog?page=2"),
        ("example.com/blog/*", "https://example.com/blog/x"),
        ("example.com/blog", "https://example.com/bl%6Fg/x"),
        ("example.com/blog", "https://example.com/news/../blog/x"),
        ("bücher.example", "https://xn--bcher-kva.example/a"),
        ("xn--bcher-kva.example", "https://shop.BÜCHER.example/a"),
        ("例え。テスト", "https://例え.テスト/a"),
        ("127.0.0.1", "http://127.0.0.1:3000/a"),
        ("[::1]:80", "http://[::1]/a"),
    ],
)
def test_an_entry_covers_its_domain_and_what_is_below(entry: str, url: str) -> None:
    assert covers(entry, url)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("ample.com", "https://example.com/"),
        ("example.com", "https://example.com.evil.net/"),
        ("example.com", "https://notexample.com/"),
        ("example.com", "https://evil.net/example.com"),
        ("example.com", "https://example.com@evil.net/"),
        ("docs.example.com", "https://example.com/"),
        ("www.example.com", "https://docs.example.com/"),
        ("example.com/blog", "https://example.com/blogger"),
        ("example.com/blog", "https://example.com/"),
        ("example.com/blog", "https://example.com/blog/../private"),
        ("example.com/blog", "https://example.com/Blog"),
    ],
)
def test_an_entry_covers_nothing_else(entry: str, url: str) -> None:
    assert not covers(entry, url)


@pytest.mark.parametrize("entry", ["", "   ", "https://", "/blog", "[", "http://[::1", "*."])
def test_what_names_no_domain_covers_nothing(entry: str) -> None:
    assert Domain.parse(entry) is None


label = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True)
top = st.from_regex(r"[a-z]{2,6}", fullmatch=True)  # with a number there it would be an address
host = st.tuples(st.lists(label, min_size=1, max_size=3), top).map(lambda parts: ".".join([*parts[0], parts[1]]))


@settings(deadline=None, max_examples=50)
@given(host, host)
def test_a_host_is_covered_exactly_if_it_is_the_domain_or_ends_in_a_dot_and_the_domain(domain: str, other: str) -> None:
    expected = other == domain or other.endswith("." + domain) or "www." + other == domain
    assert covers(domain, f"https://{other}/") is expected


@settings(deadline=None, max_examples=50)
@given(
    host, label, st.sampled_from(["", "https://", "HTTP://", "//"]), st.sampled_from(["", ".", ":443"]), st.booleans()
)
def test_how_an_entry_is_typed_makes_no_difference(domain: str, below: str, scheme: str, end: str, upper: bool) -> None:
    typed = scheme + (domain.upper() if upper else domain) + end
    assert covers(typed, f"https://{domain}/")
    assert covers(typed, f"https://{below}.{domain}/x")
    assert not covers(typed, f"https://{below}{domain}/x")


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=40), st.text(max_size=40))
def test_no_entry_and_no_url_breaks_the_filter(entry: str, url: str) -> None:
    address = read_url(url)
    domains = DomainFilter([entry], [entry])
    assert address is None or not domains.admits(address)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "javascript:alert(1)",
        "data:text/html,x",
        "//example.com/",
        "example.com",
        "https://",
        "https:///path",
        "https://exa mple.com/",
        "https://example.com/a b",
        "https://example.com/a\nb",
        "https://example.com/\ud800",
        "https://example.com/\u202emoc.live",
        "https://example.com\\@evil.net/",
        "https://example.com:99999/",
        "https://[::1/",
        "https://example.com/" + "a" * 2000,
        "",
    ],
)
def test_only_plain_http_urls_are_pages(url: str) -> None:
    assert read_url(url) is None


def test_allowed_and_blocked_hold_together() -> None:
    domains = DomainFilter(["example.com"], ["example.com/private"])
    shown = [
        url
        for url in ("https://example.com/a", "https://example.com/private/b", "https://other.net/")
        if (address := read_url(url)) and domains.admits(address)
    ]
    assert shown == ["https://example.com/a"]


def test_an_allow_list_that_names_nothing_does_not_open_the_web() -> None:
    domains = DomainFilter(["http://"], [])
    address = read_url("https://example.com/")
    assert address is not None
    assert not domains.admits(address)
    assert domains


def test_without_entries_everything_is_admitted() -> None:
    domains = DomainFilter([], [])
    address = read_url("https://example.com/")
    assert address is not None
    assert domains.admits(address)
    assert not domains


def test_providers_are_told_a_superset_of_the_allowed_and_a_subset_of_the_blocked() -> None:
    domains = DomainFilter(
        ["https://Example.com/blog", "example.com", "www.b.net"], ["c.org/only-this", "d.org", "www.e.org"]
    )
    assert domains.include_hosts == ("example.com", "b.net")
    assert domains.exclude_hosts == ("d.org", "www.e.org")


def test_hosts_become_site_operators() -> None:
    one = SearchQuery("rust", 8, include_hosts=("a.com",), exclude_hosts=("b.com", "c.com"))
    two = SearchQuery("rust", 8, include_hosts=("a.com", "b.com"))
    assert with_site_operators(one) == "rust site:a.com -site:b.com -site:c.com"
    assert with_site_operators(two) == "rust (site:a.com OR site:b.com)"
    assert with_site_operators(SearchQuery("rust", 8)) == "rust"


def test_operators_over_the_providers_limit_are_left_out() -> None:
    query = SearchQuery("rust release", 8, include_hosts=tuple(f"host-{n}.example.com" for n in range(30)))
    assert with_site_operators(query, max_chars=400, max_words=50) == "rust release"


@settings(deadline=None, max_examples=50)
@given(st.text(alphabet="ab ", max_size=60), st.integers(1, 40), st.integers(1, 20))
def test_a_shortened_query_keeps_whole_words_within_the_limits(text: str, max_chars: int, max_words: int) -> None:
    short = shorten(text, max_chars=max_chars, max_words=max_words)
    assert len(short) <= max_chars
    assert len(short.split()) <= max_words
    words = text.split()
    if words and len(words[0]) <= max_chars:
        assert short.split() == words[: len(short.split())]
