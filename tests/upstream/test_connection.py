"""The connection without a network: exact reads go in, a clock stands still until it is told to move."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import pytest

from gateway.errors import UpstreamBroken, UpstreamTimeout
from gateway.upstream.connection import BUFFER_LIMIT, HEAD_LIMIT, WRITE_PIECE, Connection, Response
from tests.upstream.peer import next_piece

pytestmark = pytest.mark.anyio

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Loop:
    """What a connection uses of an event loop, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def create_future(self) -> "asyncio.Future[None]":
        return asyncio.get_running_loop().create_future()


class Transport(asyncio.Transport):
    """Remembers what the connection did to it. It takes ``room`` bytes before it asks for a pause."""

    def __init__(self, room: int = 1 << 30) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.room = room
        self.reading = True
        self.closed = False
        self.connection: Connection | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))
        self.room -= len(data)
        if self.room <= 0 and self.connection is not None:
            self.connection.pause_writing()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


class Keeper:
    def __init__(self) -> None:
        self.idles = 0

    def opened(self, connection: Connection) -> None: ...

    def idle(self, connection: Connection) -> None:
        self.idles += 1

    def closed(self, connection: Connection) -> None: ...


class Wire:
    """A connection between a fake transport and a fake keeper."""

    def __init__(self, *, room: int = 1 << 30) -> None:
        self.loop = Loop()
        self.keeper = Keeper()
        self.transport = Transport(room)
        self.connection = Connection(cast(asyncio.AbstractEventLoop, self.loop), self.keeper)
        self.transport.connection = self.connection
        self.connection.connection_made(self.transport)

    def ask(self, body: bytes = b"") -> "asyncio.Task[Response]":
        return begin(self.connection.exchange(b"HEAD\r\n", body, head_only=False))

    async def asked(self) -> "asyncio.Task[Response]":
        task = self.ask()
        await asyncio.sleep(0)
        return task

    async def answered(self, *reads: bytes) -> Response:
        """A response after these reads."""
        task = await self.asked()
        for read in reads:
            self.connection.data_received(read)
        return await task

    def check(self) -> None:
        self.connection.check(self.loop.now, first_byte_timeout_s=600, idle_timeout_s=300)


T = TypeVar("T")


