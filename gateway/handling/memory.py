"""What the turns of a process hold in memory, all together."""

from types import TracebackType

from gateway.errors import Overloaded


class Memory:
    """So many bytes, and no more. Each turn has a :class:`Share`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    def resize(self, before: int, now: int) -> None:
        """A share grows or shrinks. Raises :class:`Overloaded` where it grows and there is no room."""
        if now > before and self._held - before + now > self._limit:
            raise Overloaded("the gateway holds as much of requests and answers as it may; try again soon")
        self._held += now - before


class Share:
    """``with Share(memory, size) as share:`` is what one turn holds: at first ``size`` bytes.

    Raises :class:`Overloaded` where there is no room.
    """

    def __init__(self, memory: Memory, size: int) -> None:
        self._memory = memory
        self._wanted = size
        self._size = 0

    def __enter__(self) -> "Share":
        self.holds(self._wanted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.holds(0)

    def holds(self, size: int) -> None:
        """It is ``size`` bytes from now on. Raises :class:`Overloaded`."""
        self._memory.resize(self._size, size)
        self._size = size
