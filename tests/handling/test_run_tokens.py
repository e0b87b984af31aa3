"""Token requests over real sockets: vLLM's chunk shapes in, Messages out; faults, pings, clients that leave."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy
import pytest

from gateway.settings import Settings
from gateway.wire.sse import SSEReader
from tests.support.events import events_in
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.playbook import BASH, NATIVE, QUESTION, SEARCH
from tests.support.raw import post
from tests.support.search import Held, ScriptedSearch, found
from tests.support.upstream import Answer, ScriptedUpstream, head, json_answer, message, raw, sse, sse_answer, text
from tests.support.upstream import tool_use as messages_call
from tests.support.vllm import (
    call,
    chat,
    chat_answer,
    chat_chunks,
    completion_answer,
    completion_chunks,
    data,
    markup,
    npy,
    say,
    streamed,
    thought,
)
from tests.tokens.conversation import fold

pytestmark = pytest.mark.anyio

Json = dict[str, Any]

ASKED = {"return_token_ids": True, "return_logprob": True}
HELLO = (thought("Hm.", 10), markup(11), say("Hello", 12), say("!", 13), markup(9))
SEARCH_RUST = call("web_search", {"query": "rust"}, 30, 31, id="call-rust")
DONE = (say("It is 1.89.", 50), markup(9))
PROMPT = [1, 2, 3]
# (prompt + output tokens - 1, layers, experts per token)
EXPERTS = numpy.arange(4 * 2 * 2, dtype=numpy.uint8).reshape(4, 2, 2)
ERROR = {"error": {"message": "max_tokens is too large", "type": "BadRequestError", "param": None, "code": 400}}


def asking(*, stream: bool, **members: Any) -> Json:
    return {"model": "qwen3", "max_tokens": 64, "stream": stream, "messages": [QUESTION], **ASKED, **members}


def asking_ids(*, stream: bool, **members: Any) -> Json:
    return {"model": "qwen3", "max_tokens": 64, "stream": stream, "input_ids": PROMPT, **ASKED, **members}


@asynccontextmanager
async def setting(
    *answers: Answer, search: Any = None, **settings: Any
) -> AsyncIterator[tuple[RunningGateway, ScriptedUpstream]]:
    settings = {"upstream_dialect": "vllm", **settings}
    async with ScriptedUpstream(*answers) as upstream:
        search = search or ScriptedSearch({"rust": found("It is 1.89.")})
        async with running_gateway(Settings(upstream=upstream.origin, **settings), search=search) as gateway:
            yield gateway, upstream


def events(response: httpx.Response) -> list[Json]:
    return events_in(response.content)


async def live(response: httpx.Response) -> AsyncIterator[Json]:
    reader = SSEReader()
    async for chunk in response.aiter_raw():
        for frame in reader.feed(chunk):
            yield json.loads(frame.data)


# --- messages in, tokens out ------------------------------------------------------------------------------------------


async def test_a_message_with_its_tokens() -> None:
    async with setting(chat(*HELLO, stream=False)) as (gateway, upstream):
        headers = {"x-api-key": "k", "accept-encoding": "gzip"}
        response = await gateway.client.post("/v1/messages?beta=true", json=asking(stream=False), headers=headers)
    answer = response.json()
    assert [block["type"] for block in answer["content"]] == ["thinking", "text"]
    assert answer["output_ids"] == [10, 11, 12, 13, 9]
    assert answer["output_token_logprobs"] == [[-0.1, 10], [-0.11, 11], [-0.12, 12], [-0.13, 13], [-0.09, 9]]
    assert (answer["stop_reason"], answer["usage"]) == ("end_turn", {"input_tokens": 3, "output_tokens": 5})
    assert "rounds" not in answer
    asked = upstream.requests[0]
    assert (asked.method, asked.target) == ("POST", "/v1/chat/completions")
    assert asked.json["return_token_ids"] is True
    assert asked.header(b"x-api-key") == b"k"
    assert asked.header(b"accept-encoding") == b"identity"
    assert response.headers["content-type"] == "application/json"


async def test_a_stream_with_its_tokens() -> None:
    async with setting(chat(*HELLO, stream=True)) as (gateway, upstream):
        response = await gateway.client.post("/v1/messages", json=asking(stream=True))
    assert response.headers["content-type"].startswith("text/event-stream")
    folded = fold(events(response))
    assert [block["type"] for block in folded.content] == ["thinking", "text"]
    assert folded.output_ids == [10, 11, 12, 13, 9]
    assert folded.output_token_logprobs[0] == [-0.1, 10]
    assert folded.usage == {"input_tokens": 3, "output_tokens": 5}
    assert upstream.requests[0].json["stream_options"]["include_usage"] is True


@pytest.mark.parametrize("stream", [False, True])
async def test_a_token_request_is_no_turn(stream: bool) -> None:
    """Neither white space nor <think> in text is touched, and a client's call is the client's."""
    said = (say("<think>", 10), say("\n", 11), call("Bash", {"command": "ls"}, 12, 13))
    async with setting(chat(*said, stream=stream)) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=stream, tools=[BASH]))
    content = fold(events(response)).content if stream else response.json()["content"]
    assert [block["type"] for block in content] == ["text", "tool_use"]
    assert content[0]["text"] == "<think>\n"


@pytest.mark.parametrize("stream", [False, True])
async def test_the_model_map_names_the_message_as_the_client_did(stream: bool) -> None:
    async with setting(chat(*HELLO, stream=stream), model_map={"claude-*": "qwen3"}) as (gateway, upstream):
        body = asking(stream=stream, model="claude-opus-4-8")
        response = await gateway.client.post("/v1/messages", json=body)
    assert upstream.requests[0].json["model"] == "qwen3"
    named = events(response)[0]["message"] if stream else response.json()
    assert named["model"] == "claude-opus-4-8"


# --- ids in -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["<think>Hm.</think> Hi.", "\n", ""])
async def test_ids_in_are_answered_by_one_text_block_with_the_text_as_it_is(text: str) -> None:
    async with setting(json_answer(completion_answer(text, [7, 8], prompt=PROMPT))) as (gateway, upstream):
        answer = (await gateway.client.post("/v1/messages", json=asking_ids(stream=False))).json()
    assert answer["content"] == [{"type": "text", "text": text}]
    assert (answer["output_ids"], answer["output_token_logprobs"]) == ([7, 8], [[-0.07, 7], [-0.08, 8]])
    assert upstream.requests[0].target == "/v1/completions"
    assert upstream.requests[0].json["prompt"] == PROMPT

    pieces = [(text[:3], [7]), (text[3:], [8])]
    async with setting(streamed(completion_chunks(*pieces, prompt=PROMPT))) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking_ids(stream=True))
    folded = fold(events(response))
    assert folded.content == [{"type": "text", "text": text}]
    assert folded.output_ids == [7, 8]


REFUSED: dict[str, tuple[Json, str]] = {
    "both": (asking_ids(stream=False, messages=[QUESTION]), "input_ids: cannot stand beside messages"),
    "neither": (asking(stream=False, messages=[]), "messages: the request has neither"),
    "absent": ({"model": "qwen3", "max_tokens": 5, "return_token_ids": True}, "messages: the request has neither"),
    "empty": (asking_ids(stream=False, input_ids=[]), "input_ids: must not be empty"),
    "text": (asking_ids(stream=False, input_ids="1, 2"), "input_ids: must be a list"),
    "negative": (asking_ids(stream=False, input_ids=[1, -1]), "input_ids.1: must be an integer >= 0"),
    "true": (asking_ids(stream=False, input_ids=[True]), "input_ids.0: must be an integer >= 0"),
    "image without ids": (asking(stream=False, image_data="https://example.com/a.png"), "image_data: belongs to"),
    "image": (asking_ids(stream=False, image_data="https://example.com/a.png"), "image_data: vLLM takes no images"),
    "system": (asking_ids(stream=False, system="Be brief."), "system: cannot stand beside input_ids"),
    "tools": (asking_ids(stream=False, tools=[BASH]), "tools: cannot stand beside input_ids"),
    "a gateway tool": (asking_ids(stream=False, tools=[NATIVE]), "tools: cannot stand beside input_ids"),
    "tool_choice": (asking_ids(stream=False, tool_choice={"type": "any"}), "tool_choice: only auto or none"),
    "switch": (asking(stream=False, return_token_ids="yes"), "return_token_ids: must be true or false"),
    "block": (asking(stream=False, messages=[{"role": "user", "content": [{"type": "x"}]}]), "messages.0.content.0"),
}


@pytest.mark.parametrize(("body", "message"), REFUSED.values(), ids=REFUSED)
async def test_what_is_refused_names_its_field(body: Json, message: str) -> None:
    async with setting(json_answer({})) as (gateway, upstream):
        response = await gateway.client.post("/v1/messages", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert response.json()["error"]["message"].startswith(message)
    assert upstream.requests == []


async def test_without_a_token_field_in_use_a_request_passes_byte_for_byte() -> None:
    body = b'{ "model":"qwen3", "return_token_ids" : false, "input_ids":null,\n "messages":[] }'
    async with setting(json_answer(message(text("Hi."))), upstream_dialect="auto") as (gateway, upstream):
        response = await gateway.client.post("/v1/messages", content=body)
    assert response.json() == message(text("Hi."))
    assert [(request.target, request.body) for request in upstream.requests] == [("/v1/messages", body)]


# --- routed experts ---------------------------------------------------------------------------------------------------


def decoded(experts: str) -> Any:
    return numpy.load(io.BytesIO(base64.b64decode(experts)))


@pytest.mark.parametrize("ids_in", [False, True])
async def test_routed_experts_have_a_row_for_each_token_but_the_last(ids_in: bool) -> None:
    answer = chat_answer(say("Hi.", 7, 8), prompt=PROMPT, experts=npy(EXPERTS))
    if ids_in:
        answer = completion_answer("Hi.", [7, 8], prompt=PROMPT, experts=npy(EXPERTS))
    ask = asking_ids if ids_in else asking
    async with setting(json_answer(answer)) as (gateway, upstream):
        in_json = await gateway.client.post("/v1/messages", json=ask(stream=False, return_routed_experts=True))
        in_stream = await gateway.client.post("/v1/messages", json=ask(stream=True, return_routed_experts=True))
    told = in_json.json()
    experts = decoded(told["routed_experts"])
    assert experts.dtype == numpy.uint8
    assert experts.shape == (len(PROMPT) + len(told["output_ids"]) - 1, 2, 2)
    assert (experts == EXPERTS).all()

    assert in_stream.headers["content-type"].startswith("text/event-stream")
    folded = fold(events(in_stream))
    assert (folded.content, folded.output_ids) == ([{"type": "text", "text": "Hi."}], [7, 8])
    assert (decoded(events(in_stream)[-2]["routed_experts"]) == EXPERTS).all()
    assert ["stream" in request.json for request in upstream.requests] == [False, False]


@pytest.mark.parametrize("stream", [False, True])
async def test_where_the_server_has_no_experts_the_flag_to_set_is_named(stream: bool) -> None:
    body = asking(stream=stream, return_routed_experts=True)
    async with setting(chat(*HELLO, stream=False)) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=body)
    assert response.status_code == 400
    assert "--enable-return-routed-experts" in response.json()["error"]["message"]


@pytest.mark.parametrize("tools", [{}, {"tools": [SEARCH]}])
async def test_a_stream_made_from_a_json_call_says_200_after_one_silent_interval(tools: Json) -> None:
    go_on = asyncio.Event()
    whole = json_answer(chat_answer(say("Hi.", 7, 8), prompt=PROMPT, experts=npy(EXPERTS)))

    async def later(_: Any) -> Answer:
        await go_on.wait()
        return whole

    body = asking(stream=True, return_routed_experts=True, **tools)
    async with (
        setting(later, ping_interval_s=0.02) as (gateway, _),
        gateway.client.stream("POST", "/v1/messages", json=body) as response,
    ):
        shown = live(response)
        assert (response.status_code, await anext(shown)) == (200, {"type": "ping"})
        assert await anext(shown) == {"type": "ping"}
        go_on.set()
        rest = [event async for event in shown if event["type"] != "ping"]
    assert fold(rest).output_ids == [7, 8]
    assert (decoded(rest[-2]["routed_experts"]) == EXPERTS).all()


@pytest.mark.parametrize("tools", [{}, {"tools": [SEARCH]}])
@pytest.mark.parametrize(
    ("answer", "status", "kind"),
    [
        (json_answer(ERROR, 400), 400, "invalid_request_error"),
        (json_answer(ERROR, 503), 503, "api_error"),
        (raw(head(200, [("content-length", "900")]) + b"{", then="close"), 502, "api_error"),
        (chat(*HELLO, stream=False), 400, "invalid_request_error"),  # without experts
    ],
)
async def test_such_a_streams_failure_keeps_its_status_until_the_first_ping(
    tools: Json, answer: Answer, status: int, kind: str
) -> None:
    body = asking(stream=True, return_routed_experts=True, **tools)
    async with setting(answer) as (gateway, _):
        early = await gateway.client.post("/v1/messages", json=body)
    assert (early.status_code, early.json()["error"]["type"]) == (status, kind)

    async def late(_: Any) -> Answer:
        await asyncio.sleep(0.06)
        return answer

    async with setting(late, ping_interval_s=0.02) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=body)
    assert response.status_code == 200
    assert events(response)[0] == {"type": "ping"}
    assert events(response)[-1]["error"]["type"] == kind


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request_error"), (404, "not_found_error"), (429, "rate_limit_error")]
)
async def test_upstreams_refusal_is_told_in_anthropics_envelope(stream: bool, status: int, kind: str) -> None:
    refusal = json_answer(ERROR, status, headers=[("retry-after", "7")])
    async with setting(refusal) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=stream))
    assert response.status_code == status
    assert response.json() == {"type": "error", "error": {"type": kind, "message": "max_tokens is too large"}}
    assert response.headers["retry-after"] == "7"


async def test_an_error_page_is_told_by_its_status() -> None:
    page = json_answer(b"<html>", 503, headers=[("content-type", "text/html")])
    async with setting(page) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=False))
    assert response.json()["error"] == {"type": "api_error", "message": "upstream answered 503"}
    assert response.headers.get_list("content-type") == ["application/json"]


async def test_an_error_in_place_of_the_first_chunk_keeps_its_status() -> None:
    unknown = {"error": {"message": "Token id 999999 is out of vocabulary", "code": 400}}
    async with setting(streamed([unknown])) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking_ids(stream=True))
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"
    assert response.json()["error"]["message"] == "Token id 999999 is out of vocabulary"


BROKEN: dict[str, tuple[list[bytes], bool]] = {
    "an error": ([data(chunk) for chunk in chat_chunks(*HELLO)[:3]] + [data({"error": {"message": "OOM"}})], True),
    "cut": ([data(chunk) for chunk in chat_chunks(*HELLO)[:3]], False),
    "ended early": ([data(chunk) for chunk in chat_chunks(*HELLO)[:3]], True),
    "done early": ([data(chunk) for chunk in chat_chunks(*HELLO)[:3]] + [b"data: [DONE]\n\n"], True),
    "malformed": ([data(chunk) for chunk in chat_chunks(*HELLO)[:3]] + [b"data: {oops\n\n"], True),
}


@pytest.mark.parametrize("tools", [{}, {"tools": [SEARCH]}])
@pytest.mark.parametrize(("pieces", "whole"), BROKEN.values(), ids=BROKEN)
async def test_a_stream_that_breaks_ends_in_an_error(tools: Json, pieces: list[bytes], whole: bool) -> None:
    async with setting(sse_answer(pieces, whole=whole)) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=True, **tools))
    shown = events(response)
    assert shown[0]["type"] == "message_start"
    assert [event["output_ids"] for event in shown if "output_ids" in event] == [[10], [11]]
    assert (shown[-1]["type"], shown[-1]["error"]["type"]) == ("error", "api_error")
    assert "message_stop" not in [event["type"] for event in shown]


@pytest.mark.parametrize("tools", [{}, {"tools": [SEARCH]}])
@pytest.mark.parametrize(
    "broken",
    [
        raw(head(200, [("content-length", "5")]) + b"[1,2]", then="close"),
        raw(head(200, [("content-type", "application/json"), ("content-length", "900")]) + b"{", then="close"),
        json_answer({"object": "chat.completion"}),
        json_answer(chat_answer(*HELLO), headers=[("content-encoding", "gzip")]),
    ],
)
async def test_an_answer_that_is_none_is_502(tools: Json, broken: Answer) -> None:
    async with setting(broken) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=False, **tools))
    assert response.status_code == 502
    assert response.json()["error"]["type"] == "api_error"


async def test_a_connection_that_breaks_after_the_message_takes_nothing_away() -> None:
    chunks = [data(chunk) for chunk in chat_chunks(*HELLO)]
    async with setting(sse_answer(chunks, whole=False)) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=True))
    assert fold(events(response)).output_ids == [10, 11, 12, 13, 9]


async def test_an_upstream_that_stalls() -> None:
    async with setting(raw(then="stall"), first_byte_timeout_s=0.05) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=True))
    assert (response.status_code, response.json()["error"]["type"]) == (504, "timeout_error")

    chunks = [data(chunk) for chunk in chat_chunks(*HELLO)[:3]]
    async with setting(sse_answer(chunks, whole=False, then="stall"), idle_timeout_s=0.05) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=True))
    assert events(response)[-1]["error"]["type"] == "timeout_error"


async def test_a_stream_whose_first_chunk_takes_long_is_kept_warm() -> None:
    go_on = asyncio.Event()
    async with (
        setting(sse_answer([go_on, *(data(chunk) for chunk in chat_chunks(*HELLO))]), ping_interval_s=0.02) as (
            gateway,
            _,
        ),
        gateway.client.stream("POST", "/v1/messages", json=asking(stream=True)) as response,
    ):
        shown = live(response)
        assert await anext(shown) == {"type": "ping"}
        go_on.set()
        assert fold([event async for event in shown if event["type"] != "ping"]).output_ids == [10, 11, 12, 13, 9]


STALLED = sse_answer([data(chunk) for chunk in chat_chunks(*HELLO)[:3]], whole=False, then="stall")
LEAVING: dict[str, tuple[Json, Answer]] = {
    "JSON": (asking(stream=False), raw(then="stall")),
    "before the head": (asking(stream=True), raw(then="stall")),
    "in the stream": (asking(stream=True), STALLED),
    "routed experts": (asking(stream=True, return_routed_experts=True), raw(then="stall")),
    "a turn": (asking(stream=True, tools=[SEARCH]), STALLED),
}


@pytest.mark.parametrize(("body", "answer"), LEAVING.values(), ids=LEAVING)
async def test_when_the_client_goes_upstream_is_let_go(body: Json, answer: Answer) -> None:
    async with setting(answer, ping_interval_s=0.02) as (gateway, upstream):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(post(json.dumps(body).encode()))
        await upstream.arrived()
        if answer is STALLED:
            await reader.readuntil(b"output_ids")
        writer.close()
        async with asyncio.timeout(1):
            await upstream.closed_by_client()


@pytest.mark.parametrize("tools", [{}, {"tools": [SEARCH]}])
async def test_no_ping_comes_between_a_refusals_head_and_its_body(tools: Json) -> None:
    """Upstream takes longer over its body than a silence may be; a ping would say 200."""
    body = json.dumps(ERROR).encode()
    fields = [("content-type", "application/json"), ("content-length", str(len(body)))]
    slow = raw(head(400, fields), 0.2, body, then="keep")
    async with setting(slow, ping_interval_s=0.05) as (gateway, _):
        asked = asking(stream=True, return_routed_experts=True, **tools)
        response = await gateway.client.post("/v1/messages", json=asked)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


# --- turns ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_a_trajectory_through_the_loop(stream: bool) -> None:
    first = chat(thought("Hm.", 10), SEARCH_RUST, stream=stream, prompt=[1, 2])
    second = chat(*DONE, stream=stream, prompt=[1, 2, 10, 30, 31, 4])
    async with setting(first, second) as (gateway, upstream):
        response = await gateway.client.post("/v1/messages?beta=true", json=asking(stream=stream, tools=[SEARCH]))
    assert [request.target for request in upstream.requests] == ["/v1/chat/completions"] * 2
    assert upstream.requests[1].json["messages"][-1]["content"] == "It is 1.89."
    ended = events(response)[-2] if stream else response.json()
    assert [a_round["input_ids"] for a_round in ended["rounds"]] == [[1, 2], [1, 2, 10, 30, 31, 4]]
    assert [a_round["output_ids"] for a_round in ended["rounds"]] == [[10, 30, 31], [50, 9]]
    assert ended["rounds"][0]["output_token_logprobs"] == [[-0.1, 10], [-0.3, 30], [-0.31, 31]]
    assert "prefix_mismatch" not in ended["rounds"][1]
    assert ended["usage"]["output_tokens"] == 5
    if stream:
        assert fold(events(response)).output_ids == [10, 50, 9]
    else:
        assert ended["output_ids"] == [10, 30, 31, 50, 9]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_later_round_that_is_refused(stream: bool) -> None:
    async with setting(chat(SEARCH_RUST, stream=stream), json_answer(ERROR, 400)) as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=stream, tools=[SEARCH]))
    envelope = {"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens is too large"}}
    assert response.status_code == (200 if stream else 400)
    assert (events(response)[-1] if stream else response.json()) == envelope


async def test_pings_between_the_rounds_of_a_stream_made_from_json_calls() -> None:
    held = Held(found("x"))
    answers = [json_answer(chat_answer(*said, prompt=PROMPT, experts=npy(EXPERTS))) for said in ((SEARCH_RUST,), DONE)]
    body = asking(stream=True, tools=[NATIVE], return_routed_experts=True)
    async with (
        setting(*answers, search=ScriptedSearch({"rust": held}), ping_interval_s=0.02) as (gateway, _),
        gateway.client.stream("POST", "/v1/messages", json=body) as response,
    ):
        shown = live(response)
        while (await anext(shown))["type"] != "ping":
            pass
        held.release.set()
        rest = [event async for event in shown]
    assert len(rest[-2]["rounds"]) == 2
    assert rest[-1] == {"type": "message_stop"}


# --- an upstream that speaks the fields itself ------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_lmdeploy_gets_the_request_as_it_came_and_its_answer_passes(stream: bool) -> None:
    answer = {**message(text("Hi.")), "output_ids": [7, 8], "stop_reason": "parse_error"}
    event_bytes = b'data: {"type":"content_block_delta","index":0,"output_ids":[7]}\n\n'
    sent = json.dumps(asking_ids(stream=stream), indent=1).encode()
    scripted = sse_answer([event_bytes]) if stream else json_answer(answer)
    async with setting(scripted, upstream_dialect="lmdeploy") as (gateway, upstream):
        response = await gateway.client.post("/v1/messages?beta=true", content=sent)
        refused = await gateway.client.post("/v1/messages", json=asking_ids(stream=stream, input_ids=[]))
    assert response.content == (event_bytes if stream else json.dumps(answer, separators=(",", ":")).encode())
    assert [(request.target, request.body) for request in upstream.requests] == [("/v1/messages?beta=true", sent)]
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "input_ids: must not be empty")


@pytest.mark.parametrize("stream", [False, True])
async def test_lmdeploys_rounds_are_merged(stream: bool) -> None:
    rust = messages_call("web_search", ['{"query": "rust"}'], id="call-rust")

    def answer(block: Any, ids: list[int]) -> Answer:
        tokens = {"output_ids": ids, "output_token_logprobs": [[-0.5, token] for token in ids]}
        if not stream:
            return json_answer({**message(block), **tokens, "routed_experts": [ids]})
        told = sse(block)
        told[2] |= tokens
        told[-2] |= {"routed_experts": [ids]}
        return sse_answer(told)

    body = asking(stream=stream, tools=[SEARCH], return_routed_experts=True)
    async with setting(answer(rust, [30]), answer(text("It is 1.89."), [50]), upstream_dialect="lmdeploy") as (
        gateway,
        upstream,
    ):
        response = await gateway.client.post("/v1/messages", json=body)
    assert [request.target for request in upstream.requests] == ["/v1/messages"] * 2
    assert upstream.requests[1].json["return_token_ids"] is True
    ended = events(response)[-2] if stream else response.json()
    assert ended["rounds"] == [
        {"input_ids": None, "output_ids": [30], "output_token_logprobs": [[-0.5, 30]], "routed_experts": [[30]]},
        {"input_ids": None, "output_ids": [50], "output_token_logprobs": [[-0.5, 50]], "routed_experts": [[50]]},
    ]
    assert ended["routed_experts"] == [[50]]
    shown = fold(events(response)).output_ids if stream else ended["output_ids"]
    assert shown == ([50] if stream else [30, 50])


async def test_lmdeploys_refusal_passes_as_it_is() -> None:
    refusal = json_answer({"type": "error", "detail": "busy"}, 429, headers=[("retry-after", "7")])
    async with setting(refusal, upstream_dialect="lmdeploy") as (gateway, _):
        response = await gateway.client.post("/v1/messages", json=asking(stream=True, tools=[SEARCH]))
    assert (response.status_code, response.json()) == (429, {"type": "error", "detail": "busy"})
    assert response.headers["retry-after"] == "7"


async def test_upstream_is_asked_once_what_it_speaks() -> None:
    models = json_answer({"object": "list", "data": [{"id": "qwen3", "owned_by": "vllm"}]})
    hello = chat(*HELLO, stream=False)
    async with setting(models, hello, hello, upstream_dialect="auto") as (gateway, upstream):
        headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
        for _ in range(2):
            response = await gateway.client.post("/v1/messages", json=asking(stream=False), headers=headers)
            assert response.json()["output_ids"] == [10, 11, 12, 13, 9]
    asked = upstream.requests
    assert [request.target for request in asked] == ["/v1/models", "/v1/chat/completions", "/v1/chat/completions"]
    assert asked[0].header(b"x-api-key") == b"k"
    assert asked[0].header(b"anthropic-version") is None
