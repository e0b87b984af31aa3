"""Hosts as browsers read them: ``hosts.json`` is what Node's URL parser made of each (``hosts.mjs`` writes it)."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.tools.web_search.domains import DomainFilter, read_url
from gateway.tools.web_search.hosts import read_host

NODE: dict[str, str | None] = json.loads(Path(__file__).with_name("hosts.json").read_text())
LEFT_OUT = {"ẞ.de"}
"""Programs disagree on where it leads."""


@pytest.mark.parametrize("host", NODE)
def test_a_host_is_where_a_browser_goes(host: str) -> None:
    address = read_url(f"https://{host}/x")
    browsers = NODE[host]
    if host in LEFT_OUT:
        assert address is None
    elif browsers is not None:
        assert address is not None
        assert address.host == browsers.strip("[]").rstrip(".")


@pytest.mark.parametrize("host", [host for host, browsers in NODE.items() if browsers])
def test_what_is_blocked_cannot_be_written_another_way(host: str) -> None:
    address, browsers = read_url(f"https://{host}/x"), NODE[host] or ""
    for entry in (browsers, host):
        assert address is None or not DomainFilter([], [entry]).admits(address)


@pytest.mark.parametrize(
    "host", ["a" * 254, "%", "%zz.com", "%E9vil.com", "a%40evil.com", "1.2.3.4.5", "08.1.1.1", "foo.0x1", "a^b.com", ""]
)
def test_what_leads_nowhere_is_no_host(host: str) -> None:
    assert read_host(host) is None
    assert read_url(f"https://{host}/x") is None
    address = read_url("https://evil.com/")
    assert address is not None
    assert not DomainFilter([host], []).admits(address)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_reading_what_was_read_changes_nothing(host: str) -> None:
    read = read_host(host)
    assert read is None or (read.isascii() and read_host(read) == read)
