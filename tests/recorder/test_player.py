import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from recorder import serve_cassettes
from recorder.cassette import Request
from recorder.errors import CassetteError
from recorder.faults import parse_fault
from tests.recorder.tape import SECRET, Exchange, answered, asked, assistant, call, result, streamed, user, write
from tests.support.eventually import eventually
from tests.support.upstream import encode_event, message, sse, text, thinking, tool_use

pytestmark = pytest.mark.anyio

FIRST_ANSWER = [thinking("I should search."), tool_use("web_search", {"query": "rust"}, id="call-1")]
FIRST = asked("Latest Rust?", stream=True)
SECOND = asked(
    "Latest Rust?",
    assistant(FIRST_ANSWER[0].value, call("call-1", "rust")),
    user([result("call-1", "1.89.0")]),
    stream=True,
)
SEARCH: Sequence[Exchange] = (
    (FIRST, streamed(sse(*FIRST_ANSWER))),
    (SECOND, streamed(sse(text("It is 1.89.0.")))),
)


async def ask(origin: str, request: Request, **kwargs: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=origin, timeout=5) as client:
        return await client.request(request.method, request.path, json=request.body, **kwargs)


async def test_a_conversation_plays_byte_for_byte(tmp_path: Path) -> None:
    async with serve_cassettes([write(tmp_path / "search.yaml", *SEARCH)]) as player:
        for request, response in SEARCH:
            answer = await ask(player.origin, request)
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert answer.content == response.content.read()
    assert [(seen.turn, seen.cassette, seen.problem) for seen in player.seen] == [
        ("t1", "search.yaml", None),
        ("t2", "search.yaml", None),
    ]
    assert player.seen[0].body == FIRST.body


async def test_a_json_answer_keeps_its_bytes_status_and_headers(tmp_path: Path) -> None:
    response = answered(b'{"error" : {"message": "no such model"}}', 404)
    response.headers |= {"x-request-id": "7", "content-length": "999", "date": "yesterday"}
    async with serve_cassettes([write(tmp_path / "c.yaml", (asked("hi"), response))]) as player:
        answer = await ask(player.origin, asked("hi"))
    assert (answer.status_code, answer.content) == (404, response.content.read())
    assert dict(answer.headers) == {"content-type": "application/json", "x-request-id": "7", "content-length": "40"}


async def test_a_request_that_repeats_its_own_key_is_still_the_recorded_one(tmp_path: Path) -> None:
    request = asked("my key is plain-word")
    request.headers = {"x-api-key": "plain-word"}
    path = write(tmp_path / "c.yaml", (request, answered({"a": 1})))
    assert "plain-word" not in path.read_text()
    async with serve_cassettes([path]) as player:
        assert (await ask(player.origin, request, headers=request.headers)).json() == {"a": 1}


async def test_several_conversations_at_once_each_by_its_own_history(tmp_path: Path) -> None:
    def conversation(name: str) -> Sequence[Exchange]:
        answer, after = message(text(f"Hello {name}"), id=name), message(text(f"Bye {name}"), id=name)
        turns = [f"I am {name}", assistant(*answer["content"]), user("bye")]
        return (asked(turns[0]), answered(answer)), (asked(*turns), answered(after))

    both = [conversation("Ann"), conversation("Bob")]
    paths = [write(tmp_path / f"{number}.yaml", *exchanges) for number, exchanges in enumerate(both)]
    async with serve_cassettes(paths) as player:
        for exchanges in zip(*both, strict=True):
            answers = await asyncio.gather(*(ask(player.origin, request) for request, _ in reversed(exchanges)))
            expected = [response.content.read() for _, response in reversed(exchanges)]
            assert [answer.content for answer in answers] == expected


async def test_the_same_request_recorded_twice_has_both_answers_in_turn(tmp_path: Path) -> None:
    twice = [(asked("dice"), answered(message(text(number)))) for number in ("one", "two")]
    async with serve_cassettes([write(tmp_path / "c.yaml", *twice)]) as player:
        said = [(await ask(player.origin, asked("dice"))).json()["content"][0]["text"] for _ in range(4)]
    assert said == ["one", "two", "one", "two"]


