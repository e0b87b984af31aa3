"""Requests and answers over a socket: what goes out, byte by byte, and what is made of what comes back."""

import asyncio

import pytest

from gateway.errors import InvalidRequest, UpstreamBroken
from gateway.upstream import Headers, Upstream
from gateway.upstream.connection import HEAD_LIMIT
from tests.upstream.peer import OK, Peer, next_piece, serve

pytestmark = pytest.mark.anyio

JSON: Headers = [(b"content-type", b"application/json"), (b"x-twice", b"1"), (b"x-twice", b"2")]


async def test_a_request_is_exactly_what_was_asked_for() -> None:
    seen = []

    async def talk(peer: Peer) -> None:
        for _ in range(3):
            seen.append(await peer.request())
            await peer.send(OK)

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        for method, target, headers, body in (
            ("POST", "/v1/messages?beta=true", JSON, b'{"stream": true}'),
            ("POST", "/v1/messages", [], b""),
            ("GET", "/v1/models/caf\xe9", [], b""),
        ):
            assert await (await upstream.request(method, target, headers, body)).read() == b"ok"
        await upstream.aclose()

    host = b"127.0.0.1:%d" % server.port
    assert seen == [
        b"POST /v1/messages?beta=true HTTP/1.1\r\nhost: " + host + b"\r\ncontent-type: application/json\r\n"
        b'x-twice: 1\r\nx-twice: 2\r\ncontent-length: 16\r\n\r\n{"stream": true}',
        b"POST /v1/messages HTTP/1.1\r\nhost: " + host + b"\r\ncontent-length: 0\r\n\r\n",
        b"GET /v1/models/caf\xe9 HTTP/1.1\r\nhost: " + host + b"\r\n\r\n",
    ]


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET", "/ HTTP/1.1\r\nx: y\r\n\r\n", []),
        ("GET", "/a b", []),
        ("GET", "/a\nb", []),
        ("GET", "/\u20ac", []),
        ("GET /x", "/", [(b"a\r\nb", b"")]),
        ("GET", "/", [(b"a", b"1\r\nb: 2")]),
        ("GET", "/", [(b"a", b"1\rb: 2")]),
        ("GET", "/", [(b"a", b"1\nb: 2")]),
    ],
)
async def test_nothing_can_be_slipped_into_a_request(method: str, target: str, headers: Headers) -> None:
    upstream = Upstream("http://127.0.0.1:1")
    with pytest.raises(InvalidRequest):
        await upstream.request(method, target, headers)


async def test_status_and_headers_are_as_sent() -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer(
            b"HTTP/1.1 429 Slow Down\r\nRetry-After: 3\r\nX-Trace: a\r\nx-trace: b\r\nX-Empty:\r\n"
            b"Connection: keep-alive\r\nContent-Length: 4\r\n\r\nwait"
        )

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        response = await upstream.request("POST", "/v1/messages", JSON, b"{}")
        assert response.status == 429
        assert response.headers == [
            (b"retry-after", b"3"),
            (b"x-trace", b"a"),
            (b"x-trace", b"b"),
            (b"x-empty", b""),
            (b"connection", b"keep-alive"),
            (b"content-length", b"4"),
        ]
        assert await response.read() == b"wait"
        await upstream.aclose()


async def test_each_event_is_there_when_it_was_sent() -> None:
    async def talk(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for turn in range(3):
            await read[turn].wait()
            await peer.send(b"9\r\ndata: %d\n\n\r\n" % turn)
        await read[3].wait()
        await peer.send(b"0\r\n\r\n")
        await peer.gone()

    read = [asyncio.Event() for _ in range(4)]
    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        response = await upstream.request("POST", "/", [], b"{}")
        for turn in range(3):
            read[turn].set()
            assert await next_piece(response) == b"data: %d\n\n" % turn
        read[3].set()
        assert await next_piece(response) == b""
        await upstream.aclose()


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
        ("HEAD", b"HTTP/1.1 200 OK\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\ncontent-length: 2000\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
    ],
)
async def test_an_answer_without_a_body_ends_with_its_head(method: str, answer: bytes) -> None:
    async def talk(peer: Peer) -> None:
        if peer.number == 1:
            await peer.request()
            await peer.send(answer)
        if peer.number == 2 or method != "HEAD":  # the connection of a HEAD is not kept
            await peer.answer()

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        response = await upstream.request(method, "/", [])
        assert response.ended
        assert await next_piece(response) == b""
        assert await (await upstream.request("POST", "/", [], b"{}")).read() == b"ok"
        await upstream.aclose()


async def test_interim_answers_are_skipped() -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
        )

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        response = await upstream.request("POST", "/", [], b"{}")
        assert (response.status, response.headers) == (200, [(b"content-length", b"2")])
        assert await response.read() == b"ok"
        await upstream.aclose()


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
    ],
)
async def test_a_body_without_a_length_ends_with_the_connection(head: bytes) -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer(head + b"all there ")
        await peer.send(b"is")

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        assert await (await upstream.request("GET", "/", [])).read() == b"all there is"
        await upstream.aclose()


