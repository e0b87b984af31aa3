"""What crosses the gateway, and what stays on its hop."""

import pytest

from gateway.wire.headers import Headers, header, response_headers, upstream_headers

CLIENT: Headers = [
    (b"host", b"gateway:9000"),
    (b"content-length", b"12"),
    (b"content-type", b"application/json"),
    (b"anthropic-version", b"2023-06-01"),
    (b"anthropic-beta", b"one,two"),
    (b"anthropic-beta", b"three"),
    (b"x-api-key", b"client-key"),
    (b"authorization", b"Bearer client-token"),
    (b"accept-encoding", b"gzip, br"),
]


def names(headers: Headers) -> list[bytes]:
    return [name for name, _ in headers]


def test_end_to_end_headers_pass_in_order_with_duplicates() -> None:
    assert upstream_headers(CLIENT, upstream_api_key=None, gateway_keys=False) == CLIENT[2:]


@pytest.mark.parametrize(
    "name",
    [
        b"connection",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"proxy-connection",
        b"proxy-authorization",
        b"expect",
    ],
)
def test_what_is_for_this_hop_stays(name: bytes) -> None:
    assert upstream_headers([(name, b"x"), (b"a", b"b")], upstream_api_key=None, gateway_keys=False) == [(b"a", b"b")]


def test_what_connection_names_stays_too() -> None:
    client = [(b"x-hop", b"1"), (b"connection", b"close, X-Hop"), (b"x-end", b"2"), (b"connection", b"x-second")]
    client.append((b"x-second", b"3"))
    assert upstream_headers(client, upstream_api_key=None, gateway_keys=False) == [(b"x-end", b"2")]


def test_gateway_keys_never_go_upstream() -> None:
    sent = upstream_headers(CLIENT, upstream_api_key=None, gateway_keys=True)
    assert not {b"x-api-key", b"authorization"} & set(names(sent))


@pytest.mark.parametrize("gateway_keys", [False, True])
def test_the_upstream_key_replaces_the_clients_credentials(gateway_keys: bool) -> None:
    sent = upstream_headers(CLIENT, upstream_api_key="secret", gateway_keys=gateway_keys)
    assert b"x-api-key" not in names(sent)
    assert [value for name, value in sent if name == b"authorization"] == [b"Bearer secret"]


def test_identity_encoding_is_asked_for_in_place_of_the_clients() -> None:
    sent = upstream_headers(CLIENT, upstream_api_key=None, gateway_keys=False, identity=True)
    assert [value for name, value in sent if name == b"accept-encoding"] == [b"identity"]


def test_an_answers_headers_pass_but_for_this_hops() -> None:
    upstream = [
        (b"content-type", b"text/event-stream"),
        (b"transfer-encoding", b"chunked"),
        (b"connection", b"keep-alive"),
        (b"keep-alive", b"timeout=5"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"content-length", b"3"),
    ]
    assert response_headers(upstream) == [upstream[0], *upstream[4:]]


def test_the_first_of_a_header_counts() -> None:
    assert header(CLIENT, b"anthropic-beta") == b"one,two"
    assert header(CLIENT, b"x-none") is None
