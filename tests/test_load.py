"""What `make load` calls flat. What it measures is never tested here."""

import os

import pytest

from bench.client import Fault
from load.run import Memory, descriptors


def memory(*megabytes: float) -> Memory:
    taken = Memory("self")
    taken.samples += megabytes
    return taken


def test_memory_that_ends_where_it_began_is_flat_whatever_was_between() -> None:
    told = memory(40, 50, *[70] * 30, 90, *[70] * 10, 71).verdict("streams")
    assert told == "memory 70.0 MB at first, 70.0 MB at the end, 90.0 MB at most"


def test_memory_that_grows_is_not() -> None:
    with pytest.raises(Fault, match=r"streams: memory grew from 7\d\.\d to 8\d\.\d MB"):
        memory(*[70 + at / 5 for at in range(100)]).verdict("streams")


def test_this_process_has_memory_and_descriptors() -> None:
    taken = Memory(os.getpid())
    assert taken.sample() > 1
    before = descriptors("self")
    with open(os.devnull):
        assert descriptors("self") == before + 1
