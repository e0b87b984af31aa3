"""The tables of docs/faults.md: what is to come of each fault. The page is the data: neither can be wrong alone."""

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"

COLUMNS = ("proxy JSON", "proxy SSE", "first JSON", "first SSE", "later JSON", "later SSE")
"""Route or round, and transport; the order of the page's columns."""


@dataclass(frozen=True)
class Expected:
    """The status, how the answer ends, and the outcome in the log and the metrics.

    ``ending``: ``same`` (byte for byte what upstream sent), ``whole`` (the message as if nothing had been), ``cut``
    (what upstream sent, then the connection breaks), or the type of the error, in an envelope or as the last event.
    """

    status: int
    ending: str
    outcome: str


def read_upstream_table() -> dict[tuple[str, str], Expected]:
    """By fault and column; a cell of ``-`` is left out."""
    expected = {}
    for fault, *cells in _rows("| upstream"):
        assert len(cells) == len(COLUMNS), fault
        for column, cell in zip(COLUMNS, cells, strict=True):
            if cell != "-":
                status, ending, outcome = cell.split()
                expected[fault, column] = Expected(int(status), ending, outcome)
    return expected


def read_search_table() -> dict[str, tuple[str, str]]:
    """By fault: the outcome of the call in the metrics, and the words the model reads."""
    return {fault: (outcome, words) for fault, outcome, words in _rows("| the search backend")}


def _rows(beginning: str) -> list[list[str]]:
    """The cells of the table whose head begins so."""
    lines = PAGE.read_text().splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(beginning))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows
