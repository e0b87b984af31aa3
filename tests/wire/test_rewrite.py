"""Only the values change, and only where they must: everything else is byte for byte what it was."""

import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from gateway.errors import InvalidRequest
from gateway.wire.rewrite import ModelMap, NameInStream, name_in_message, read_request
from tests.support.upstream import encode_event, message, sse, text


def rewritten(body: bytes, model: str | None = None, cap: int | None = None) -> bytes:
    return read_request(body).rewritten(model, cap)


# --- the map --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "served"),
    [
        ("claude-opus-4-8", "big"),
        ("claude-haiku-4", "small"),
        ("claude", "claude"),
        ("xclaude-opus", "xclaude-opus"),
        ("qwen3", "qwen3"),
        ("Claude-opus", "Claude-opus"),
        ("gpt-4", "four"),
        ("gpt-5", "gpt-5"),
        ("a.b", "dot"),
        ("axb", "axb"),
        ("claude-\nx", "big"),
    ],
)
def test_the_first_glob_that_matches_the_whole_name_counts(asked: str, served: str) -> None:
    names = ModelMap(
        {"claude-haiku-*": "small", "claude-*": "big", "claude-opus-4-8": "never", "gpt-[34]": "four", "a.b": "dot"}
    )
    assert names.upstream_name(asked) == served


def test_literal_names_are_those_without_a_wildcard() -> None:
    assert ModelMap({"claude-*": "q", "claude-x": "q", "a?": "q", "b[1]": "q", "y": "r"}).literals == ("claude-x", "y")


# --- requests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "after"),
    [
        (b'{"model":"claude","max_tokens":9}', b'{"model":"qwen3","max_tokens":9}'),
        (
            b' {\n "x" : {"model":"claude"} ,"model" :\t"claude" }\n',
            b' {\n "x" : {"model":"claude"} ,"model" :\t"qwen3" }\n',
        ),
        (b'{"messages":[{"content":"\\"model\\":\\"claude\\""}],"model":"claude"}', None),
        ('{"a":"é\u2028","model":"claude","b":"ü"}'.encode(), '{"a":"é\u2028","model":"qwen3","b":"ü"}'.encode()),
        (b'{"m\\u006fdel":"claude"}', b'{"m\\u006fdel":"qwen3"}'),
        (b'{"model":"a","model":"claude","z":1}', b'{"model":"a","model":"qwen3","z":1}'),
        (b'{"model":"claude","n":NaN,"s":"\\ud800"}', b'{"model":"qwen3","n":NaN,"s":"\\ud800"}'),
        (b'{"model":7}', b'{"model":7}'),
        (b'{"model":null}', b'{"model":null}'),
        (b'{"model":["claude"]}', b'{"model":["claude"]}'),
        (b"{}", b"{}"),
        (b'{"":1,"model":"claude"}', b'{"":1,"model":"qwen3"}'),
    ],
)
def test_the_model_changes_in_place(body: bytes, after: bytes | None) -> None:
    assert rewritten(body, model="qwen3") == (after or body[: -len(b'claude"}')] + b'qwen3"}')


def test_a_name_is_written_as_json() -> None:
    assert rewritten(b'{"model":"x"}', model='q"\\é') == '{"model":"q\\"\\\\é"}'.encode()


@pytest.mark.parametrize(
    ("before", "cap", "after"),
    [
        ('"max_tokens":32000', 4096, '"max_tokens":4096'),
        ('"max_tokens":4096', 4096, '"max_tokens":4096'),
        ('"max_tokens":1', 4096, '"max_tokens":1'),
        ('"max_tokens":true', 4096, '"max_tokens":true'),
        ('"max_tokens":-5', 4096, '"max_tokens":-5'),
        ('"metadata":{"max_tokens":32000}', 4096, '"metadata":{"max_tokens":32000}'),
    ],
)
def test_the_cap_lowers_and_never_raises(before: str, cap: int, after: str) -> None:
    assert rewritten(f"{{{before}}}".encode(), cap=cap) == f"{{{after}}}".encode()


