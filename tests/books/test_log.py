"""One line an event, whatever a client puts into a name; no words of an error, no words of other libraries."""

import io
import json
import logging
from typing import Literal

import pytest
import structlog

from gateway.books.log import RequestLog, configure_logging, describe
from gateway.books.outcome import Outcome
from gateway.books.record import Record

pytestmark = pytest.mark.usefixtures("logging_as_before")


def record(**fields: object) -> Record:
    made = Record("/v1/messages", "req_1", ended_at=1796019709.25, status=200)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def lines(form: Literal["text", "json"], *records: Record, level: str = "info") -> list[str]:
    file = io.StringIO()
    RequestLog(level, form, file).turns_ended(records, in_flight=0)
    return file.getvalue().splitlines()


FULL = {
    "model": "claude-x",
    "rounds": 2,
    "tools": {"web_search": 17, "clock": 1},
    "upstream_ms": 12.34,
    "total_ms": 20.0,
    "input_tokens": 7,
    "output_tokens": 5,
}


def test_the_line_as_text() -> None:
    assert lines("text", record(**FULL), record()) == [
        "2026-11-30T06:21:49.250+00:00 info request route=/v1/messages status=200 outcome=ok model=claude-x rounds=2 "
        "tools=web_search×17,clock upstream_ms=12.3 total_ms=20.0 input_tokens=7 output_tokens=5 request_id=req_1",  # noqa: RUF001
        "2026-11-30T06:21:49.250+00:00 info request route=/v1/messages status=200 outcome=ok model=- rounds=0 "
        "tools=- upstream_ms=0.0 total_ms=0.0 input_tokens=- output_tokens=- request_id=req_1",
    ]


def test_the_line_as_json() -> None:
    [line] = lines("json", record(**FULL))
    assert json.loads(line) == {
        "time": "2026-11-30T06:21:49.250+00:00",
        "level": "info",
        "event": "request",
        "route": "/v1/messages",
        "status": 200,
        "outcome": "ok",
        **FULL,
        "upstream_ms": 12.3,
        "request_id": "req_1",
        "x_request_id": None,
        "traceparent": None,
    }


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("name", ["request_id", "client_id", "traceparent"])
def test_an_id_of_somebody_elses_is_bounded_and_breaks_no_line(form: Literal["text", "json"], name: str) -> None:
    [line] = lines(form, record(**{name: "a\r\n\x1b b" + "x" * 5000}))
    assert line.isprintable()
    assert len(line) < 1000


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "model", ["a\nb outcome=ok", 'a" b', "a\r\x1b[31m\x7f\u2028b", "\ud800", "é", "x" * 5000, "a=b c"]
)
def test_a_name_cannot_break_its_line(form: Literal["text", "json"], model: str) -> None:
    [line] = lines(form, record(model=model))
    assert line.isprintable()
    assert len(line) < 1500
    if form == "text":
        assert line.count(" outcome=ok model=") == 1
        assert line.endswith("input_tokens=- output_tokens=- request_id=req_1")


@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        ("ok", "info"),
        ("client_error", "info"),
        ("client_gone", "info"),
        ("timeout", "warning"),
        ("overloaded", "warning"),
        ("gateway_error", "warning"),
    ],
)
def test_what_is_not_the_clients_doing_is_a_warning(outcome: Outcome, level: str) -> None:
    assert [line.split(" ")[1] for line in lines("text", record(outcome=outcome))] == [level]
    assert lines("text", record(outcome=outcome), level="error") == []


def test_probes_are_for_debugging() -> None:
    assert lines("text", record(route="/health", quiet=True)) == []
    assert len(lines("text", record(route="/health", quiet=True), level="debug")) == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_other_events_look_alike(form: Literal["text", "json"]) -> None:
    file = io.StringIO()
    configure_logging("info", form, file)
    log = structlog.get_logger()
    log.debug("quiet")
    log.info("listening", url="http://127.0.0.1:9000", odd="a\nb")
    [line] = file.getvalue().splitlines()
    if form == "text":
        assert line.partition(" ")[2] == 'info listening url=http://127.0.0.1:9000 odd="a\\nb"'
    else:
        assert json.loads(line) | {"time": ""} == {
            "time": "",
            "level": "info",
            "event": "listening",
            "url": "http://127.0.0.1:9000",
            "odd": "a\nb",
        }


def test_an_error_is_told_by_type_and_place_and_not_by_its_words() -> None:
    try:
        raise ValueError("the whole prompt")
    except ValueError as error:
        told = describe(error)
    assert told["error"] == "ValueError"
    assert told["at"].startswith("test_log.py:")
    assert "prompt" not in str(told)


def test_the_servers_log_comes_in_without_an_errors_words() -> None:
    file = io.StringIO()
    configure_logging("info", "text", file)
    server = logging.getLogger("uvicorn.error")
    server.info("Started server process")
    server.error("ASGI callable returned without completing response.")
    try:
        raise ValueError("the whole prompt")
    except ValueError as error:
        server.error("Exception in ASGI application\n", exc_info=error)
    logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: <Task exception=X('the prompt')>")
    exception, task = (line.partition(" ")[2] for line in file.getvalue().splitlines())
    assert exception.startswith('error "Exception in ASGI application" logger=uvicorn.error error=ValueError at=')
    assert task == 'error "Task exception was never retrieved" logger=asyncio'
    assert "prompt" not in file.getvalue()


def test_other_libraries_are_not_heard(capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    configure_logging("debug", "text", file)
    logging.getLogger("httpx").info("HTTP Request: GET https://search/?q=the+prompt")
    logging.getLogger("some.library").error("failed for the prompt")
    assert file.getvalue() == ""
    assert capsys.readouterr().err == ""