async def test_a_request_that_differs_is_told_where(tmp_path: Path) -> None:
    other = json.loads(json.dumps(SECOND.body))
    other["messages"][2]["content"][0]["content"] = "1.90.0"
    async with serve_cassettes([write(tmp_path / "search.yaml", *SEARCH)]) as player:
        answer = await ask(player.origin, Request("POST", "/v1/messages", {}, {}, other))
    assert answer.status_code == 409
    error = answer.json()
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert error["error"]["message"] == (
        "no recorded turn answers this request. The nearest is t2 of search.yaml, which differs in 1 place:\n"
        "  body.messages.2.content.0.content\n"
        '    recorded  "1.89.0"\n'
        '    received  "1.90.0"'
    )
    assert player.seen[0].problem == error["error"]["message"]


async def test_what_varies_is_no_difference(tmp_path: Path) -> None:
    sent = asked(
        "Latest Rust?",
        assistant(
            {"type": "thinking", "thinking": "I should search."}, {"type": "text", "text": "\n\n"}, call("x", "rust")
        ),
        user([result("x", "1.89.0")]),
        stream=True,
    )
    async with serve_cassettes([write(tmp_path / "c.yaml", *SEARCH)]) as player:
        assert (await ask(player.origin, sent, headers={"x-api-key": "any"})).status_code == 200


