"""Every answer has a ``request-id``, by which it is found in the log; errors of the gateway's own say if asking again
can help."""

import re
from typing import Any

import pytest

from gateway.settings import Settings
from tests.support.gateway import running_gateway
from tests.support.playbook import NATIVE, QUESTION
from tests.support.raw import raw_client
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import ScriptedUpstream, answering, json_answer, raw, text, tool_use

pytestmark = pytest.mark.anyio

OWN = re.compile(r"req_[a-z]{14}[0-9a-f]+")
CALL = tool_use("web_search", {"query": "rust"})


def asked(stream: bool, *tools: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": [QUESTION], "stream": stream, "tools": list(tools)}


def logged(error: str) -> str:
    """The ids in the lines of the requests, in order."""
    return " ".join(re.findall(r"/v1/messages\b.* request_id=(\S+)", error))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [[], [NATIVE]], ids=["passes", "turn"])
@pytest.mark.parametrize("given", ["req_up", None, ""])
async def test_every_answer_has_one(
    given: str | None, tools: list[Any], stream: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    headers = [] if given is None else [("request-id", given)]
    async with (
        ScriptedUpstream(answering(text("hi"), stream=stream, headers=headers)) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=ScriptedSearch()) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", json=asked(stream, *tools))
    shown = answer.headers["request-id"].removeprefix(", ")
    assert shown == given if given else OWN.fullmatch(shown)
    assert logged(capfd.readouterr().err) == shown


@pytest.mark.parametrize("stream", [False, True])
async def test_a_turn_has_the_first_rounds(stream: bool, capfd: pytest.CaptureFixture[str]) -> None:
    first = answering(CALL, stream=stream, headers=[("request-id", "req_1")])
    for second, status in (
        (answering(text("hi"), stream=stream, headers=[("request-id", "req_2")]), 200),
        (json_answer({"error": {"message": "no"}}, 400, [("request-id", "req_2")]), 200 if stream else 400),
        (raw(), 200 if stream else 502),
    ):
        async with (
            ScriptedUpstream(first, second) as upstream,
            running_gateway(Settings(upstream=upstream.origin), search=ScriptedSearch(default=found("x"))) as gateway,
        ):
            answer = await gateway.client.post("/v1/messages", json=asked(stream, NATIVE))
        assert (answer.status_code, answer.headers.get_list("request-id")) == (status, ["req_1"])
        if status == 502:
            assert answer.json()["request_id"] == "req_1"
    assert logged(capfd.readouterr().err) == "req_1 req_1 req_1"


@pytest.mark.parametrize(("method", "path"), [("GET", "/health"), ("HEAD", "/"), ("GET", "/metrics"), ("GET", "/nope")])
async def test_so_has_what_the_gateway_answers_itself(method: str, path: str) -> None:
    async with running_gateway(Settings()) as gateway:
        assert OWN.fullmatch((await gateway.client.request(method, path)).headers["request-id"])


async def test_the_list_of_models_has_upstreams() -> None:
    async with (
        ScriptedUpstream(json_answer({"data": [{"id": "m"}]}, headers=[("request-id", "req_up")])) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})
    assert (answer.status_code, answer.headers.get_list("request-id")) == (200, ["req_up"])


async def test_no_two_requests_have_the_same() -> None:
    async with running_gateway(Settings()) as gateway:
        ids = {(await gateway.client.get("/health")).headers["request-id"] for _ in range(20)}
    assert len(ids) == 20


async def test_what_the_client_calls_a_request_goes_upstream_and_into_the_log(
    capfd: pytest.CaptureFixture[str],
) -> None:
    names = {"x-request-id": "mine 7", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    async with (
        ScriptedUpstream(json_answer({})) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        await gateway.client.post("/v1/messages", json=asked(False), headers=names)
    [seen] = upstream.requests
    assert {name: (seen.header(name.encode()) or b"").decode() for name in names} == names
    assert f'x_request_id="mine 7" traceparent={names["traceparent"]}' in capfd.readouterr().err


# --- own errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/messages", b'{"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":0}]}', 400),
        ("POST", "/v1/messages", b"x" * 101, 413),
        ("GET", "/nope", b"", 404),
        ("GET", "/v1/messages", b"", 405),
    ],
)
async def test_what_asking_again_cannot_mend(method: str, path: str, body: bytes, status: int) -> None:
    async with running_gateway(Settings(max_body_bytes=100)) as gateway:
        answer = await gateway.client.request(method, path, content=body)
    assert (answer.status_code, answer.headers.get("x-should-retry")) == (status, "false")
    assert answer.json()["request_id"] == answer.headers["request-id"]


@pytest.mark.parametrize(("settings", "status"), [(Settings(api_keys=("right",)), 401), (Settings(), 403)])
async def test_who_may_not_ask_need_not_ask_again(settings: Settings, status: int) -> None:
    async with running_gateway(settings) as gateway:
        answer = await gateway.client.post("/v1/messages", json={}, headers={"origin": "https://evil.example"})
    assert (answer.status_code, answer.headers.get("x-should-retry")) == (status, "false")


@pytest.mark.parametrize(
    ("asked", "status"),
    [(b"nonsense\r\n\r\n", b"400"), (b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"x" * 66_000, b"431")],
)
async def test_what_is_no_request_has_one_too(asked: bytes, status: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    async with running_gateway(Settings()) as gateway, raw_client(gateway.port) as client:
        await client.send(asked)
        head, _, body = (await client.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert b"\r\nx-should-retry: false" in head
    [request_id] = re.findall(rb"\r\nrequest-id: (\S+)", head)
    assert b'"request_id": "%b"' % request_id in body
    assert f"request_id={request_id.decode()}" in "".join(capfd.readouterr())


@pytest.mark.parametrize("tools", [[], [NATIVE]], ids=["passes", "turn"])
async def test_what_may_be_mended_can_be_asked_again(tools: list[Any]) -> None:
    async with ScriptedUpstream(raw(), raw(then="stall")) as upstream:
        settings = Settings(upstream=upstream.origin, first_byte_timeout_s=0.2)
        async with running_gateway(settings, search=ScriptedSearch()) as gateway:
            answers = [await gateway.client.post("/v1/messages", json=asked(False, *tools)) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [502, 504]
    assert all("x-should-retry" not in answer.headers for answer in answers)
    assert all(answer.json()["request_id"] == answer.headers["request-id"] for answer in answers)


async def test_a_refusal_of_upstreams_has_nothing_said_beside_it() -> None:
    async with (
        ScriptedUpstream(json_answer({"error": "no"}, 400)) as upstream,
        running_gateway(Settings(upstream=upstream.origin)) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", json=asked(False))
    assert (answer.status_code, answer.json()) == (400, {"error": "no"})
    assert "x-should-retry" not in answer.headers
