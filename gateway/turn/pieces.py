"""Text that comes in little pieces, kept in hardly more room than its characters need."""

LITTLE = 256
"""How many pieces are kept as they came. As an object of its own a word takes ten times its characters."""


class Pieces:
    """What has been said of a block so far."""

    __slots__ = ("_joined", "_little")

    def __init__(self) -> None:
        self._joined: list[str] = []
        self._little: list[str] = []

    def add(self, piece: str) -> None:
        """One more piece; each is copied once, however long the text grows."""
        little = self._little
        little.append(piece)
        if len(little) == LITTLE:
            self._joined.append("".join(little))
            little.clear()

    def text(self) -> str:
        """All of it."""
        return "".join([*self._joined, *self._little])
