"""The pure parts of the benchmark. What it measures is never tested: a benchmark is not a test."""

import json
from io import StringIO

from rich.console import Console

from bench import bodies, report
from bench.measure import Sample, percentile


def samples(case: str, quantity: str, **by_server: list[float]) -> list[Sample]:
    return [
        Sample(case, server.replace("_", "-"), {quantity: value})
        for server, values in by_server.items()
        for value in values
    ]


def test_figures_are_the_median_and_the_spread_of_the_repetitions() -> None:
    found = report.figures(samples("small request", "cpu_us", messages_gateway=[70, 50, 60]))

    figure = found["small request", "cpu_us"]["messages-gateway"]

    assert (figure.median, figure.low, figure.high) == (60, 50, 70)
    assert str(figure) == "60.0 (50.0 to 70.0)"


def test_latencies_are_given_without_what_the_upstream_itself_takes() -> None:
    late = samples("loop event, 100 streams", "later_p50_ms", direct=[1.0], messages_gateway=[1.5])
    cpu = samples("loop event, 100 streams", "cpu_us", direct=[9.0], messages_gateway=[20.0])

    found = report.added(report.figures(late + cpu))

    assert found["loop event, 100 streams", "later_p50_ms"]["messages-gateway"].median == 0.5
    assert found["loop event, 100 streams", "cpu_us"]["messages-gateway"].median == 20.0
    assert "direct" not in found["loop event, 100 streams", "later_p50_ms"]


def test_a_bar_holds_up_to_its_ratio_and_is_left_out_where_nothing_was_measured() -> None:
    found = report.figures(
        samples("small request", "cpu_us", messages_gateway=[100], agentic_api=[100])
        + samples("75 KB request", "cpu_us", messages_gateway=[100])
    )

    assert report.verdicts(found) == [
        "must: small request at most 1.2 of agentic-api: 1.00, holds",
        "aim: small request at most 0.9 of agentic-api: 1.00, does NOT hold",
    ]


def test_the_table_has_a_ratio_column_for_each_peer() -> None:
    found = report.figures(samples("small request", "cpu_us", messages_gateway=[30], agentic_api=[120]))
    console = Console(width=200, file=StringIO(), record=True)

    console.print(report.table(found, ["messages-gateway", "agentic-api"]))

    row = next(line for line in console.export_text().splitlines() if "small request" in line)
    cells = [cell.strip() for cell in row.strip("| ").split("|")]
    assert cells == ["small request: CPU µs", "30.0 (30.0 to 30.0)", "120 (120 to 120)", "0.25"]


def test_percentiles() -> None:
    assert percentile(list(range(101)), 50) == 50
    assert percentile(list(range(101)), 99) == 99
    assert percentile([7], 99) == 7


def test_the_large_request_has_the_size_and_the_tools_that_claude_code_sends() -> None:
    body = bodies.claude_code()

    request = json.loads(body)

    assert 74_000 < len(body) < 77_000
    assert len(request["tools"]) == 24
    assert "WebSearch" in [tool["name"] for tool in request["tools"]]
    assert len(request["system"]) == 3
    assert body == bodies.claude_code()
