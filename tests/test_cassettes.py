"""The recorded conversations, played to the gateway: it asks upstream for every round exactly as recorded.

The player compares each whole request with the recording and answers 409 where they differ, apart from signatures, the
recording's own call ids and text of nothing but white space.
"""

import re
from typing import Any

import httpx
import pytest

from cassettes.script import HERE, Scripted, conversations
from gateway.settings import Settings
from gateway.turn import Fold
from recorder import Cassette, Turn, serve_cassettes
from tests.support.events import events_in
from tests.support.gateway import running_gateway
from tests.support.search import ScriptedSearch

pytestmark = pytest.mark.anyio

TYPED = {"type": "web_search_20250305", "name": "web_search"}
MIXED = "search-and-client-tool"


def _recorded(*, errors: bool) -> list[Any]:
    return [
        pytest.param(scripted, stream, id=f"{scripted.name}-{'sse' if stream else 'json'}")
        for scripted in conversations()
        for stream in (False, True)
        if scripted.is_error is errors
    ]


def _message(answer: httpx.Response) -> dict[str, Any]:
    """The answer as one message, from either transport."""
    assert answer.status_code == 200, answer.text
    if answer.headers["content-type"] == "application/json":
        body: dict[str, Any] = answer.json()
        return body
    fold = Fold()
    fold.take(events_in(answer.content))
    return fold.message


def _answer(turn: Turn) -> dict[str, Any]:
    return _message(
        httpx.Response(turn.response.status_code, headers=turn.response.headers, content=turn.response.content.read())
    )


def _texts(*messages: dict[str, Any]) -> list[str]:
    """What the messages say, thoughts that came as text aside."""
    texts = [block["text"] for message in messages for block in message["content"] if block["type"] == "text"]
    return [said for text in texts if (said := text.rpartition("</think>")[2].strip())]


def _thoughts(*messages: dict[str, Any]) -> int:
    blocks = [block for message in messages for block in message["content"]]
    return sum(block["type"] == "thinking" or block.get("text", "").lstrip().startswith("<think>") for block in blocks)


def _calls(message: dict[str, Any]) -> list[str]:
    """The tools that the message calls; a call that was cut off is none."""
    whole = message["stop_reason"] == "tool_use"
    return [block["name"] for block in message["content"] if whole and block["type"] == "tool_use"]


def _with_typed_tool(body: dict[str, Any]) -> dict[str, Any]:
    tools = [TYPED if tool["name"] == "web_search" else tool for tool in body["tools"]]
    return {**body, "tools": tools}


@pytest.mark.parametrize(("scripted", "stream"), _recorded(errors=False))
def test_a_recording_shows_what_it_is_there_for(scripted: Scripted, stream: bool) -> None:
    recorded = [_answer(turn) for turn in Cassette(scripted.cassette(stream=stream))]
    assert [_calls(message) for message in recorded] == scripted.calls
    thoughts = [block for message in recorded for block in message["content"] if block["type"] == "thinking"]
    as_text = [b for m in recorded for b in m["content"] if b.get("text", "").lstrip().startswith("<think>")]
    thinks = scripted.flags.get("thinking") != "disabled"
    assert bool(thoughts) == (thinks and scripted.thinking_parsed)
    assert bool(as_text) == (thinks and not scripted.thinking_parsed)
    assert (recorded[-1]["stop_reason"] == "max_tokens") == (scripted.name == "cut-inside-a-call")


@pytest.mark.parametrize("native", [False, True], ids=["hidden", "native"])
@pytest.mark.parametrize(("scripted", "stream"), _recorded(errors=False))
async def test_upstream_is_asked_for_every_round_as_recorded(scripted: Scripted, stream: bool, native: bool) -> None:
    turns = list(Cassette(scripted.cassette(stream=stream)))
    recorded = [_answer(turn) for turn in turns]
    asks = turns[0].request.body
    if scripted.name == MIXED and not native:
        # What a hidden search finds is lost when the client's own call ends the turn: the gateway does not run it.
        turns, recorded = turns[:1], recorded[:1]
    search = ScriptedSearch(default=scripted.found)
    # The gateway may word its own tool anew: that is no reason to record everything again.
    ignored = ["body.tools.*.description"] if native else []
    async with (
        serve_cassettes([scripted.cassette(stream=stream)], ignore=ignored) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=search) as gateway,
    ):
        asks = _with_typed_tool(asks) if native else asks
        message = _message(await gateway.client.post("/v1/messages", json=asks))
        received = [message]
        if scripted.name == MIXED and native:
            received.append(await _client_answers(gateway.client, asks, message, scripted.command_output))

    assert [seen.problem for seen in upstream.seen] == [None] * len(turns)
    assert [seen.turn for seen in upstream.seen] == [turn.filename for turn in turns]
    calls = [name for message in recorded for name in _calls(message)]
    assert len(search.queries) == (0 if scripted.name == MIXED and not native else calls.count("web_search"))
    assert _texts(*received) == _texts(*recorded)
    assert _thoughts(*received) == _thoughts(*recorded)
    assert received[-1]["stop_reason"] == recorded[-1]["stop_reason"]
    shown = [block["type"] for message in received for block in message["content"]]
    assert shown.count("web_search_tool_result") == (len(search.queries) if native else 0)
    assert shown.count("tool_use") == calls.count("Bash")


async def _client_answers(
    client: httpx.AsyncClient, asks: dict[str, Any], message: dict[str, Any], output: str
) -> dict[str, Any]:
    """The client runs its own call and sends everything back as it was received."""
    (call,) = (block for block in message["content"] if block["type"] == "tool_use")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": output}
    history = [
        *asks["messages"],
        {"role": "assistant", "content": message["content"]},
        {"role": "user", "content": [result]},
    ]
    return _message(await client.post("/v1/messages", json={**asks, "messages": history}))


@pytest.mark.parametrize(("scripted", "stream"), _recorded(errors=True))
async def test_a_refusal_plays_as_recorded(scripted: Scripted, stream: bool) -> None:
    (turn,) = Cassette(scripted.cassette(stream=stream))
    async with serve_cassettes([scripted.cassette(stream=stream)]) as upstream, httpx.AsyncClient() as client:
        answer = await client.post(f"{upstream.origin}/v1/messages", json=turn.request.body)
    assert answer.status_code == turn.response.status_code >= 400
    assert answer.content == turn.response.content.read()


@pytest.mark.parametrize(("scripted", "stream"), _recorded(errors=True))
async def test_a_refusal_reaches_the_client_unchanged_unless_the_gateway_can_do_what_was_asked(
    scripted: Scripted, stream: bool
) -> None:
    (turn,) = Cassette(scripted.cassette(stream=stream))
    async with (
        serve_cassettes([scripted.cassette(stream=stream)]) as upstream,
        running_gateway(Settings(upstream=upstream.origin), search=ScriptedSearch()) as gateway,
    ):
        answer = await gateway.client.post("/v1/messages", json=turn.request.body)
    if scripted.name == "error-typed-tool":
        (seen,) = upstream.seen
        assert "type" not in seen.body["tools"][0], "the typed tool went upstream, which refuses it"
    else:
        assert answer.status_code == turn.response.status_code
        assert answer.content == turn.response.content.read()


def test_the_readme_names_every_cassette_and_no_other() -> None:
    named = set(re.findall(r"messages-[a-z-]+\.yaml", (HERE / "README.md").read_text(encoding="utf-8")))
    assert named == {path.name for path in (HERE / "messages").glob("*.yaml")}
