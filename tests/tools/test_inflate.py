"""A body inflated within a bound."""

import gzip
import tracemalloc
import zlib

import pytest

from gateway.tools.inflate import BoundedBody, TooLong, Undecodable

MANY = 1 << 20


def read(coding: str, *pieces: bytes, max_bytes: int = 1000) -> bytes:
    body = BoundedBody(coding, max_bytes)
    for piece in pieces:
        body.feed(piece)
    return body.whole()


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", " GZIP "])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_gzip_in_pieces(coding: str, size: int) -> None:
    said = bytes(range(256))
    packed = gzip.compress(said)
    assert read(coding, *(packed[at : at + size] for at in range(0, len(packed), size))) == said


@pytest.mark.parametrize("coding", ["", "identity", "Identity"])
def test_what_has_no_coding_is_as_it_came(coding: str) -> None:
    assert read(coding, b"as ", b"it is") == b"as it is"


@pytest.mark.parametrize("coding", ["gzip", ""])
def test_nothing_is_nothing(coding: str) -> None:
    assert read(coding) == read(coding, b"") == b""


@pytest.mark.parametrize("coding", ["gzip, gzip", "gzip,", "identity, gzip", "deflate", "br", "zstd", "x"])
def test_only_one_coding_is_read(coding: str) -> None:
    with pytest.raises(Undecodable):
        read(coding, gzip.compress(b"x"))


@pytest.mark.parametrize("data", [b"no gzip", zlib.compress(b"x"), gzip.compress(b"x", mtime=0)[:-1], b"\x1f\x8b"])
def test_what_is_no_gzip(data: bytes) -> None:
    with pytest.raises(Undecodable):
        read("gzip", data)


@pytest.mark.parametrize("coding", ["gzip", ""])
def test_the_bound_is_what_may_just_come(coding: str) -> None:
    said = bytes(range(250)) * 4
    pack = gzip.compress if coding else bytes
    assert read(coding, pack(said)) == said
    with pytest.raises(TooLong):
        read(coding, pack(said + b"x"))


def test_a_bomb_takes_no_more_room_than_the_bound() -> None:
    bomb = gzip.compress(b" " * 256 * MANY)
    body = BoundedBody("gzip", MANY)
    tracemalloc.start()
    try:
        with pytest.raises(TooLong):
            body.feed(bomb)
        assert tracemalloc.get_traced_memory()[1] < 4 * MANY
    finally:
        tracemalloc.stop()


def test_what_unpacks_to_nothing_for_ever_is_too_long() -> None:
    packing = zlib.compressobj(wbits=31)
    nothing = packing.flush(zlib.Z_SYNC_FLUSH) + b"\0\0\0\xff\xff" * 198  # empty blocks, five bytes each
    body = BoundedBody("gzip", 1000)
    body.feed(nothing[:1000])
    with pytest.raises(TooLong):
        body.feed(b"\0\0\0\xff\xff")
