"""Which headers a cassette holds, and which ones go on."""

from recorder.headers import end_to_end, recorded_headers


def test_headers_of_the_connection_are_not_recorded() -> None:
    pairs = [(b"Connection", b"close"), (b"Via", b"a"), (b"VIA", b"b"), (b"Host", b"h"), (b"Content-Length", b"3")]
    assert recorded_headers(pairs) == {"via": "a, b"}


def test_headers_of_the_connection_do_not_go_on() -> None:
    pairs = [(b"Connection", b"close, X-Hop"), (b"x-hop", b"1"), (b"Via", b"a"), (b"TE", b"trailers"), (b"Host", b"h")]
    assert end_to_end(pairs) == [(b"via", b"a"), (b"host", b"h")]
