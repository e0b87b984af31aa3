"""What the bytes that were kept say of a proxied answer."""

import json

import pytest

from gateway.books.outcome import Outcome, outcome_of_status
from gateway.books.record import Record, model_of
from tests.support.upstream import encode_event, message, sse, text, tool_use

TALK = text('"model":"no", "output_tokens":99 \nevent: error\n')


def looked(beginning: bytes, end: bytes, **fields: object) -> Record:
    record = Record("/v1/messages", answer_ends=(beginning, end))
    for name, value in fields.items():
        setattr(record, name, value)
    record.look()
    assert record.answer_ends is None
    return record


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_answers_figures(indent: int | None) -> None:
    body = json.dumps(message(TALK, model="qwen3", input_tokens=7, output_tokens=5), indent=indent).encode()
    record = looked(body, body)
    assert (record.input_tokens, record.output_tokens, record.outcome) == (7, 5, "ok")


def test_a_streams_figures() -> None:
    stream = b"".join(map(encode_event, sse(TALK, tool_use("x", {"model": "no"}), input_tokens=7, output_tokens=5)))
    record = looked(stream[:2048], stream[-2048:])
    assert (record.input_tokens, record.output_tokens, record.outcome) == (7, 5, "ok")


def test_the_figures_of_the_openai_routes() -> None:
    body = b'{"id":"x","model":"qwen3","choices":[],"usage":{"prompt_tokens": 7, "completion_tokens": 5}}'
    record = looked(body, body)
    assert (record.input_tokens, record.output_tokens) == (7, 5)


def test_the_messages_apis_names_come_before_openais() -> None:
    """A tool's input may have members of any name, and stand behind the usage."""
    body = b'{"usage":{"input_tokens":7,"output_tokens":5},"input":{"prompt_tokens":77,"completion_tokens":88}}'
    record = looked(body, body)
    assert (record.input_tokens, record.output_tokens) == (7, 5)


@pytest.mark.parametrize(
    "body", [b"", b"\x1f\x8b\x08", b'{"model":5,"usage":{"output_tokens":null}}', b'"model"', b'"input_tokens"']
)
def test_an_answer_without_figures(body: bytes) -> None:
    record = looked(body, body)
    assert (record.model, record.input_tokens, record.output_tokens, record.outcome) == ("", None, None, "ok")


@pytest.mark.parametrize(
    "end", [b"event: error\ndata: {}\n\n", b'data: {}\n\nevent: error\r\ndata: {"type":"error"}\n\n']
)
def test_an_error_event_is_upstreams_error(end: bytes) -> None:
    assert looked(b"", end).outcome == "upstream_error"
    assert looked(b"", end, outcome="client_gone").outcome == "client_gone"


def test_the_request_names_the_model_and_no_answer_does() -> None:
    record = Record("/v1/messages")
    record.passes(b'{"messages":[],"model":"qwen3"}')
    body = b'{"content":[{"type":"tool_use","input":{"model":"no"}}],"model":"other"}'
    record.keeps(body, body)
    record.look()
    assert record.model == "qwen3"


def test_the_name_that_is_known_stays() -> None:
    record = Record("/v1/messages", model="claude")
    record.passes(b'{"model":"qwen3"}')
    assert record.model == "claude"


INPUT = b'{"usage":{"input_tokens":77,"output_tokens":88}}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"usage":{"input_tokens":7,"output_tokens":5},"content":[{"input":%b}]}' % INPUT,
        b'{"content":[{"input":%b}],"usage":{"input_tokens":7,"output_tokens":5}}' % INPUT,
        b'{"content":[{"text":"\\"usage\\":{\\"input_tokens\\":77}"}],"usage":{"input_tokens":7,"output_tokens":5},"x":"usage"}',
        b'data: {"usage":{"input_tokens":7,"output_tokens":5}}\n\ndata: {"content_block":{"input":%b}}\n\n' % INPUT,
        b'data: {"message":{"usage":{"input_tokens":7}}}\n\ndata: {"usage":{"output_tokens":5}}\n\n',
        b'data: {"response":{"usage":{"input_tokens":7,"output_tokens":5}}}\n\ndata: [DONE]\n\n',
    ],
)
def test_a_tools_input_is_no_usage(body: bytes) -> None:
    record = looked(body, body)
    assert (record.input_tokens, record.output_tokens) == (7, 5)


def test_where_a_tools_input_hides_the_usage_there_are_no_figures() -> None:
    end = b'{"input":{"a":[%b]}}' % b",".join([INPUT] * 9)
    record = looked(b'{"x":', end)
    assert (record.input_tokens, record.output_tokens) == (None, None)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"model":5}', b'{"model"', b"[" * 100_000, b'{"x":1}', b"\xff"])
def test_a_body_may_name_none(body: bytes) -> None:
    assert model_of(body) == ""


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, "ok"), (304, "ok"), (400, "client_error"), (429, "client_error"), (500, "upstream_error")],
)
def test_outcomes_by_status(status: int, outcome: Outcome) -> None:
    assert outcome_of_status(status) == outcome
