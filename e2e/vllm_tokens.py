"""Token requests through the gateway against a real vLLM: its own /v1/messages' blocks, every id, a trajectory.

Part of `make e2e-vllm`; alone, against a gateway and a vLLM that are already there:
`python -m e2e.vllm_tokens --gateway URL --upstream URL`.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from e2e.token_shapes import NATIVE, OWNED, RUST, SHAPES, TWO
from e2e.token_shapes import REFUSED as REFUSED_SHAPES
from e2e.vllm_checks import Check

Json = dict[str, Any]

ASKED = {"return_token_ids": True, "return_logprob": True}
TRANSPORTS = (("JSON", False), ("SSE ", True))
TIMEOUT_S = 120.0

PIECES = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("partial_json", "input"),
    "signature_delta": ("signature", "signature"),
}
"""For each kind of delta: the key of what it adds, and the block's key that grows by it."""

RANDOM = {"id", "tool_use_id", "signature", "encrypted_content"}

DECIDED_BY_THE_TEMPLATE = {"thinking disabled"}
"""What vLLM settles by looking at its chat template: only where the model's own template knows `reasoning_effort: none`
do both routes render the same."""


@dataclass
class Answer:
    """A message, from either transport, as a client reads it."""

    status: int
    content: list[Json] = field(default_factory=list)
    stop_reason: str | None = None
    stop_sequence: str | None = None
    usage: Json = field(default_factory=dict)
    output_ids: list[int] = field(default_factory=list)
    output_token_logprobs: list[tuple[float, int]] = field(default_factory=list)
    rounds: list[Json] = field(default_factory=list)
    error: str | None = None

    def comparable(self) -> list[Any]:
        """All but what no two answers share: call ids, signatures, seals."""
        return [_without_random(self.content), self.stop_reason, self.stop_sequence, self.usage]

    def summary(self) -> str:
        kinds = " ".join(block["type"] for block in self.content)
        return f"{kinds}; {self.stop_reason}; {len(self.output_ids)} ids"


@dataclass
class Sides:
    """The gateway, and the upstream behind it, asked the same."""

    client: httpx.AsyncClient
    gateway: str
    upstream: str
    model: str

    async def ask(self, origin: str, body: Json, *, stream: bool) -> Answer:
        """One request to /v1/messages."""
        request = {"model": self.model, "temperature": 0, "stream": stream, **body}
        response = await self.client.post(f"{origin}/v1/messages", json=request)
        if response.status_code != 200:
            return Answer(response.status_code, error=response.text)
        return _folded(response.text) if stream else _read(response.json())

    async def both(self, body: Json, *, stream: bool) -> tuple[Answer, Answer]:
        """The token request's answer from the gateway, and vLLM's own without the token fields."""
        return (
            await self.ask(self.gateway, body | ASKED, stream=stream),
            await self.ask(self.upstream, body, stream=stream),
        )

    async def completion(self, prompt: list[int], **more: Any) -> Json:
        """What vLLM's /v1/completions makes of token ids: its choice."""
        request = {"model": self.model, "prompt": prompt, "temperature": 0, "return_token_ids": True, **more}
        response = await self.client.post(f"{self.upstream}/v1/completions", json=request)
        choice: Json = response.raise_for_status().json()["choices"][0]
        return choice

    async def chat_ids(self, prompt: str, max_tokens: int) -> tuple[list[int], list[int]]:
        """The prompt and the output of /v1/chat/completions, as token ids."""
        messages = [{"role": "user", "content": prompt}]
        request = {"model": self.model, "messages": messages, "max_tokens": max_tokens, "temperature": 0}
        request |= {"return_token_ids": True, "tool_choice": None}
        response = await self.client.post(f"{self.upstream}/v1/chat/completions", json=request)
        answer = response.raise_for_status().json()
        return answer["prompt_token_ids"], answer["choices"][0]["token_ids"]


