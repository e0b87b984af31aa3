"""One rollout for reinforcement learning: an answer that searched the web, as tokens, loss mask and log-probabilities.

    python examples/rollout.py                                                played from a recording of a real vLLM
    python examples/rollout.py --gateway http://127.0.0.1:9000 --model NAME   a gateway in front of your own vLLM

The gateway runs the search between the model's rounds. What the model sampled is in `rounds` on the message, token by
token; what was rendered between them (the question, the results of the search) is the rest of each round's prompt.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from gateway import Gateway, Settings
from gateway.server.serve import loopback
from gateway.tools.canned import CannedSearch
from gateway.tools.web_search import WebSearch
from gateway.turn.web_search import SearchResult
from recorder import serve_cassettes

CASSETTE = Path(__file__).parents[1] / "cassettes" / "tokens" / "rollout.yaml"
QUESTION = "What is the latest stable Rust release?"
TOOL = {
    "name": "web_search",
    "description": "Search the web for current information.",
    "input_schema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
}
FOUND = SearchResult(
    title="Announcing Rust 1.95.0 | Rust Blog",
    url="https://blog.rust-lang.org/2026/04/16/Rust-1.95.0/",
    snippet="The Rust team is happy to announce a new version of Rust, 1.95.0.",
    page_age="2026-04-16",
)
"""What the search finds when the recording is played: the recorded prompts hold it."""


@dataclass
class Sequence:
    """What a trainer wants, one entry a token in each list.

    `mask` is 1 where the model sampled the token, and 0 where it only read it: no loss there. `logprobs` has the
    log-probability the token was sampled with, 0.0 where it was only read.
    """

    tokens: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def read(self, tokens: list[int]) -> None:
        """Tokens of a prompt."""
        self.tokens += tokens
        self.mask += [0] * len(tokens)
        self.logprobs += [0.0] * len(tokens)

    def sampled(self, pairs: list[tuple[float, int]]) -> None:
        """Tokens of an output, each with its log-probability."""
        self.tokens += [token for _, token in pairs]
        self.mask += [1] * len(pairs)
        self.logprobs += [logprob for logprob, _ in pairs]


def training_sequence(rounds: list[dict[str, Any]]) -> Sequence:
    """One sequence of all the rounds.

    Raises ValueError where a prompt does not go on from the round before. Rendering the conversation again can change
    its tokens (a chat template that drops old thoughts does); such rounds are sequences of their own.
    """
    sequence = Sequence()
    for number, a_round in enumerate(rounds):
        prompt = a_round["input_ids"]
        known = len(sequence.tokens)
        if prompt[:known] != sequence.tokens:
            at = a_round["prefix_mismatch"]
            raise ValueError(f"the prompt of round {number} leaves the sequence at token {at}")
        sequence.read(prompt[known:])
        sequence.sampled(a_round["output_token_logprobs"])
    return sequence


def check(sequence: Sequence, message: dict[str, Any]) -> None:
    """Assert that the sequence is what the message says was sampled: nothing lost, nothing twice."""
    sampled = [token for token, mask in zip(sequence.tokens, sequence.mask, strict=True) if mask]
    logprobs = [logprob for logprob, mask in zip(sequence.logprobs, sequence.mask, strict=True) if mask]
    assert sampled == message["output_ids"]
    assert [[logprob, token] for logprob, token in zip(logprobs, sampled, strict=True)] == [
        *message["output_token_logprobs"]
    ]
    assert len(sampled) == message["usage"]["output_tokens"]
    assert all(logprob <= 0 for logprob in logprobs)
    last = message["rounds"][-1]
    assert sequence.tokens == last["input_ids"] + last["output_ids"]


async def rollout(gateway: str, model: str) -> dict[str, Any]:
    """Ask the question; the message with all its tokens."""
    request = {
        "model": model,
        "max_tokens": 300,
        "tools": [TOOL],
        "messages": [{"role": "user", "content": QUESTION}],
        "return_token_ids": True,
        "return_logprob": True,
    }
    async with httpx.AsyncClient(timeout=600) as client:
        response = await client.post(f"{gateway}/v1/messages", json=request)
    if response.is_error:
        sys.exit(f"HTTP {response.status_code}: {response.text}")
    message: dict[str, Any] = response.json()
    return message


@asynccontextmanager
async def played() -> AsyncIterator[str]:
    """A gateway before the recording, in this process; yields its address."""
    tool = WebSearch(CannedSearch(default=[FOUND]), timeout_s=60, concurrency=1, max_results=8, result_max_chars=20_000)
    async with serve_cassettes([CASSETTE]) as upstream:
        settings = Settings(upstream=upstream.origin, log_level="error")
        async with loopback(Gateway(settings, runners={"web_search": tool})) as gateway:
            yield gateway


async def main(options: argparse.Namespace) -> None:
    if options.gateway:
        message = await rollout(options.gateway, options.model)
    else:
        async with played() as gateway:
            message = await rollout(gateway, options.model)
    sequence = training_sequence(message["rounds"])
    check(sequence, message)
    print("".join(block.get("text", "") for block in message["content"]).strip())
    print(f"{len(message['rounds'])} rounds, {len(sequence.tokens)} tokens, {sum(sequence.mask)} of them sampled")
    for number, a_round in enumerate(message["rounds"], start=1):
        read, sampled = len(a_round["input_ids"]), len(a_round["output_ids"])
        print(f"  round {number}: tokens 0 to {read - 1} read, {read} to {read + sampled - 1} sampled")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gateway", metavar="URL", help="a gateway that is running; without it, the recording")
    parser.add_argument("--model", default="qwen3", help="default: %(default)s")
    asyncio.run(main(parser.parse_args()))
