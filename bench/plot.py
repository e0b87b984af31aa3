"""Draws a run (its JSON on standard input) as a PNG: `python bench/plot.py PNG`, in a cached venv with matplotlib."""

import json
import sys
from statistics import median
from typing import Any

import matplotlib  # type: ignore[import-not-found]

matplotlib.use("agg")

from matplotlib import pyplot

COLOURS = {"messages-gateway": "#2f6fab", "agentic-api": "#c2703d", "litellm": "#8a6fae", "direct": "#a0a0a0"}


def medians(samples: list[dict[str, Any]], quantity: str) -> dict[str, dict[str, float]]:
    """By case, then by server."""
    found: dict[str, dict[str, list[float]]] = {}
    for sample in samples:
        if quantity in sample["values"]:
            found.setdefault(sample["case"], {}).setdefault(sample["server"], []).append(sample["values"][quantity])
    return {case: {server: median(values) for server, values in servers.items()} for case, servers in found.items()}


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def bars(axes: Any, found: dict[str, dict[str, float]], servers: list[str], title: str, unit: str) -> None:
    """One group of horizontal bars a case, one bar a server; a logarithmic axis, for the figures span decades."""
    height = 0.8 / len(servers)
    for position, server in enumerate(servers):
        rows = [(row + position * height, by[server]) for row, by in enumerate(found.values()) if server in by]
        drawn = axes.barh([row for row, _ in rows], [value for _, value in rows], height, color=COLOURS[server])
        axes.bar_label(drawn, fmt=_figure, padding=2, fontsize=7)
        drawn.set_label(server)
    axes.set_yticks([row + height * (len(servers) - 1) / 2 for row in range(len(found))], list(found), fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(unit, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def main(path: str) -> None:
    run = json.load(sys.stdin)
    samples = run["samples"]
    measured = {sample["server"] for sample in samples}
    servers = [name for name in COLOURS if name in measured and name != "direct"]
    cpu = medians(samples, "cpu_us")
    late = medians(samples, "later_p50_ms")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 1.5 + 0.45 * len(cpu)), layout="constrained")
    bars(left, cpu, servers, "CPU time of the server", "µs a request, µs an event")
    bars(right, late, ["direct", *servers], "From the upstream's write to the client's read, median", "ms an event")
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    figure.suptitle(run["heading"][0], fontsize=8)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main(sys.argv[1])