@pytest.mark.parametrize(
    ("tokens", "budget", "cap", "lowered"),
    [
        (32000, 31999, 4096, 4095),
        (32000, 4096, 4096, 4095),
        (32000, 4095, 4096, 4095),
        (32000, 1024, 4096, 1024),
        (32000, 10000, 1025, 1024),
        (32000, 10000, 500, 1024),
        (32000, 40000, 4096, 40000),
        (4096, 4095, 8192, 4095),
    ],
    ids=["too big", "equal", "just fits", "small", "the least", "none fits", "never fitted", "no cap needed"],
)
def test_a_thinking_budget_that_no_longer_fits_is_lowered_with_it(
    tokens: int, budget: int, cap: int, lowered: int
) -> None:
    body = b'{"thinking": {"type":"enabled", "budget_tokens": %d}, "max_tokens":%d}'
    assert rewritten(body % (budget, tokens), cap=cap) == body % (lowered, min(tokens, cap))


@pytest.mark.parametrize("thinking", [b'{"type":"adaptive"}', b"null", b"[1]", b'"x"', b'{"budget_tokens":"many"}'])
def test_other_thinking_stays(thinking: bytes) -> None:
    body = b'{"max_tokens":%d,"thinking":' + thinking + b"}"
    assert rewritten(body % 32000, cap=4096) == body % 4096


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"model":"claude"',
        b'{"model":"claude"}x',
        b'{"model" "claude"}',
        b'{1:"claude"}',
        b'{"model":"claude",}',
        b'\xef\xbb\xbf{"model":"claude"}',
        b'{"model":' + b"[" * 100_000,
        b"[" * 100_000,
        '{"max_tokens":64000}'.encode("utf-8-sig"),
        *('{"max_tokens":64000}'.encode(name) for name in ("utf-16", "utf-16-le", "utf-16-be")),
        *('{"max_tokens":64000}'.encode(name) for name in ("utf-32", "utf-32-le", "utf-32-be")),
        b'{"model":"claude-1","x":"\xff","max_tokens":9000}',
        '{"x":"\ud800","max_tokens":9000}'.encode("utf-8", "surrogatepass"),  # which Python's json reads from bytes
    ],
)
def test_a_body_that_is_not_plain_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="must be JSON in plain UTF-8"):
        read_request(body)


