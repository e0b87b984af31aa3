"""Connections: kept and used again, found dead, never made, too slow."""

import asyncio
import socket
import ssl

import pytest
import trustme

from gateway.errors import UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from gateway.upstream import Upstream
from gateway.upstream.connection import Connection
from gateway.upstream.origin import parse_origin
from gateway.upstream.pool import Pool
from tests.upstream.peer import OK, Peer, Server, next_piece, serve

pytestmark = pytest.mark.anyio


async def ask(upstream: Upstream) -> bytes:
    """One whole exchange."""
    return await (await upstream.request("POST", "/", [], b"{}")).read()


async def answer_all(peer: Peer) -> None:
    """Answer until the client closes, with the connection's number."""
    try:
        while True:
            await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n%d" % peer.number)
    except asyncio.IncompleteReadError:
        pass


async def stall(peer: Peer) -> None:
    """Accept, and never say a word."""
    await peer.gone()


async def test_a_connection_is_used_again() -> None:
    async with serve(answer_all) as server:
        upstream = Upstream(server.origin)
        assert [await ask(upstream) for _ in range(3)] == [b"1", b"1", b"1"]
        await upstream.aclose()


async def test_concurrent_requests_have_a_connection_each_and_the_last_one_back_goes_out_first() -> None:
    async def talk(peer: Peer) -> None:
        await peer.request()
        arrived[peer.number].set()
        await release[peer.number].wait()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n%d" % peer.number)
        await answer_all(peer)

    arrived = {1: asyncio.Event(), 2: asyncio.Event()}
    release = {1: asyncio.Event(), 2: asyncio.Event()}
    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        tasks = {}
        for number in (1, 2):
            tasks[number] = asyncio.create_task(ask(upstream))
            await arrived[number].wait()
        for number in (2, 1):
            release[number].set()
            assert await tasks[number] == b"%d" % number
        assert [await ask(upstream), await ask(upstream)] == [b"1", b"1"]
        assert server.accepted == 2
        await upstream.aclose()


async def test_no_more_than_the_limit_are_kept() -> None:
    async def talk(peer: Peer) -> None:
        await peer.request()
        if peer.number == 2:
            both.set()
        await both.wait()
        await peer.send(OK)
        await peer.gone()
        closed.set()

    both, closed = asyncio.Event(), asyncio.Event()
    async with serve(talk) as server:
        upstream = Upstream(server.origin, max_idle_connections=1, keep_alive_s=60)
        assert list(await asyncio.gather(ask(upstream), ask(upstream))) == [b"ok", b"ok"]
        await closed.wait()
        await upstream.aclose()


async def test_an_idle_connection_expires() -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer()
        await peer.gone()
        closed.set()

    closed = asyncio.Event()
    async with serve(talk) as server:
        upstream = Upstream(server.origin, keep_alive_s=0.02)
        assert await ask(upstream) == b"ok"
        await closed.wait()
        assert await ask(upstream) == b"ok"
        assert server.accepted == 2
        await upstream.aclose()


async def test_a_connection_found_closed_is_not_used() -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer()
        if peer.number == 1:
            peer.writer.write_eof()
            assert await peer.reader.read() == b""  # nothing more was asked here
            closed.set()

    closed = asyncio.Event()
    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        assert await ask(upstream) == b"ok"
        await closed.wait()
        assert await ask(upstream) == b"ok"
        assert server.accepted == 2
        await upstream.aclose()


def pool_to(server: Server) -> Pool:
    return Pool(
        parse_origin(server.origin),
        connect_timeout_s=5,
        first_byte_timeout_s=5,
        idle_timeout_s=5,
        keep_alive_s=5,
        max_idle=5,
        ssl_context=None,
    )


async def test_a_pool_does_not_hand_out_what_has_expired() -> None:
    async with serve(stall) as server:
        pool = pool_to(server)
        connection = await pool.connect()
        pool.idle(connection)
        connection.idle_since = connection.loop.time() - 6
        assert pool.take() is None
        await pool.aclose()


async def test_a_closed_pool_has_no_connection_left_and_makes_no_other() -> None:
    async with serve(stall) as server:
        pool = pool_to(server)
        await pool.connect()
        await pool.aclose()
        assert not pool.connections
    with pytest.raises(UpstreamUnreachable, match="the gateway is closing"):
        await pool.connect()


async def test_a_pool_skips_what_is_closing_and_forgets_what_is_closed() -> None:
    async def talk(peer: Peer) -> None:
        await close.wait()
        peer.writer.write_eof()
        await peer.gone()
        closed.release()

    close, closed = asyncio.Event(), asyncio.Semaphore(0)
    async with serve(talk) as server:
        pool = pool_to(server)
        for _ in range(2):
            connection = await pool.connect()
            connection.idle_since = connection.loop.time()
            pool.idle(connection)
        connection.drop()
        taken = pool.take()
        assert taken is not None
        assert taken is not connection
        pool.idle(taken)

        close.set()
        for _ in range(2):
            await closed.acquire()
        assert pool.kept == []
        await pool.aclose()


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_request_that_meets_a_stale_connection_is_sent_again(how: str) -> None:
    seen = []

    async def talk(peer: Peer) -> None:
        await peer.answer()
        seen.append(await peer.request())
        if peer.number == 1 and how == "reset":
            peer.reset()
        elif peer.number == 2:
            await peer.send(OK)

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        assert await ask(upstream) == b"ok"
        assert await ask(upstream) == b"ok"
        assert server.accepted == 2
        assert await ask(upstream) == b"ok"
        assert [request.split(b" ", 1)[0] for request in seen] == [b"POST", b"POST"]
        await upstream.aclose()


