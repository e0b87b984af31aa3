"""Little pieces in, the whole text out, and little room taken meanwhile."""

import sys
import tracemalloc

from gateway.turn.pieces import LITTLE, Pieces


def test_nothing_is_lost_however_many_pieces_there_are() -> None:
    for number in (0, 1, LITTLE - 1, LITTLE, LITTLE + 1, 3 * LITTLE + 7):
        pieces = Pieces()
        for at in range(number):
            pieces.add(f"{at} ")
        assert pieces.text() == "".join(f"{at} " for at in range(number))


def test_it_takes_hardly_more_room_than_the_text() -> None:
    tracemalloc.start()
    try:
        pieces = Pieces()
        for at in range(50 * LITTLE):
            pieces.add(f" word{at}")
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1.2 * sys.getsizeof(pieces.text())
