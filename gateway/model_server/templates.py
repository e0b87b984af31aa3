"""What upstream's chat template does with deferred tools, asked once a model (``--deferred-tools auto``).

Four ``count_tokens`` tell: whether a deferred tool makes the prompt longer, and whether a reference to a tool with a
long description makes it longer than one to a tool with a short one. A template that leaves deferred tools out of the
head and writes a tool where it is referenced can be given the request as it is; no other can.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from gateway.errors import UpstreamError
from gateway.turn import Mode, jsonvalue
from gateway.upstream import Headers

Setting = Literal["auto"] | Mode
Count = Callable[[dict[str, Any]], Awaitable[int | None]]
"""The tokens of a body; None where upstream refuses it. Raises :class:`UpstreamError` where it says nothing of it."""

LONG_WORDS = 200


@dataclass(frozen=True, slots=True)
class Verdict:
    """What upstream is given, and the reason, in a sentence's words."""

    mode: Mode
    why: str


Post = Callable[[str, Headers, bytes], Awaitable[tuple[int, bytes]]]
"""Asks upstream at a path; the status and the body of its answer. Raises :class:`UpstreamError`."""


class Templates:
    """What upstream is given of deferred tools: as the operator says, or as upstream's own counts tell.

    What was told is remembered for each model. Where upstream cannot be asked now it is ``expand``, and it may be asked
    again ``RETRY_S`` later. ``clock`` gives seconds.
    """

    RETRY_S = 10.0
    TIMEOUT_S = 10.0
    MAX_MODELS = 1000

    def __init__(self, setting: Setting, post: Post, clock: Callable[[], float] = time.monotonic) -> None:
        self._setting = setting
        self._post = post
        self._clock = clock
        self._known: dict[str, Mode] = {}
        self._failed: dict[str, float] = {}

    def known(self, model: str) -> Mode | None:
        """What a model is given; None where it has to be asked for."""
        if self._setting != "auto":
            return self._setting
        failed_lately = self._clock() - self._failed.get(model, float("-inf")) < self.RETRY_S
        return self._known.get(model, "expand" if failed_lately else None)

    async def learn(self, model: str, headers: Headers) -> None:
        """Ask upstream. ``headers`` are those to ask with: they hold the credentials, where it wants some."""

        async def count(body: dict[str, Any]) -> int | None:
            return read_count(*await self._post("/v1/messages/count_tokens", headers, jsonvalue.write(body)))

        try:
            async with asyncio.timeout(self.TIMEOUT_S):
                verdict = await find_out(model, count)
        except Forbidden:
            pass  # one client's bad credentials say nothing about the next
        except (UpstreamError, TimeoutError):
            _remember(self._failed, model, self._clock(), self.MAX_MODELS)
        else:
            _remember(self._known, model, verdict.mode, self.MAX_MODELS)


class Forbidden(UpstreamError):
    """Upstream refused the credentials."""


def read_count(status: int, body: bytes) -> int | None:
    """The number in an answer of ``count_tokens``; None where the body was refused. Raises :class:`UpstreamError`."""
    if status in (401, 403):
        raise Forbidden("upstream refused the credentials")
    if status in (408, 429, 502, 503, 504, 529):
        raise UpstreamError(f"upstream answered {status}")
    if status != 200:
        return None
    try:
        tokens = jsonvalue.read(body)["input_tokens"]
    except (jsonvalue.Unreadable, KeyError, TypeError):
        tokens = None
    if not isinstance(tokens, int):
        raise UpstreamError("upstream's count_tokens gave no count")
    return tokens


async def find_out(model: str, count: Count) -> Verdict:
    """Ask what the template of a model does. Raises what ``count`` raises, and UpstreamError for an unknown model."""
    plain = await count(_body(model, [_FINDER], _QUESTION))
    if plain is None:
        raise UpstreamError("upstream does not count the tokens of this model")
    head = await count(_body(model, [_FINDER, _LONG], _QUESTION))
    if head is None:
        return Verdict("expand", "upstream refuses a deferred tool")
    if head != plain:
        return Verdict("expand", "the template writes deferred tools into the prompt's head")
    short, long = [await count(_body(model, [_FINDER, _SHORT, _LONG], [*_QUESTION, *_found(name)])) for name in _NAMES]
    if short is None or long is None:
        return Verdict("expand", "upstream refuses a tool reference")
    if long - short < LONG_WORDS // 2:
        return Verdict("expand", "the template does not write out a tool that is referenced")
    return Verdict("pass", "the template writes a deferred tool out where it is referenced")


def _remember(memory: dict[str, Any], model: str, value: Any, most: int) -> None:
    """A client may name any model: no more than so many are kept."""
    if len(memory) >= most:
        memory.clear()
    memory[model] = value


def _tool(name: str, description: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "input_schema": {"type": "object", "properties": {}}, **more}


_NAMES = ("probe_tool_a", "probe_tool_b")
_FINDER = _tool("find_tools", "Finds tools.")
_SHORT = _tool(_NAMES[0], "word", defer_loading=True)
_LONG = _tool(_NAMES[1], " ".join(["word"] * LONG_WORDS), defer_loading=True)
_QUESTION = [{"role": "user", "content": "Find a tool."}]


def _found(name: str) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": "toolu_probe", "name": "find_tools", "input": {}}
    reference = {"type": "tool_reference", "tool_name": name}
    result = {"type": "tool_result", "tool_use_id": "toolu_probe", "content": [reference]}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def _body(model: str, tools: list[dict[str, Any]], messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": model, "tools": tools, "messages": messages}