async def test_a_request_is_sent_again_only_once() -> None:
    async def talk(peer: Peer) -> None:
        if peer.number == 1:
            await peer.answer()
        await peer.request()

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        assert await ask(upstream) == b"ok"
        with pytest.raises(UpstreamBroken, match="before it answered"):
            await ask(upstream)
        assert server.accepted == 2
        await upstream.aclose()


@pytest.mark.parametrize("answer", [b"H", b"HTTP/1.1 100 Continue\r\n\r\n", b"not HTTP"])
async def test_a_request_that_had_a_byte_of_an_answer_is_not_sent_again(answer: bytes) -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer()
        await peer.answer(answer)

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        assert await ask(upstream) == b"ok"
        with pytest.raises(UpstreamBroken):
            await ask(upstream)
        assert server.accepted == 1
        await upstream.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
)
async def test_a_connection_upstream_will_close_is_not_kept(answer: bytes) -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer(answer)
        await peer.gone()

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        assert [await ask(upstream), await ask(upstream)] == [b"ok", b"ok"]
        assert server.accepted == 2
        await upstream.aclose()


async def test_an_http_1_0_connection_that_says_keep_alive_is_kept() -> None:
    async def talk(peer: Peer) -> None:
        for _ in range(2):
            await peer.answer(b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok")

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        assert [await ask(upstream), await ask(upstream)] == [b"ok", b"ok"]
        assert server.accepted == 1
        await upstream.aclose()


async def test_nobody_listening_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    upstream = Upstream(f"http://127.0.0.1:{port}")
    with pytest.raises(UpstreamUnreachable) as caught:
        await ask(upstream)
    assert caught.value.message == "cannot connect to upstream: connection refused"
    await upstream.aclose()


async def test_a_name_that_does_not_resolve_is_unreachable() -> None:
    upstream = Upstream("http://nowhere.invalid")
    with pytest.raises(UpstreamUnreachable) as caught:
        await ask(upstream)
    assert caught.value.message == "cannot connect to upstream: its name cannot be resolved"
    await upstream.aclose()


async def test_ipv6() -> None:
    async def talk(peer: Peer) -> None:
        heads.append(await peer.head())
        await peer.send(OK)

    heads: list[bytes] = []
    async with serve(talk, host="::1") as server:
        upstream = Upstream(f"http://[::1]:{server.port}")
        assert await (await upstream.request("GET", "/", [])).read() == b"ok"
        assert heads == [b"GET / HTTP/1.1\r\nhost: [::1]:%d\r\n\r\n" % server.port]
        await upstream.aclose()


async def test_upstream_that_does_not_begin_to_answer_times_out() -> None:
    async def talk(peer: Peer) -> None:
        await peer.request()
        await peer.gone()
        left.set()

    left = asyncio.Event()
    async with serve(talk) as server:
        upstream = Upstream(server.origin, first_byte_timeout_s=0.05)
        with pytest.raises(UpstreamTimeout) as caught:
            await ask(upstream)
        assert (caught.value.stage, caught.value.status) == ("first byte", 504)
        await left.wait()
        assert server.accepted == 1
        await upstream.aclose()


async def test_a_silence_in_the_body_times_out_but_not_for_a_reader_who_is_away() -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no")
        if peer.number == 1:
            await silent.wait()
            await peer.send(b"k")
        await peer.gone()

    silent = asyncio.Event()
    async with serve(talk) as server:
        upstream = Upstream(server.origin, idle_timeout_s=0.05)
        away = await upstream.request("POST", "/", [], b"{}")
        waiting = await upstream.request("POST", "/", [], b"{}")
        assert await next_piece(waiting) == b"o"
        with pytest.raises(UpstreamTimeout) as caught:
            await next_piece(waiting)
        assert caught.value.stage == "idle"
        silent.set()  # for as long, nobody had read the other answer
        assert await away.read() == b"ok"
        await upstream.aclose()


async def test_closing_ends_every_connection_and_what_is_under_way() -> None:
    async def talk(peer: Peer) -> None:
        target = (await peer.request()).split(b" ")[1]
        if target == b"/idle":
            await idle.wait()
            await peer.send(OK)
        elif target == b"/reading":
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no")
        else:
            waiting.set()
        await peer.gone()
        left.release()

    idle, waiting, left = asyncio.Event(), asyncio.Event(), asyncio.Semaphore(0)
    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        before_the_head = asyncio.create_task(upstream.request("GET", "/waiting", []))
        complete = asyncio.create_task(upstream.request("GET", "/idle", []))
        reading = await upstream.request("GET", "/reading", [])
        await waiting.wait()
        idle.set()
        assert await (await complete).read() == b"ok"

        await upstream.aclose()
        assert await next_piece(reading) == b"o"
        for under_way in (next_piece(reading), before_the_head):
            with pytest.raises(UpstreamBroken):
                await under_way
        for _ in range(3):
            await left.acquire()
        with pytest.raises(UpstreamUnreachable, match="the gateway is closing"):
            await ask(upstream)
        await upstream.aclose()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_tls(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def client_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


async def test_tls_names_the_host_and_checks_the_certificate(authority: trustme.CA) -> None:
    asked_for: list[str | None] = []
    tls = server_tls(authority, "localhost")
    tls.sni_callback = lambda _, name, __: asked_for.append(name)

    async with serve(answer_all, tls=tls) as server:
        upstream = Upstream(f"https://localhost:{server.port}", ssl_context=client_tls(authority))
        assert [await ask(upstream), await ask(upstream)] == [b"1", b"1"]
        assert asked_for == ["localhost"]
        await upstream.aclose()


async def test_tls_to_an_address_checks_the_address(authority: trustme.CA) -> None:
    async with serve(answer_all, tls=server_tls(authority, "127.0.0.1")) as server:
        upstream = Upstream(f"https://127.0.0.1:{server.port}", ssl_context=client_tls(authority))
        assert await ask(upstream) == b"1"
        await upstream.aclose()


@pytest.mark.parametrize("fault", ["unknown authority", "another name"])
async def test_a_certificate_that_cannot_be_trusted_is_unreachable(authority: trustme.CA, fault: str) -> None:
    tls = server_tls(authority, "localhost" if fault == "unknown authority" else "elsewhere.example")
    trust = None if fault == "unknown authority" else client_tls(authority)

    async with serve(answer_all, tls=tls) as server:
        upstream = Upstream(f"https://localhost:{server.port}", ssl_context=trust)
        with pytest.raises(UpstreamUnreachable) as caught:
            await ask(upstream)
        assert caught.value.message == "cannot connect to upstream: its certificate could not be verified"
        await upstream.aclose()


async def test_tls_towards_a_server_without_it_is_unreachable() -> None:
    async def talk(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serve(talk) as server:
        upstream = Upstream(f"https://127.0.0.1:{server.port}")
        with pytest.raises(UpstreamUnreachable) as caught:
            await ask(upstream)
        assert "127.0.0.1" not in caught.value.message
        await upstream.aclose()


async def test_a_connection_that_is_not_made_in_time_times_out() -> None:
    async with serve(stall) as server:
        upstream = Upstream(f"https://127.0.0.1:{server.port}", connect_timeout_s=0.05)
        with pytest.raises(UpstreamTimeout) as caught:
            await ask(upstream)
        assert (caught.value.stage, caught.value.status) == ("connect", 504)
        await upstream.aclose()


async def test_cancelling_in_the_moment_of_connecting_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop then closes the connection without telling it; a pool that waited for that would never close."""

    def opened_and_left(connection: Connection) -> None:
        opened(connection)
        task.cancel()

    async with serve(stall) as server:
        pool = pool_to(server)
        opened = pool.opened
        monkeypatch.setattr(pool, "opened", opened_and_left)
        task = asyncio.create_task(pool.connect())
        with pytest.raises(asyncio.CancelledError):
            await task
        assert pool.connections == set()
        async with asyncio.timeout(5):
            await pool.aclose()


async def test_cancelling_while_connecting_closes_the_connection() -> None:
    async def talk(peer: Peer) -> None:
        assert await peer.reader.read(1)  # the handshake has begun
        begun.set()
        await peer.gone()
        left.set()

    begun, left = asyncio.Event(), asyncio.Event()
    async with serve(talk) as server:
        upstream = Upstream(f"https://127.0.0.1:{server.port}")
        task = asyncio.create_task(ask(upstream))
        await begun.wait()
        task.cancel()
        await left.wait()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.aclose()


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})])  # asyncio's own TLS cannot tell
async def test_a_body_that_ends_with_the_connection_must_end_with_the_tls_session(authority: trustme.CA) -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer(b"HTTP/1.0 200 OK\r\n\r\nmaybe all")
        await read.wait()
        if peer.number == 2:
            peer.writer.transport.abort()  # a FIN without the session's end: anyone could have sent it

    read = asyncio.Event()
    async with serve(talk, tls=server_tls(authority, "localhost")) as server:
        upstream = Upstream(f"https://localhost:{server.port}", ssl_context=client_tls(authority))
        ended = await upstream.request("GET", "/", [])
        cut = await upstream.request("GET", "/", [])
        for response in (ended, cut):
            assert await next_piece(response) == b"maybe all"
        read.set()
        assert await next_piece(ended) == b""
        with pytest.raises(UpstreamBroken):
            await next_piece(cut)
        await upstream.aclose()
