"""From samples to the table: median and spread of each quantity, ratios to a peer, which bars hold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from bench.measure import Sample

GATEWAY = "messages-gateway"
PEER = "agentic-api"
DIRECT = "direct"

LABELS = {
    "cpu_us": "CPU µs",
    "idle_mb": "MB idle",
    "loaded_mb": "MB with them open",
    "stream_kb": "KB a stream",
    "per_s": "answers/s",
    "first_p50_ms": "first event p50, ms",
    "first_p99_ms": "first event p99, ms",
    "later_p50_ms": "later event p50, ms",
    "later_p99_ms": "later event p99, ms",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """A ratio to the peer's CPU time that the gateway has to stay under."""

    case: str
    ratio: float


# Two sets: what any release must hold, and what the project aims for.
BARS = {
    "must": [
        Bar("small request", 1.2),
        Bar("75 KB request", 0.35),
        Bar("proxied event, 100 streams", 1.2),
        Bar("loop event, 100 streams", 1.2),
    ],
    "aim": [
        Bar("small request", 0.9),
        Bar("75 KB request", 0.25),
        Bar("proxied event, 100 streams", 1.0),
        Bar("loop event, 100 streams", 1.0),
    ],
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity of one server over the repetitions."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        return cls(median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{_number(self.median)} ({_number(self.low)} to {_number(self.high)})"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


Key = tuple[str, str]  # case, quantity
Figures = dict[Key, dict[str, Figure]]  # then by server


def figures(samples: Iterable[Sample]) -> Figures:
    """Every quantity of every case, by server, in the order they were first measured."""
    collected: dict[Key, dict[str, list[float]]] = {}
    for sample in samples:
        for quantity, value in sample.values.items():
            collected.setdefault((sample.case, quantity), {}).setdefault(sample.server, []).append(value)
    return {
        key: {server: Figure.of(values) for server, values in by_server.items()} for key, by_server in collected.items()
    }


def ratio(found: Figures, key: Key, to: str = PEER) -> float | None:
    """The gateway's median over that of another server; None where one of them was not measured."""
    by_server = found.get(key, {})
    if GATEWAY not in by_server or to not in by_server:
        return None
    return by_server[GATEWAY].median / by_server[to].median


def added(found: Figures) -> Figures:
    """The latencies with what the client sees without any server in between taken off: percentile less percentile."""
    less: Figures = {}
    for key, by_server in found.items():
        direct = by_server.get(DIRECT)
        off = direct.median if direct is not None and key[1].endswith("_ms") else 0.0
        less[key] = {
            server: Figure(figure.median - off, figure.low - off, figure.high - off)
            for server, figure in by_server.items()
            if server != DIRECT
        }
    return less


def table(found: Figures, servers: Sequence[str]) -> Table:
    """Rows: case and quantity. Columns: each server's median (low to high), and the gateway's ratio to each peer."""
    result = Table(box=MARKDOWN)
    result.add_column("measured", no_wrap=True)
    for server in servers:
        result.add_column(server, justify="right", no_wrap=True)
    peers = [server for server in servers if server != GATEWAY]
    for peer in peers:
        result.add_column(f"ratio to {peer}", justify="right")
    for key, by_server in found.items():
        case, quantity = key
        cells = [str(by_server[server]) if server in by_server else "" for server in servers]
        # A ratio of two small differences of latencies says nothing.
        ratios = [None if quantity.endswith("_ms") else ratio(found, key, peer) for peer in peers]
        result.add_row(f"{case}: {LABELS[quantity]}", *cells, *(f"{r:.2f}" if r is not None else "" for r in ratios))
    return result


def verdicts(found: Figures) -> list[str]:
    """A line a bar that could be judged."""
    lines = []
    for name, bars in BARS.items():
        for bar in bars:
            reached = ratio(found, (bar.case, "cpu_us"))
            if reached is not None:
                word = "holds" if reached <= bar.ratio else "does NOT hold"
                lines.append(f"{name}: {bar.case} at most {bar.ratio} of {PEER}: {reached:.2f}, {word}")
    return lines


def show(found: Figures, servers: Sequence[str], heading: Sequence[str], failures: Sequence[str]) -> None:
    console = Console(width=240, highlight=False)
    for line in heading:
        console.print(line, markup=False)
    console.print(table(added(found), servers))
    for line in [*failures, *verdicts(found)]:
        console.print(line, markup=False)
