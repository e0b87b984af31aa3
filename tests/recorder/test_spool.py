from hypothesis import given
from hypothesis import strategies as st

from recorder.spool import Spool


@given(st.lists(st.binary()))
def test_gives_back_what_was_written(pieces: list[bytes]) -> None:
    spool = Spool()
    for piece in pieces:
        spool.write(piece)
    whole = b"".join(pieces)
    assert (spool.read(), spool.size) == (whole, len(whole))
    assert b"".join(spool.lines()) == whole
    assert all(b"\n" not in line[:-1] for line in spool.lines())


def test_can_be_read_while_it_is_written() -> None:
    spool = Spool(b"one\n")
    assert list(spool.lines()) == [b"one\n"]
    spool.write(b"two")
    assert list(spool.lines()) == [b"one\n", b"two"]


def test_chunks_stay_small_however_well_it_was_compressed() -> None:
    spool = Spool(bytes(1_000_000))
    assert max(map(len, spool.chunks())) <= 1 << 16
