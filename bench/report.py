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
    "peak_mb": "MB at most",
    "per_s": "answers/s",
    "cores": "cores in use",
    "first_p50_ms": "first bytes p50, ms",
    "first_p99_ms": "first bytes p99, ms",
    "later_p50_ms": "later event p50, ms",
    "later_p99_ms": "later event p99, ms",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """What the gateway has to stay under: a ratio to the peer's figure, or, where `limit` is set, the figure itself."""

    case: str
    ratio: float
    quantity: str = "cpu_us"
    limit: float | None = None

    @property
    def wanted(self) -> str:
        return f"{self.ratio:.2f} of {PEER}'s" if self.limit is None else f"{self.limit:g}"


BARS = [
    *(
        Bar(f"{event}, {number} streams", ratio)
        for event, ratio in {
            "proxied event": 0.9,
            "loop event": 1.0,
            "loop event with blanks": 1.0,
            "event of a turn (think, search, answer)": 1.0,
        }.items()
        for number in (100, 1000)
    ),
    Bar("small request", 0.9),
    Bar("75 KB request", 0.22),
    Bar("proxied event, 100 streams", 1.0, "later_p50_ms"),
    Bar("proxied event, 100 streams", 1.3, "later_p99_ms"),
    Bar("memory, proxied, 1000 streams", 1.0, "idle_mb", limit=50),
    Bar("memory, proxied, 1000 streams", 1.0, "stream_kb", limit=15),
]


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
    result = _table("measured")
    for server in servers:
        result.add_column(server, justify="right", no_wrap=True)
    peers = [server for server in servers if not server.startswith(GATEWAY)]
    for peer in peers:
        result.add_column(f"ratio to {peer}", justify="right")
    for key, by_server in found.items():
        case, quantity = key
        cells = [str(by_server[server]) if server in by_server else "" for server in servers]
        ratios = [ratio(found, key, peer) for peer in peers]
        result.add_row(f"{case}: {LABELS[quantity]}", *cells, *(f"{r:.2f}" if r is not None else "" for r in ratios))
    return result


def verdicts(found: Figures) -> Table:
    """Every bar that could be judged: what is wanted, what was reached, whether it is missed."""
    result = _table("bar", "at most", "reached", "")
    for bar in BARS:
        key = bar.case, bar.quantity
        if bar.limit is not None:
            ours = found.get(key, {}).get(GATEWAY)
            reached = None if ours is None else ours.median
        else:
            reached = ratio(found, key)
        if reached is not None:
            word = "MISSED" if reached > (bar.ratio if bar.limit is None else bar.limit) else "holds"
            result.add_row(f"{bar.case}: {LABELS[bar.quantity]}", bar.wanted, _number(reached), word)
    return result


def _table(*columns: str) -> Table:
    result = Table(box=MARKDOWN)
    for column in columns:
        result.add_column(column, no_wrap=True)
    return result


def show(found: Figures, servers: Sequence[str], heading: Sequence[str], failures: Sequence[str]) -> None:
    console = Console(width=240, highlight=False)
    for line in heading:
        console.print(line, markup=False)
    less = added(found)
    console.print(table(less, servers))
    for line in failures:
        console.print(line, markup=False)
    console.print(verdicts(less))