@pytest.mark.parametrize(
    "body", [b"null", b" [1]", b'"model"', b"5", b"NaN", b'[{"model":"claude","max_tokens":9000}]']
)
def test_json_that_is_no_object_holds_nothing_to_change(body: bytes) -> None:
    assert rewritten(body, model="qwen3", cap=1) == body


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("model"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=5), VALUES, max_size=5),
    st.text(min_size=1, max_size=8),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
)
def test_any_body_keeps_all_but_the_value(
    fields: dict[str, Any], name: str, indent: int | None, ascii_only: bool
) -> None:
    fields = {**fields, "model": "claude-é"}
    body = json.dumps(fields, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    old = json.dumps("claude-é", ensure_ascii=ascii_only).encode()
    new = json.dumps(name, ensure_ascii=False).encode()
    after = rewritten(body, model=name)
    assert json.loads(after) == {**fields, "model": name}
    assert len(after) == len(body) - len(old) + len(new)


# --- answers --------------------------------------------------------------------------------------------------------


def test_a_json_answer_gets_the_clients_name() -> None:
    body = json.dumps(message(text('"model":"qwen3"'), model="qwen3")).encode()
    assert json.loads(name_in_message(body, "claude")) == message(text('"model":"qwen3"'), model="claude")


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"error":{"model":"qwen3"}}', b'[{"model":"qwen3"}]', b'{"model":'])
def test_an_answer_that_names_no_model_passes(body: bytes) -> None:
    assert name_in_message(body, "claude") == body


STREAM = b"".join(map(encode_event, sse(text('"message_start" "model":"qwen3"'), model="qwen3")))
NAMED = b"".join(map(encode_event, sse(text('"message_start" "model":"qwen3"'), model="claude")))


def fed(stream: bytes, cuts: list[int]) -> bytes:
    naming = NameInStream("claude")
    edges = [0, *sorted(cuts), len(stream)]
    pieces = [naming.feed(stream[start:end]) for start, end in pairwise(edges)]
    return b"".join(pieces) + naming.flush()


@pytest.mark.parametrize("at", range(0, STREAM.index(b"content_block_start"), 3))
def test_message_start_gets_the_clients_name_however_it_is_cut(at: int) -> None:
    assert fed(STREAM, [at]) == NAMED


@given(st.lists(st.integers(0, len(STREAM)), max_size=6), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_any_cut_any_line_end(cuts: list[int], end: bytes) -> None:
    assert fed(STREAM.replace(b"\n", end), cuts) == NAMED.replace(b"\n", end)


def test_what_comes_before_it_is_not_held_back() -> None:
    naming = NameInStream("claude")
    ping = b': comment\n\nevent: ping\ndata: {"type":"ping"}\n\n'
    assert naming.feed(ping) == ping
    assert naming.feed(STREAM) == NAMED


def test_after_it_bytes_pass_as_they_are() -> None:
    naming = NameInStream("claude")
    naming.feed(STREAM)
    assert naming.done
    later = b'data: {"type":"message_start","message":{"model":"qwen3"}'
    assert naming.feed(later) is later


@pytest.mark.parametrize(
    "stream",
    [
        b'data: {"type":"message_start"}\n\n',
        b'data: {"type":"message_start","message":[]}\n\n',
        b'data: {"type":"message_start","message":{"model":5}}\n\n',
        b"data: message_start\n\n",
        b'data: {"type":"other","message_start":{"model":"qwen3"}}\n\n',
        b'data: {"type":"message_start","message":{"model":"qwen3"',
        b"",
    ],
)
def test_a_stream_that_names_no_model_passes(stream: bytes) -> None:
    assert fed(stream, []) == stream


def test_an_endless_line_is_not_held_for_ever() -> None:
    naming = NameInStream("claude")
    line = b"data: " + b"x" * (1 << 20)
    assert naming.feed(line) == line
    assert naming.feed(b"y") == b"y"


def test_a_number_of_any_length_is_lowered() -> None:
    for digits in (17, 18, 19, 60, 4000):
        assert rewritten(b'{"max_tokens":' + b"9" * digits + b"}", cap=100) == b'{"max_tokens":100}'


class Asked(BaseModel):
    """What a server made with pydantic takes for a request, as vLLM does."""

    max_tokens: int


@pytest.mark.parametrize(
    "value",
    [
        *("64000.0", "6.4e4", "6.4E+4", "64000e0", "640000000e-4", '"64000"', '" 64000 "', '"64_000"', '"+64000"'),
        *('"64000.0"', '"064000"', '"\\u0036\\u0034000"', "9" * 300),
    ],
)
def test_whatever_upstream_takes_for_an_integer_is_lowered(value: str) -> None:
    assert Asked.model_validate(json.loads(f'{{"max_tokens":{value}}}')).max_tokens > 100
    assert rewritten(b'{"x":1,"max_tokens":%s }' % value.encode(), cap=100) == b'{"x":1,"max_tokens":100 }'


@pytest.mark.parametrize(
    "value",
    [
        *(
            "64000.5",
            "1e400",
            "-64000.0",
            '"-64000"',
            '"6.4e4"',
            '"many"',
            '""',
            "null",
            "true",
            "[64000]",
            '{"a":64000}',
        ),
        *('"64000.5"', "1e30", "NaN", "Infinity", "-Infinity", "99.0", '"99"', '"' + "9" * 5000 + '"'),
    ],
)
def test_what_upstream_refuses_or_what_asks_for_no_more_stays(value: str) -> None:
    with suppress(ValidationError):  # to which upstream answers with 400
        assert Asked.model_validate(json.loads(f'{{"max_tokens":{value}}}')).max_tokens <= 100
    body = b'{"max_tokens":%s}' % value.encode()
    assert rewritten(body, cap=100) == body


def test_a_budget_is_lowered_however_it_is_written() -> None:
    body = b'{"max_tokens":"32000","thinking":{"type":"enabled","budget_tokens":3.1e4}}'
    after = b'{"max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":4095}}'
    assert rewritten(body, cap=4096) == after


@pytest.mark.parametrize(
    ("body", "after"),
    [
        (b'{"max_tokens":1,"max_tokens":9000}', b'{"max_tokens":1,"max_tokens":100}'),
        (b'{"max_tokens":90,"max_tokens":9}', b'{"max_tokens":90,"max_tokens":9}'),
        (b'{"max_tokens":9000,"max_tokens":9}', b'{"max_tokens":9000,"max_tokens":9}'),
        (b'{"max_tokens":1,"max\\u005ftokens":9000}', b'{"max_tokens":1,"max\\u005ftokens":100}'),
        (b'{"max_tokens":9000,"max_tokens":"9e9"}', b'{"max_tokens":9000,"max_tokens":"9e9"}'),
    ],
)
def test_of_a_key_that_stands_twice_the_last_counts(body: bytes, after: bytes) -> None:
    assert rewritten(body, cap=100) == after
