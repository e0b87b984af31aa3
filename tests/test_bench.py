"""The pure parts of the benchmark. What it measures is never tested: a benchmark is not a test."""

import json
from io import StringIO
from typing import Any, get_args

from rich.console import Console

from bench import bodies, report, script
from bench.measure import Sample, percentile
from gateway.turn import Sealer, TurnRules, read_turn


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


def bars(found: report.Figures) -> list[list[str]]:
    """The cells of the table of bars."""
    console = Console(width=200, file=StringIO(), record=True)
    console.print(report.verdicts(found))
    rows = [line.strip("| ").split("|") for line in console.export_text().splitlines() if "request" in line]
    return [[cell.strip() for cell in row] for row in rows]


def test_a_bar_holds_up_to_its_ratio_and_is_left_out_where_nothing_was_measured() -> None:
    found = report.figures(
        samples("small request", "cpu_us", messages_gateway=[90], agentic_api=[100])
        + samples("75 KB request", "cpu_us", messages_gateway=[23], agentic_api=[100])
    )

    assert bars(found) == [
        ["small request: CPU µs", "0.90 of agentic-api's", "0.90", "holds"],
        ["75 KB request: CPU µs", "0.22 of agentic-api's", "0.23", "MISSED"],
    ]
    assert bars(report.figures(samples("small request", "cpu_us", messages_gateway=[90]))) == []


def test_a_bar_may_be_a_figure_of_its_own() -> None:
    found = report.figures(samples("memory, proxied, 1000 streams", "idle_mb", messages_gateway=[50.5]))
    console = Console(width=200, file=StringIO(), record=True)

    console.print(report.verdicts(found))

    row = next(line for line in console.export_text().splitlines() if "idle" in line)
    assert [cell.strip() for cell in row.strip("| ").split("|")][1:] == ["50", "50.5", "MISSED"]


def test_the_table_has_a_ratio_column_for_each_peer() -> None:
    found = report.figures(samples("small request", "cpu_us", messages_gateway=[30], agentic_api=[120]))
    console = Console(width=200, file=StringIO(), record=True)

    console.print(report.table(found, ["messages-gateway", "agentic-api"]))

    row = next(line for line in console.export_text().splitlines() if "small request" in line)
    cells = [cell.strip() for cell in row.strip("| ").split("|")]
    assert cells == ["small request: CPU µs", "30.0 (30.0 to 30.0)", "120 (120 to 120)", "0.25"]


def data(event: bytes) -> Any:
    return json.loads(event.partition(b"data: ")[2])


def test_every_spelling_says_the_same() -> None:
    event = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}, "index": 0}

    vllm, llama, blanks = (script.event(event, spelling) for spelling in get_args(script.Spelling))

    assert data(vllm) == data(llama) == data(blanks) == event
    assert vllm.endswith(b',"index":0}\n\n')
    assert b'{"type":"content_block_delta","index":0,"delta":' in llama
    assert b'{"type": "content_block_delta", "delta": {' in blanks


def test_a_turn_thinks_calls_and_answers() -> None:
    plan = script.Plan(events=3, thinking=2, searches=2)

    first, answer = script.Round(plan, searching=True), script.Round(plan, searching=False)

    assert (first.events, answer.events) == (2, 3)
    assert b'"thinking":" %d.%d.%d"},"index":0' in first.delta
    assert [first.ending.count(b'"index":%d' % index) for index in range(4)] == [1, 3, 3, 0]
    assert first.ending.count(script.CALL_ID.encode()) == 2
    assert b'"text":" %d.%d.%d"},"index":0' in answer.delta


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


def test_a_long_session_has_the_size_that_is_asked_for() -> None:
    body = bodies.long_session(600, search=True)

    request = json.loads(body)

    assert 600_000 < len(body) < 605_000
    assert request["tools"][-1] == bodies.WEB_SEARCH
    assert body == bodies.long_session(600, search=True)


def test_a_native_history_of_300_messages_has_2_mb_that_the_gateway_can_open() -> None:
    body = bodies.native_history(300)

    said = json.loads(body)["messages"]
    turn = read_turn(body, TurnRules(Sealer([bodies.SEAL_KEY])))

    assert 2_000_000 < len(body) < 2_100_000
    assert len(said) == 301
    assert turn is not None
    asked = json.loads(turn.request())["messages"]
    results = [block for message in asked for block in message["content"] if "tool_use_id" in block]
    assert len(results) == 150
    assert all(len(result["content"]) == 8000 for result in results)
