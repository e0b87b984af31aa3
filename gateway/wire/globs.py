"""Globs, as file names have them, matched against a whole text."""

import fnmatch
import re
from collections.abc import Iterable


class Globs:
    """A set of patterns: ``*`` any characters, ``?`` one, ``[…]`` one of these; case counts, and ``/`` is no border."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [re.compile(fnmatch.translate(pattern)) for pattern in patterns]

    def match(self, text: str) -> bool:
        """Whether one of them matches the whole of ``text``."""
        return any(pattern.match(text) for pattern in self._patterns)
