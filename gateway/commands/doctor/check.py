"""What the doctor says of one thing."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "problem", "note"]
"""``problem``: something does not work. ``note``: all works, but not for everybody or not for ever."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, how it is, and what to type where it could be better."""

    name: str
    status: Status
    message: str
    fix: str | None = None