async def equality(sides: Sides) -> AsyncIterator[Check]:
    """Blocks, stop reason and usage are those of vLLM's own /v1/messages, and there is one id for each token."""
    for name, body in SHAPES.items():
        for transport, stream in TRANSPORTS:
            ours, vllms = await sides.both(body, stream=stream)
            right = ours.status == vllms.status == 200 and _ids_are_whole(ours)
            if name not in DECIDED_BY_THE_TEMPLATE:
                right = right and ours.comparable() == vllms.comparable()
            seen = ours.summary() if right else {"gateway": ours, "vLLM": vllms}
            yield Check(f"{transport} {name}", seen, right)


async def ids_out(sides: Sides) -> AsyncIterator[Check]:
    """From messages: `output_ids` are the `token_ids` of /v1/chat/completions."""
    _, expected = await sides.chat_ids("hello", 60)
    for transport, stream in TRANSPORTS:
        body = {"max_tokens": 60, "messages": [{"role": "user", "content": "hello"}]}
        answer = await sides.ask(sides.gateway, body | ASKED, stream=stream)
        yield Check(f"{transport} ids out", answer.output_ids, answer.output_ids == expected)


async def ids_in(sides: Sides) -> AsyncIterator[Check]:
    """From `input_ids`: text and `output_ids` are those of /v1/completions."""
    prompt, _ = await sides.chat_ids("hello", 1)
    stop = {"max_tokens": 60, "stop_sequences": ["help you"]}
    for name, more in (
        ("to the end", {"max_tokens": 60}),
        ("cut by max_tokens", {"max_tokens": 3}),
        ("a stop sequence", stop),
        ("a stop sequence kept", stop | {"include_stop_str_in_output": True}),
    ):
        asked = {"stop" if key == "stop_sequences" else key: value for key, value in more.items()}
        expected = await sides.completion(prompt, **asked)
        for transport, stream in TRANSPORTS:
            answer = await sides.ask(sides.gateway, {"input_ids": prompt, **ASKED, **more}, stream=stream)
            right = answer.content == [{"type": "text", "text": expected["text"]}]
            right = right and answer.output_ids == expected["token_ids"] and _ids_are_whole(answer)
            yield Check(f"{transport} ids in, {name}", answer.summary() if right else answer, right)


async def refusals(sides: Sides) -> AsyncIterator[Check]:
    """What vLLM's own /v1/messages answers 400, a token request is answered 400."""
    bodies = REFUSED_SHAPES | {"an id outside the vocabulary": {"max_tokens": 5, "input_ids": [10**6]}}
    for name, body in bodies.items():
        for transport, stream in TRANSPORTS:
            answer = await sides.ask(sides.gateway, body | ASKED, stream=stream)
            yield Check(f"{transport} {name}", answer.error or answer.status, answer.status == 400)


async def trajectory(sides: Sides) -> AsyncIterator[Check]:
    """The rounds of a loop: each is what vLLM samples from that prompt, and the next prompt goes on from it."""
    for question, tool in ((RUST, OWNED), (TWO, OWNED), (RUST, NATIVE), (TWO, NATIVE)):
        body = {"max_tokens": 200, "messages": [{"role": "user", "content": question}], "tools": [tool]}
        for transport, stream in TRANSPORTS:
            name = f"{transport} {'native' if tool is NATIVE else 'hidden'}, {question[:7]}…"
            answer = await sides.ask(sides.gateway, body | ASKED, stream=stream)
            async for check in _rounds(sides, answer):
                yield Check(f"{name}: {check.what}", check.seen, check.right)
            plain = await sides.ask(sides.gateway, body, stream=stream)
            same = answer.comparable() == plain.comparable()
            yield Check(f"{name}: the message is the plain loop's", answer.summary() if same else [answer, plain], same)
            sampled = [token for a_round in answer.rounds for token in a_round["output_ids"]]
            if tool is NATIVE or not stream:
                right = answer.output_ids == sampled and _ids_are_whole(answer)
                yield Check(f"{name}: output_ids are all the rounds'", len(sampled), right)
            else:
                in_order = [*_in_turn(answer.output_ids, sampled)] == answer.output_ids
                yield Check(f"{name}: output_ids are some of the rounds'", len(answer.output_ids), in_order)