def begin(work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    return asyncio.get_running_loop().create_task(work)


async def test_an_answer_cut_at_any_position_is_the_same_answer() -> None:
    answer = (
        b"HTTP/1.1 100 Continue\r\nx-interim: 1\r\n\r\n"
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nContent-Type:  text/event-stream\r\nset-cookie: b\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
        b"5;ext=1\r\nhello\r\n6\r\n world\r\n0\r\nx-trailer: t\r\n\r\n"
    )
    for cut in range(1, len(answer)):
        wire = Wire()
        task = await wire.asked()
        wire.connection.data_received(answer[:cut])
        await asyncio.sleep(0)
        wire.connection.data_received(answer[cut:])
        response = await task
        assert response.status == 200
        assert response.headers == [
            (b"set-cookie", b"a"),
            (b"content-type", b"text/event-stream"),
            (b"set-cookie", b"b"),
            (b"transfer-encoding", b"chunked"),
        ]
        assert await response.read() == b"hello world"
        assert wire.keeper.idles == 1


async def test_what_is_buffered_comes_in_one_piece_without_suspending() -> None:
    wire = Wire()
    response = await wire.answered(CHUNKED, b"1\r\na\r\n", b"1\r\nb\r\n1\r\nc\r\n")
    with pytest.raises(StopIteration) as stopped:
        next_piece(response).send(None)
    assert stopped.value.value == b"abc"


async def test_the_end_is_known_as_soon_as_it_has_been_read() -> None:
    wire = Wire()
    response = await wire.answered(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
    assert not response.ended
    assert await next_piece(response) == b"ok"
    assert response.ended
    assert await next_piece(response) == b""


async def test_a_caller_who_does_not_read_holds_a_bounded_amount() -> None:
    wire = Wire()
    response = await wire.answered(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n")
    piece = b"x" * 65536
    taken = 0
    while wire.transport.reading:
        wire.connection.data_received(piece)
        taken += len(piece)
    assert BUFFER_LIMIT < taken <= BUFFER_LIMIT + len(piece)

    assert len(await next_piece(response)) == taken
    assert wire.transport.reading


async def test_upstream_is_not_idle_while_nobody_waits_for_it() -> None:
    wire = Wire()
    response = await wire.answered(CHUNKED, b"1\r\na\r\n")
    wire.loop.now = 1000.0
    wire.check()
    assert await next_piece(response) == b"a"

    waiting = begin(next_piece(response))
    await asyncio.sleep(0)
    wire.loop.now = 1299.0
    wire.check()
    wire.connection.data_received(b"1\r\nb\r\n")
    assert await waiting == b"b"


async def test_upstream_is_idle_when_somebody_has_waited_too_long() -> None:
    wire = Wire()
    response = await wire.answered(CHUNKED)
    waiting = begin(next_piece(response))
    await asyncio.sleep(0)
    wire.loop.now = 300.0
    wire.check()
    with pytest.raises(UpstreamTimeout) as caught:
        await waiting
    assert caught.value.stage == "idle"
    assert wire.transport.closed


async def test_any_byte_of_a_body_ends_the_silence() -> None:
    wire = Wire()
    response = await wire.answered(CHUNKED)
    waiting = begin(next_piece(response))
    await asyncio.sleep(0)
    for second, byte in ((200.0, b"1"), (400.0, b"\r"), (600.0, b"\n"), (800.0, b"z")):
        wire.loop.now = second
        wire.check()
        wire.connection.data_received(byte)
    assert await waiting == b"z"


async def test_bytes_of_a_head_do_not_move_the_first_byte_timeout() -> None:
    wire = Wire()
    task = await wire.asked()
    for second in (200.0, 400.0):
        wire.loop.now = second
        wire.connection.data_received(b"HTTP/1.1 102 Processing\r\n\r\n")
        wire.check()
    wire.loop.now = 600.0
    wire.check()
    with pytest.raises(UpstreamTimeout) as caught:
        await task
    assert caught.value.stage == "first byte"


async def test_an_interim_flood_is_not_read_for_ever() -> None:
    wire = Wire()
    task = await wire.asked()
    interim = b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n"
    fed = 0
    while not wire.transport.closed:
        wire.connection.data_received(interim)
        fed += len(interim)
    assert fed <= HEAD_LIMIT + len(interim)
    with pytest.raises(UpstreamBroken, match="head took more than"):
        await task


async def test_a_head_that_does_not_end_is_not_read_for_ever() -> None:
    wire = Wire()
    task = await wire.asked()
    wire.connection.data_received(b"HTTP/1.1 200 OK\r\nx-long: ")
    while not wire.transport.closed:
        wire.connection.data_received(b"y" * 1000)
    with pytest.raises(UpstreamBroken, match="head took more than"):
        await task


async def test_trailers_that_do_not_end_are_not_read_for_ever() -> None:
    wire = Wire()
    response = await wire.answered(CHUNKED)
    waiting = begin(next_piece(response))
    await asyncio.sleep(0)
    wire.connection.data_received(b"0\r\n")
    while not wire.transport.closed:
        wire.connection.data_received(b"x-trailer: yyyyyyyyyyyyyyyyyyyyyyy\r\n")
    with pytest.raises(UpstreamBroken, match="trailers took more than"):
        await waiting


async def test_a_long_stream_in_tiny_pieces_is_not_taken_for_overhead() -> None:
    wire = Wire()
    response = await wire.answered(CHUNKED)
    count = HEAD_LIMIT // 3 + 1
    for _ in range(count):
        waiting = begin(next_piece(response))
        await asyncio.sleep(0)
        wire.connection.data_received(b"1\r\n")
        wire.connection.data_received(b"x\r\n")
        assert await waiting == b"x"


async def test_a_long_body_is_written_as_fast_as_the_socket_takes_it() -> None:
    wire = Wire(room=2 * WRITE_PIECE)
    body = bytes(range(256)) * (5 * WRITE_PIECE // 256)
    task = wire.ask(body)
    await asyncio.sleep(0)
    assert sum(map(len, wire.transport.written)) == len(b"HEAD\r\n") + 2 * WRITE_PIECE

    wire.transport.room = 1 << 30
    wire.connection.resume_writing()
    assert b"".join(wire.transport.written) == b"HEAD\r\n" + body
    wire.connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    assert (await task).status == 200
    assert wire.keeper.idles == 1


async def test_a_connection_with_a_half_written_request_is_not_kept() -> None:
    wire = Wire(room=WRITE_PIECE)
    task = wire.ask(b"x" * (3 * WRITE_PIECE))
    await asyncio.sleep(0)
    wire.connection.data_received(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
    assert (await task).status == 413
    assert wire.keeper.idles == 0
    assert wire.transport.closed


async def test_a_connection_whose_socket_has_not_taken_the_request_is_not_kept() -> None:
    wire = Wire(room=0)
    response = await wire.answered(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    assert response.ended
    assert wire.keeper.idles == 0
    assert wire.transport.closed


async def test_a_short_request_is_one_write() -> None:
    wire = Wire()
    response = wire.ask(b"{}")
    await asyncio.sleep(0)
    assert wire.transport.written == [b"HEAD\r\n{}"]
    wire.connection.data_received(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert (await response).status == 204


async def test_what_comes_behind_an_answer_is_not_the_next_answer() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    for surplus in (answer, b"HTTP/1.1 2", b"garbage"):
        wire = Wire()
        response = await wire.answered(answer + surplus)
        assert await response.read() == b"ok"
        assert wire.keeper.idles == 0
        assert wire.transport.closed


async def test_a_byte_while_idle_ends_the_connection() -> None:
    wire = Wire()
    await wire.answered(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    assert not wire.transport.closed
    wire.connection.data_received(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")
    assert wire.transport.closed


async def test_a_busy_connection_takes_no_second_request() -> None:
    wire = Wire()
    task = await wire.asked()
    with pytest.raises(RuntimeError, match="is awaited, and cannot be asked"):
        await wire.ask()
    assert wire.transport.written == [b"HEAD\r\n"]
    wire.connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no")
    with pytest.raises(RuntimeError, match="is body, and cannot be asked"):
        await wire.ask()
    wire.connection.data_received(b"k")
    assert await (await task).read() == b"ok"


async def test_a_closed_connection_takes_no_request_and_no_bytes() -> None:
    wire = Wire()
    wire.connection.drop()
    wire.connection.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    with pytest.raises(RuntimeError, match="is closed, and cannot be asked"):
        await wire.ask()
    assert wire.keeper.idles == 0
    assert wire.transport.written == []


async def test_a_trailer_does_not_show_in_the_next_head() -> None:
    wire = Wire()
    first = await wire.answered(CHUNKED + b"1\r\na\r\n0\r\nx-checksum: 1\r\n\r\n")
    assert await first.read() == b"a"
    second = await wire.answered(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    assert second.headers == [(b"content-length", b"0")]


async def test_pieces_are_taken_as_they_come_until_one_is_enough() -> None:
    wire, taken = Wire(), list[bytes]()
    response = await wire.answered(CHUNKED, b"1\r\na\r\n")

    def take(piece: bytes) -> bool:
        taken.append(piece)
        return piece != b"enough"

    waiting = begin(response.pass_to(take))
    await asyncio.sleep(0)
    assert taken == [b"a"]  # it was here before anybody waited
    wire.connection.data_received(b"1\r\nb\r\n1\r\nc\r\n")
    assert taken == [b"a", b"b", b"c"]
    wire.connection.data_received(b"1\r\nd\r\n6\r\nenough\r\n1\r\ne\r\n")
    await waiting
    assert taken == [b"a", b"b", b"c", b"d", b"enough"]
    waiting = begin(response.pass_to(take))
    await asyncio.sleep(0)
    wire.connection.data_received(b"1\r\nf\r\n0\r\n\r\n")
    await waiting
    assert taken[5:] == [b"e", b"f"]
    assert response.ended
    assert wire.keeper.idles == 1


async def test_what_is_taken_is_progress() -> None:
    wire = Wire()
    response = await wire.answered(CHUNKED)
    waiting = begin(response.pass_to(lambda piece: True))
    await asyncio.sleep(0)
    for _ in range(2 * HEAD_LIMIT // 1000):
        wire.loop.now += 299.0
        wire.connection.data_received(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        wire.check()
    wire.loop.now += 300.0
    wire.check()
    with pytest.raises(UpstreamTimeout):
        await waiting


async def test_nothing_is_handed_out_once_its_reader_has_gone() -> None:
    wire, taken = Wire(), list[bytes]()
    response = await wire.answered(CHUNKED)

    def take(piece: bytes) -> bool:
        taken.append(piece)
        return True

    waiting = begin(response.pass_to(take))
    await asyncio.sleep(0)
    waiting.cancel()
    wire.connection.data_received(b"1\r\na\r\n")
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert taken == []


async def test_what_was_taken_of_one_answer_says_nothing_of_the_next() -> None:
    """The last piece came with the answer's end. Of the next answer a byte came, so it was begun."""
    wire = Wire()
    response = await wire.answered(CHUNKED)
    waiting = begin(response.pass_to(lambda piece: True))
    await asyncio.sleep(0)
    wire.connection.data_received(b"1\r\na\r\n0\r\n\r\n")
    await waiting
    again = await wire.asked()
    wire.connection.data_received(b"HTTP/1.1 200 O")
    wire.connection.connection_lost(None)
    with pytest.raises(UpstreamBroken):
        await again
    assert not wire.connection.unanswered()


async def test_a_body_that_is_too_large_is_not_read_on() -> None:
    wire = Wire()
    response = await wire.answered(CHUNKED)
    waiting = begin(response.read(limit=2))
    await asyncio.sleep(0)
    wire.connection.data_received(b"1\r\na\r\n2\r\nbc\r\n1\r\nd\r\n")
    with pytest.raises(UpstreamBroken, match="larger"):
        await waiting
