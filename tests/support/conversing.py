"""One request through the whole gateway, in either transport: what upstream was asked, what the client got.

    spoken = await converse({"tools": [SEARCH]}, [[RUST], [text("Done.")]], stream=True)
    spoken.message["content"]; spoken.asked[1]["messages"]

A round is a list of blocks, or an answer of its own. A stream is folded into the message that it carried.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.settings import Settings
from gateway.turn import Fold
from tests.support.events import events_in
from tests.support.gateway import running_gateway
from tests.support.playbook import asking
from tests.support.search import ScriptedSearch, found
from tests.support.upstream import Answer, Block, ScriptedUpstream, answering


@dataclass
class Spoken:
    """What the client got (``events`` of a stream alone), and the bodies that upstream was sent."""

    status: int
    body: bytes
    message: dict[str, Any]
    events: list[dict[str, Any]]
    asked: list[dict[str, Any]] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    metrics: str = ""

    @property
    def error(self) -> dict[str, Any]:
        """The error that the client was told, as an answer or in its stream."""
        whole = self.events[-1] if self.events else json.loads(self.body)
        assert whole["type"] == "error"
        error: dict[str, Any] = whole["error"]
        return error


async def converse(
    request: dict[str, Any],
    rounds: Sequence[Sequence[Block] | Answer],
    *,
    stream: bool,
    path: str = "/v1/messages",
    search: ScriptedSearch | None = None,
    **settings: Any,
) -> Spoken:
    """Ask once, as ``asking`` fills the request up."""
    (spoken,) = await converse_on([request], rounds, stream=stream, path=path, search=search, **settings)
    return spoken


async def converse_on(
    requests: Sequence[dict[str, Any]],
    rounds: Sequence[Sequence[Block] | Answer],
    *,
    stream: bool,
    path: str = "/v1/messages",
    search: ScriptedSearch | None = None,
    **settings: Any,
) -> list[Spoken]:
    """Several requests to one gateway, one after the other; ``asked`` of each is what it alone made upstream hear."""
    answers = [one if not isinstance(one, Sequence) else answering(*one, stream=stream) for one in rounds]
    spoken = []
    async with ScriptedUpstream(*answers) as upstream:
        known = Settings(upstream=upstream.origin, **settings)
        runner = search or ScriptedSearch(default=found("It is 1.89."))
        async with running_gateway(known, search=runner) as gateway:
            for request in requests:
                heard = len(upstream.requests)
                answer = await gateway.client.post(path, json=asking(stream=stream, **request))
                sent = [one.body for one in upstream.requests[heard:]]
                spoken.append(_read(answer.status_code, answer.content, sent, stream=stream))
            metrics = (await gateway.client.get("/metrics")).text
    for one in spoken:
        one.metrics = metrics
    return spoken


def _read(status: int, body: bytes, sent: list[bytes], *, stream: bool) -> Spoken:
    asked = [json.loads(one) for one in sent]
    if status != 200 or not stream:
        return Spoken(status, body, json.loads(body) if status == 200 else {}, [], asked, sent)
    events, fold = events_in(body), Fold()
    fold.take(event for event in events if event["type"] != "error")
    return Spoken(status, body, fold.message, events, asked, sent)
