"""One result, read as far as it can be."""

from collections.abc import Mapping
from typing import Any


class Hit:
    """One result as the provider sent it. A member that is missing, or of another type than asked for, is empty."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = members

    def text(self, *names: str) -> str:
        """The first of these members that is a text, and not an empty one; "" where none is."""
        found = (self._members.get(name) for name in names)
        return next((value for value in found if isinstance(value, str) and value), "")

    def texts(self, name: str) -> list[str]:
        """The texts in the list that this member is."""
        value = self._members.get(name)
        return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
