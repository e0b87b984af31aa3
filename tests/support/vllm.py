"""What vLLM's chat and completions endpoints say when tokens are asked for: one script, as a stream and as one answer.

    chat_answer(thought("Hm.", 1, 2), markup(3), say("Hi.", 4), markup(9), prompt=[5, 6])

Every part has the ids that were sampled for it; the log-probability of id ``n`` is ``-n / 100``.
"""

import base64
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy

from tests.support.upstream import Answer, json_answer, sse_answer

Json = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """What was sampled: its ids, what the stream makes visible of it, chunk by chunk, and its share of the answer."""

    chunks: list[tuple[list[int], Json]]
    reasoning: str = ""
    content: str = ""
    call: Json = field(default_factory=dict)

    @property
    def ids(self) -> list[int]:
        return [token for ids, _ in self.chunks for token in ids]


def thought(text: str, *ids: int) -> Part:
    return Part([([*ids], {"reasoning": text})], reasoning=text)


def say(text: str, *ids: int) -> Part:
    return Part([([*ids], {"content": text})], content=text)


def markup(*ids: int) -> Part:
    """Tokens that nothing is visible of."""
    return Part([([*ids], {})])


def call(name: str, arguments: Json, *ids: int, id: str = "chatcmpl-tool-1", index: int = 0) -> Part:
    """A call; its first id brings the name, the others the arguments."""
    written = json.dumps(arguments)
    named = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    argued = {"index": index, "function": {"arguments": written}}
    whole = {"id": id, "type": "function", "function": {"name": name, "arguments": written}}
    chunks = [([*ids[:1]], {"tool_calls": [named]}), ([*ids[1:]], {"tool_calls": [argued]})]
    return Part(chunks, call=whole)


def chat_chunks(*parts: Part, prompt: Iterable[int] = (1, 2, 3), finish: str | None = None) -> list[Json]:
    """The ``data`` objects of a chat completion's stream, ``[DONE]`` aside."""
    prompt = [*prompt]
    sampled = [chunk for part in parts for chunk in part.chunks]
    role = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    chunks: list[Json] = [_chunk([role], len(prompt), 0) | {"prompt_token_ids": prompt}]
    for number, (ids, delta) in enumerate(sampled, start=1):
        last = number == len(sampled)
        choice = {"index": 0, "delta": delta, "token_ids": ids, "logprobs": {"content": _logprobs(ids)}}
        choice["finish_reason"] = (finish or _finish(parts)) if last else None
        chunks.append(_chunk([choice], len(prompt), 0))
    return [*chunks, _chunk([], len(prompt), sum(len(part.ids) for part in parts))]


def chat_answer(
    *parts: Part, prompt: Iterable[int] = (1, 2, 3), finish: str | None = None, experts: str | None = None
) -> Json:
    """A chat completion's JSON answer."""
    prompt, ids = [*prompt], [token for part in parts for token in part.ids]
    reply: Json = {"role": "assistant", "content": "".join(part.content for part in parts) or None}
    reply["reasoning"] = "".join(part.reasoning for part in parts) or None
    reply["tool_calls"] = [part.call for part in parts if part.call]
    choice = {"index": 0, "message": reply, "token_ids": ids, "logprobs": {"content": _logprobs(ids)}}
    choice |= {"finish_reason": finish or _finish(parts), "stop_reason": None, "routed_experts": experts}
    return _chunk([choice], len(prompt), len(ids)) | {"object": "chat.completion", "prompt_token_ids": prompt}


def completion_chunks(*pieces: tuple[str, list[int]], prompt: Iterable[int], finish: str = "stop") -> list[Json]:
    """The ``data`` objects of a completion's stream; each piece is text and its ids."""
    prompt, chunks = [*prompt], []
    for number, (text, ids) in enumerate(pieces, start=1):
        choice: Json = {"index": 0, "text": text, "token_ids": ids, "logprobs": {"token_logprobs": _numbers(ids)}}
        choice |= {"finish_reason": finish if number == len(pieces) else None, "stop_reason": None}
        chunks.append(_chunk([choice | {"prompt_token_ids": prompt if number == 1 else None}], len(prompt), 0))
    return [*chunks, _chunk([], len(prompt), sum(len(ids) for _, ids in pieces))]


def completion_answer(text: str, ids: list[int], *, prompt: Iterable[int], experts: str | None = None) -> Json:
    """A completion's JSON answer."""
    prompt = [*prompt]
    choice = {"index": 0, "text": text, "token_ids": ids, "logprobs": {"token_logprobs": _numbers(ids)}}
    choice |= {"finish_reason": "stop", "stop_reason": None, "prompt_token_ids": prompt, "routed_experts": experts}
    return _chunk([choice], len(prompt), len(ids))


def npy(array: Any) -> str:
    """An array as vLLM sends routed experts: base64 of a ``.npy`` file."""
    file = io.BytesIO()
    numpy.save(file, array)
    return base64.b64encode(file.getvalue()).decode()


def data(value: Json) -> bytes:
    """One event of a chat or completions stream: it has no name."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def streamed(chunks: Iterable[Json]) -> Answer:
    """A stream as it crosses the wire."""
    return sse_answer([*(data(chunk) for chunk in chunks), b"data: [DONE]\n\n"])


def chat(*parts: Part, stream: bool, prompt: Iterable[int] = (1, 2, 3), finish: str | None = None) -> Answer:
    """A chat completion in either transport."""
    if stream:
        return streamed(chat_chunks(*parts, prompt=prompt, finish=finish))
    return json_answer(chat_answer(*parts, prompt=prompt, finish=finish))


def _chunk(choices: list[Json], prompt: int, sampled: int) -> Json:
    usage = {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}
    return {"id": "chatcmpl-1", "model": "qwen3", "choices": choices, "usage": usage}


def _finish(parts: Iterable[Part]) -> str:
    return "tool_calls" if any(part.call for part in parts) else "stop"


def _numbers(ids: list[int]) -> list[float]:
    return [-token / 100 for token in ids]


def _logprobs(ids: list[int]) -> list[Json]:
    return [{"token": str(token), "logprob": -token / 100} for token in ids]
