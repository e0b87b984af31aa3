"""The ``anthropic`` SDK as the client: its stream accumulator holds what the JSON answer holds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
from anthropic import AsyncAnthropic

from gateway.settings import Settings
from gateway.turn.web_search import SearchCall, SearchOutcome
from tests.conformance.conversations import CONVERSATIONS, DONE, Conversation
from tests.support.gateway import running_gateway
from tests.support.playbook import QUESTION, Round
from tests.support.upstream import Answer, ScriptedUpstream, SeenRequest, json_answer, message, sse, sse_answer
from tests.turn.test_turn import without_seals

pytestmark = pytest.mark.anyio


class Search:
    """Searches with a function of the query."""

    def __init__(self, conversation: Conversation) -> None:
        self._outcomes = conversation.outcomes

    async def run(self, call: SearchCall) -> SearchOutcome:
        return self._outcomes(call.query)

    async def aclose(self) -> None:
        pass


def says(blocks: Any) -> Answer:
    """One round in the transport it is asked for."""
    said = blocks if isinstance(blocks, Round) else Round(blocks)

    def answer(request: SeenRequest) -> Answer:
        if request.json.get("stream"):
            return sse_answer(sse(*said.blocks, stop_reason=said.stop_reason))
        return json_answer(message(*said.blocks, stop_reason=said.stop_reason))

    return answer


@asynccontextmanager
async def talking(conversation: Conversation, *rounds: Any) -> AsyncIterator[tuple[AsyncAnthropic, ScriptedUpstream]]:
    """A client whose upstream says ``rounds``, over again for each request of the client."""
    async with ScriptedUpstream(*(says(one) for one in rounds)) as upstream:
        settings = Settings(
            upstream=upstream.origin, max_rounds=conversation.max_rounds, seal_keys=("tests",), log_level="error"
        )
        async with (
            running_gateway(settings, search=Search(conversation)) as gateway,
            AsyncAnthropic(base_url=gateway.url, api_key="k", max_retries=0) as client,
        ):
            yield client, upstream


@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)
async def test_the_accumulated_stream_is_the_json_answer(conversation: Conversation) -> None:
    asked: Any = {"model": "qwen3", "max_tokens": 64, "messages": [QUESTION], "tools": conversation.tools}
    async with talking(conversation, *(conversation.rounds * 4)) as (client, _):
        answer: Any = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            final: Any = await stream.get_final_message()
        beta_answer: Any = await client.beta.messages.create(**asked)
        async with client.beta.messages.stream(**asked) as beta_stream:
            beta_final: Any = await beta_stream.get_final_message()
    for whole, streamed in ((answer, final), (beta_answer, beta_final)):
        one, two = whole.to_dict(), streamed.to_dict()
        assert without_seals(one["content"]) == without_seals(two["content"])
        assert (one["stop_reason"], one["stop_sequence"]) == (two["stop_reason"], two["stop_sequence"])
        for counter in ("input_tokens", "output_tokens", "server_tool_use"):
            assert one["usage"].get(counter) == two["usage"].get(counter)
    assert beta_answer.to_dict()["usage"] == beta_final.to_dict()["usage"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_conversation_sent_back_as_received_extends_the_prompt(streamed: bool) -> None:
    turns = ["one search", "three in one round", "no search", "three rounds", "one search"]
    conversation = CONVERSATIONS["one search"]
    script = [one for name in turns for one in CONVERSATIONS[name].rounds]
    messages: list[Any] = []
    async with talking(conversation, *script, DONE) as (client, upstream):
        prompts = []
        for number, _ in enumerate(turns):
            messages.append({"role": "user", "content": f"Question {number}."})
            asked: Any = {"model": "qwen3", "max_tokens": 64, "messages": messages, "tools": conversation.tools}
            if streamed:
                async with client.messages.stream(**asked) as stream:
                    answer: Any = await stream.get_final_message()
            else:
                answer = await client.messages.create(**asked)
            messages.append({"role": "assistant", "content": answer.content})
            prompts.append(upstream.requests[-1].json["messages"])
    assert len(prompts) == 5
    for earlier, later in pairwise(prompts):
        assert later[: len(earlier)] == earlier
        assert len(later) > len(earlier)