async def _rounds(sides: Sides, answer: Answer) -> AsyncIterator[Check]:
    rounds = answer.rounds
    yield Check("rounds", len(rounds) or answer.error, len(rounds) > 1)
    for number, a_round in enumerate(rounds):
        sampled = (await sides.completion(a_round["input_ids"], max_tokens=200))["token_ids"]
        yield Check(f"round {number}, ids", len(a_round["output_ids"]), a_round["output_ids"] == sampled)
        paired = [token for _, token in a_round["output_token_logprobs"]]
        yield Check(f"round {number}, log-probabilities", len(paired), paired == a_round["output_ids"])
    for number, (before, after) in enumerate(pairwise(rounds), start=1):
        at = _first_difference(before["input_ids"] + before["output_ids"], after["input_ids"])
        told = after.get("prefix_mismatch")
        yield Check(f"round {number}, prefix_mismatch", told, told == at)


def _in_turn(some: list[int], all_: list[int]) -> Iterator[int]:
    """Those of `some` that can be found in `all_`, each after the one before it."""
    left = iter(all_)
    return (token for token in some if token in left)


def _without_random(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_random(one) for key, one in value.items() if key not in RANDOM}
    return [_without_random(one) for one in value] if isinstance(value, list) else value


def _ids_are_whole(answer: Answer) -> bool:
    paired = [token for _, token in answer.output_token_logprobs]
    return len(answer.output_ids) == answer.usage["output_tokens"] and paired == answer.output_ids


def _first_difference(expected: list[int], prompt: list[int]) -> int | None:
    differing = [at for at, (one, other) in enumerate(zip(expected, prompt, strict=False)) if one != other]
    if differing:
        return differing[0]
    return None if len(prompt) >= len(expected) else len(prompt)


def _read(message: Json) -> Answer:
    return Answer(
        200,
        message["content"],
        message.get("stop_reason"),
        message.get("stop_sequence"),
        message["usage"],
        message.get("output_ids") or [],
        message.get("output_token_logprobs") or [],
        message.get("rounds") or [],
    )


def _folded(stream: str) -> Answer:
    """A stream as a client reads it; arguments stay the text they came as."""
    answer = Answer(200)
    for line in stream.splitlines():
        if not line.startswith("data:"):
            continue
        event = json.loads(line[5:])
        match event["type"]:
            case "content_block_start":
                block = dict(event["content_block"])
                if "input" in block:
                    block["input"] = ""
                answer.content.append(block)
            case "content_block_delta":
                delta = event["delta"]
                source, target = PIECES[delta["type"]]
                block = answer.content[event["index"]]
                block[target] = block.get(target, "") + delta[source]
                answer.output_ids += event.get("output_ids") or []
                answer.output_token_logprobs += event.get("output_token_logprobs") or []
            case "message_delta":
                answer.stop_reason = event["delta"]["stop_reason"]
                answer.stop_sequence = event["delta"]["stop_sequence"]
                answer.usage = event["usage"]
                answer.rounds = event.get("rounds") or []
            case "error":
                answer.error = event["error"]["message"]
    return answer


SECTIONS = (
    ("token requests answer as /v1/messages does", equality),
    ("token ids out", ids_out),
    ("token ids in", ids_in),
    ("refused token requests", refusals),
    ("the trajectory of a loop", trajectory),
)
"""Title and checks, each taking :class:`Sides`."""


async def main(options: argparse.Namespace) -> int:
    """Run every check against servers that are there; returns the exit status."""
    failed = 0
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        sides = Sides(client, options.gateway, options.upstream, options.model)
        for title, section in SECTIONS:
            print(f"\n{title}")
            async for check in section(sides):
                failed += not check.right
                print("  ok  " if check.right else "  FAIL", f"{check.what}: {check.seen}")
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="e2e.vllm_tokens")
    parser.add_argument("--gateway", metavar="URL", required=True)
    parser.add_argument("--upstream", metavar="URL", required=True)
    parser.add_argument("--model", metavar="NAME", default="qwen3")
    sys.exit(asyncio.run(main(parser.parse_args())))