async def test_a_body_without_a_length_that_is_reset_is_broken() -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer(b"HTTP/1.0 200 OK\r\n\r\nhalf of")
        await read.wait()
        peer.reset()

    read = asyncio.Event()
    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        response = await upstream.request("GET", "/", [])
        assert await next_piece(response) == b"half of"
        read.set()
        with pytest.raises(UpstreamBroken):
            await next_piece(response)
        await upstream.aclose()


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", b"half"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", b"half"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhalf", b"half"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n", b"half"),
    ],
)
async def test_a_body_cut_short_is_broken_after_what_came_of_it(how: str, answer: bytes, told: bytes) -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer(answer)
        await read.wait()
        if how == "reset":
            peer.reset()

    read = asyncio.Event()
    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        response = await upstream.request("POST", "/", [], b"{}")
        assert await next_piece(response) == told
        read.set()
        with pytest.raises(UpstreamBroken, match="in the middle of its answer"):
            await response.read()
        assert not response.ended
        await upstream.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-le",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: five\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * (HEAD_LIMIT * 8) + b"\r\n\r\n",
    ],
    ids=lambda answer: str(answer[:60]),
)
async def test_an_answer_that_is_no_answer_is_broken(answer: bytes) -> None:
    async def talk(peer: Peer) -> None:
        await peer.request()
        peer.writer.write(answer)
        if answer[-4:] != b"\r\n\r\n" and len(answer) < 100:
            return
        await peer.gone()

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        with pytest.raises(UpstreamBroken) as caught:
            await upstream.request("POST", "/", [], b"{}")
        assert "127.0.0.1" not in caught.value.message
        assert server.accepted == 1
        await upstream.aclose()


async def test_a_chunk_size_that_is_no_number_is_broken() -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\ngood\r\nxyz\r\n")
        await peer.gone()

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        response = await upstream.request("POST", "/", [], b"{}")
        with pytest.raises(UpstreamBroken, match="not valid HTTP"):
            await response.read()
        await upstream.aclose()


async def test_a_long_request_body_arrives_whole() -> None:
    body = bytes(range(256)) * (16 * 4096)  # 16 MiB, more than any socket buffer

    async def talk(peer: Peer) -> None:
        head = await peer.head()
        assert b"content-length: 16777216\r\n" in head
        assert await peer.reader.readexactly(len(body)) == body
        await peer.send(OK)
        await peer.answer()

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        assert await (await upstream.request("POST", "/", [], body)).read() == b"ok"
        assert await (await upstream.request("POST", "/", [], b"{}")).read() == b"ok"
        assert server.accepted == 1
        await upstream.aclose()


async def test_a_long_answer_waits_for_its_reader() -> None:
    piece, count = bytes(range(256)) * 4096, 16  # 16 MiB

    async def talk(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(piece) * count))
        for _ in range(count):
            await peer.send(piece)
        await peer.gone()

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        response = await upstream.request("POST", "/", [], b"{}")
        assert await response.read() == piece * count
        await upstream.aclose()


async def test_an_early_refusal_is_told_though_the_body_is_still_going_out() -> None:
    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 7\r\n\r\ntoo big")
        await finished.wait()

    finished = asyncio.Event()
    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        response = await upstream.request("POST", "/", [], b"x" * (32 << 20))
        assert response.status == 413
        assert await response.read() == b"too big"
        finished.set()
        await upstream.aclose()


async def test_a_body_goes_on_going_out_under_an_early_answer() -> None:
    async def talk(peer: Peer) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        await peer.reader.readexactly(32 << 20)
        await peer.send(b"3\r\ngot\r\n0\r\n\r\n")
        await peer.gone()

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        response = await upstream.request("POST", "/", [], b"x" * (32 << 20))
        assert await response.read() == b"got"
        await upstream.aclose()


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_an_upstream_that_leaves_while_the_body_goes_out_is_broken(how: str) -> None:
    async def talk(peer: Peer) -> None:
        await peer.head()
        if how == "reset":
            peer.reset()

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        with pytest.raises(UpstreamBroken, match="before it answered"):
            await upstream.request("POST", "/", [], b"x" * (32 << 20))
        assert server.accepted == 1
        await upstream.aclose()


async def test_cancelling_before_the_head_closes_the_connection() -> None:
    async def talk(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.gone()
        left.set()

    asked, left = asyncio.Event(), asyncio.Event()
    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        task = asyncio.create_task(upstream.request("POST", "/", [], b"{}"))
        await asked.wait()
        task.cancel()
        await left.wait()
        with pytest.raises(asyncio.CancelledError):
            await task
        await upstream.aclose()


async def test_cancelling_while_reading_closes_the_connection() -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
        await peer.gone()
        left.set()

    left = asyncio.Event()
    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        response = await upstream.request("POST", "/", [], b"{}")
        assert await next_piece(response) == b"a"
        task = asyncio.create_task(next_piece(response))
        await asyncio.sleep(0)
        task.cancel()
        await left.wait()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(UpstreamBroken):
            await next_piece(response)
        await upstream.aclose()


async def test_closing_an_unread_answer_closes_the_connection() -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome")
        await peer.gone()
        left.set()

    left = asyncio.Event()
    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        response = await upstream.request("POST", "/", [], b"{}")
        response.close()
        response.close()
        await left.wait()
        with pytest.raises(UpstreamBroken, match="closed before its end"):
            await next_piece(response)
        await upstream.aclose()


async def test_closing_an_answer_that_came_whole_keeps_the_connection() -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer()
        await peer.answer()

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        response = await upstream.request("POST", "/", [], b"{}")
        response.close()
        with pytest.raises(UpstreamBroken, match="closed before its end"):
            await next_piece(response)
        assert await (await upstream.request("POST", "/", [], b"{}")).read() == b"ok"
        assert server.accepted == 1
        await upstream.aclose()


async def test_closing_a_read_answer_changes_nothing() -> None:
    async def talk(peer: Peer) -> None:
        await peer.answer()
        await peer.answer()

    async with serve(talk) as server:
        upstream = Upstream(server.origin)
        for _ in range(2):
            response = await upstream.request("POST", "/", [], b"{}")
            assert await response.read() == b"ok"
            response.close()
            assert await next_piece(response) == b""
        assert server.accepted == 1
        await upstream.aclose()
