"""Slots: so many at a time, by turns, and none is lost with a call that is called off."""

import asyncio

import pytest

from gateway.tools.slots import Slots, calling_for

pytestmark = pytest.mark.anyio


class Calls:
    """Calls that want one of the slots, each until it is told to end."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._ends: dict[str, asyncio.Event] = {}
        self.running: list[str] = []
        self.begun: list[str] = []

    def begin(self, turn: str, name: str) -> "asyncio.Task[None]":
        self._ends[name] = asyncio.Event()
        return asyncio.ensure_future(self._call(turn, name))

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await settle()

    async def _call(self, turn: str, name: str) -> None:
        calling_for(turn)
        async with self._slots:
            self.begun.append(name)
            self.running.append(name)
            await self._ends[name].wait()
            self.running.remove(name)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_turns_that_wait_are_let_in_by_turns() -> None:
    calls = Calls(Slots(2))
    for name in ("a1", "a2", "a3", "a4", "b1", "b2", "c1"):
        calls.begin(name[0], name)
    await settle()
    while calls.running:
        assert len(calls.running) <= 2
        await calls.end(calls.running[0])
    assert calls.begun == ["a1", "a2", "a3", "b1", "c1", "a4", "b2"]


async def test_a_call_that_is_called_off_while_it_waits_is_passed_over() -> None:
    calls = Calls(Slots(1))
    first, second, third = (calls.begin("a", name) for name in ("1", "2", "3"))
    await settle()
    second.cancel()
    await calls.end("1")
    assert calls.running == ["3"]
    await calls.end("3")
    assert (first.done(), second.cancelled(), third.done()) == (True, True, True)


async def test_a_call_that_is_called_off_as_it_is_let_in_takes_no_slot_with_it() -> None:
    slots = Slots(1)
    calls = Calls(slots)
    await slots.__aenter__()
    second, _ = calls.begin("a", "2"), calls.begin("b", "3")
    await settle()
    await slots.__aexit__(None, None, None)
    second.cancel()
    await settle()
    assert calls.running == ["3"]


async def test_a_call_that_is_called_off_while_it_runs_gives_its_slot_back() -> None:
    calls = Calls(Slots(1))
    first = calls.begin("a", "1")
    calls.begin("a", "2")
    await settle()
    first.cancel()
    await settle()
    assert calls.begun == ["1", "2"]
