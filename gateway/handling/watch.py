"""Notices a client that goes, and cancels the task that works for it."""

import asyncio
from typing import Any

from starlette.types import Receive

from gateway.books.record import Record
from gateway.errors import ClientGone

GRACE_S = 0.02
"""How long a request runs before its client is watched: most small ones are over by then, and a task each costs more
than anything else the gateway does for them. A client that left earlier is noticed at that moment."""


class Watched:
    """A request whose client is watched: ``task`` works for it."""

    __slots__ = ("_receive", "_record", "_task", "_watcher")

    def __init__(self, receive: Receive, record: Record, task: asyncio.Task[Any]) -> None:
        self._receive = receive
        self._record = record
        self._task = task
        self._watcher: asyncio.Task[None] | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for the client to go, in a task of its own."""
        self._watcher = loop.create_task(self._watch())

    def stop(self) -> None:
        """The request is over."""
        if self._watcher is not None:
            self._watcher.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._record.fails(ClientGone())
        self._task.cancel()


class Watch:
    """Watches the clients of all requests that take longer than ``GRACE_S``; one timer for all of them."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one that it watches in, asked for once: that costs a system call each time."""
        self._new: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, receive: Receive, record: Record) -> Watched:
        """Watch for the current task from now on; its request has been read whole."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        watched = Watched(receive, record, task)
        self._new.add(watched)
        if self._timer is None:
            self._timer = loop.call_later(GRACE_S, self._look, loop)
        return watched

    def end(self, watched: Watched) -> None:
        """The request is over."""
        self._new.discard(watched)
        watched.stop()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        for watched in self._new:
            watched.start(loop)
        self._new.clear()