async def test_more_can_be_ignored(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", *SEARCH)
    sent = asked("Latest Rust?", stream=True, max_tokens=9)
    async with serve_cassettes([path]) as player:
        assert (await ask(player.origin, sent, params={"beta": "true"})).status_code == 409
    async with serve_cassettes([path], ignore=["body.max_tokens", "query.beta"]) as player:
        assert (await ask(player.origin, sent, params={"beta": "true"})).status_code == 200


async def test_a_recorded_credential_need_not_be_known(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", (asked(f"key {SECRET}", metadata={"user_id": "me"}), answered({})))
    async with serve_cassettes([path]) as player:
        sent = asked(f"key {SECRET}", metadata={"user_id": "somebody else"})
        assert (await ask(player.origin, sent)).status_code == 200


async def test_a_body_that_is_not_json_plays_too(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", (Request("POST", "/v1/messages", {}, {}, None, "{cut"), answered({"e": 1}, 400)))
    async with serve_cassettes([path]) as player, httpx.AsyncClient(base_url=player.origin) as client:
        assert (await client.post("/v1/messages", content=b"{cut")).status_code == 400
        assert (await client.post("/v1/messages", content=b"{other")).status_code == 409


async def test_what_an_upstream_has_besides(tmp_path: Path) -> None:
    recorded = {"version": "0.32.0", "max_model_len": 4096}
    path = write(tmp_path / "c.yaml", *SEARCH, recorded=recorded)
    async with serve_cassettes([path]) as player, httpx.AsyncClient(base_url=player.origin) as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/version")).json() == {"version": "0.32.0"}
        (model,) = (await client.get("/v1/models")).json()["data"]
        assert (model["id"], model["max_model_len"]) == ("qwen3", 4096)
        count = await client.post("/v1/messages/count_tokens", json={})
        assert (count.status_code, count.json()["error"]["type"]) == (404, "not_found_error")


async def test_what_was_recorded_goes_before_what_the_player_has_of_its_own(tmp_path: Path) -> None:
    models = (Request("GET", "/v1/models"), answered({"data": []}))
    counted = (Request("POST", "/v1/messages/count_tokens", {}, {}, {"a": 1}), answered({"input_tokens": 9}))
    async with serve_cassettes([write(tmp_path / "c.yaml", models, counted)]) as player:
        assert (await ask(player.origin, Request("GET", "/v1/models"))).json() == {"data": []}
        assert (await ask(player.origin, counted[0])).json() == {"input_tokens": 9}
        assert (await ask(player.origin, Request("POST", counted[0].path, {}, {}, {"a": 2}))).status_code == 409


async def test_the_recorded_pace(tmp_path: Path) -> None:
    events = sse(text("Hello you"))
    path = write(tmp_path / "c.yaml", (asked("hi"), streamed(events, [0, 0, *[150] * (len(events) - 2)])))
    came: list[float] = []
    async with serve_cassettes([path], speed=2) as player, httpx.AsyncClient(base_url=player.origin) as client:
        began = time.monotonic()
        async with client.stream("POST", "/v1/messages", json=asked("hi").body) as answer:
            async for _ in answer.aiter_raw():
                came.append(time.monotonic() - began)
    assert came[-1] >= 0.075


async def test_a_json_answer_takes_as_long_as_it_took(tmp_path: Path) -> None:
    response = answered({})
    response.elapsed_ms = 100
    async with serve_cassettes([write(tmp_path / "c.yaml", (asked("hi"), response))], speed=1) as player:
        began = time.monotonic()
        await ask(player.origin, asked("hi"))
        assert time.monotonic() - began >= 0.1


EVENTS = sse(text("Hello you"))
PIECES = list(map(encode_event, EVENTS))


async def receive_all(origin: str) -> tuple[bytes, type[Exception] | None]:
    """All that comes until half a second of silence, and how it ended otherwise."""
    data = b""
    async with httpx.AsyncClient(base_url=origin, timeout=httpx.Timeout(5, read=0.5)) as client:
        try:
            async with client.stream("POST", "/v1/messages", json=asked("hi").body) as answer:
                async for chunk in answer.aiter_raw():
                    data += chunk
        except httpx.TransportError as error:
            return data, type(error)
    return data, None


@pytest.mark.parametrize(
    ("fault", "data", "ending"),
    [
        ("cut:2", b"".join(PIECES[:2]), httpx.RemoteProtocolError),
        ("cut:0", b"", httpx.RemoteProtocolError),
        (f"cut:{len(PIECES)}", b"".join(PIECES), httpx.RemoteProtocolError),
        ("cut:99", b"".join(PIECES), None),
        ("stall:1", PIECES[0], httpx.ReadTimeout),
        ("stall:0@t1", b"", httpx.ReadTimeout),
        ("stall:0@t7", b"".join(PIECES), None),
        ("slow:60", b"", httpx.ReadTimeout),
    ],
)
async def test_faults_of_a_stream(fault: str, data: bytes, ending: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", (asked("hi"), streamed(EVENTS)))
    async with serve_cassettes([path], faults=[parse_fault(fault)]) as player:
        assert await receive_all(player.origin) == (data, ending)


async def test_malformed_json_in_one_event(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", (asked("hi"), streamed(EVENTS)))
    async with serve_cassettes([path], faults=[parse_fault("malformed:2")]) as player:
        data, ending = await receive_all(player.origin)
    events = data.split(b"\n\n")
    assert ending is None
    assert [event + b"\n\n" for event in events[:1] + events[2:-1]] == PIECES[:1] + PIECES[2:]
    with pytest.raises(json.JSONDecodeError):
        json.loads(events[1].partition(b"data: ")[2])


BODY = json.dumps(message(text("Hello you")), separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("fault", "data", "ending"),
    [
        ("cut:10", BODY[:10], httpx.RemoteProtocolError),
        ("stall:10", BODY[:10], httpx.ReadTimeout),
        ("malformed:10", BODY[:10], None),
        ("cut:99999", BODY, None),
    ],
)
async def test_faults_of_a_json_answer(fault: str, data: bytes, ending: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", (asked("hi"), answered(BODY)))
    async with serve_cassettes([path], faults=[parse_fault(fault)]) as player:
        assert await receive_all(player.origin) == (data, ending)


async def test_another_status_in_place_of_the_answer(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", *SEARCH)
    async with serve_cassettes([path], faults=[parse_fault("status:529@t2")]) as player:
        assert (await ask(player.origin, FIRST)).status_code == 200
        answer = await ask(player.origin, SECOND)
    assert (answer.status_code, answer.json()["error"]["type"]) == (529, "overloaded_error")


async def test_stops_at_once_though_an_answer_stalls(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", (asked("hi"), streamed(EVENTS)))
    async with asyncio.timeout(3), httpx.AsyncClient(timeout=10) as client:
        async with serve_cassettes([path], faults=[parse_fault("stall:1")]) as player:
            stalled = asyncio.create_task(client.post(f"{player.origin}/v1/messages", json=asked("hi").body))
            await eventually(lambda: bool(player.seen))
        with pytest.raises(httpx.RemoteProtocolError):
            await stalled


async def test_nothing_to_play(tmp_path: Path) -> None:
    with pytest.raises(CassetteError, match="no turn to play"):
        async with serve_cassettes([write(tmp_path / "c.yaml")]):
            pass
