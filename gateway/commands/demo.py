"""`messages-gateway demo`: one request through the loop, what the client saw beside what happened behind it.

No GPU, no key, no network: upstream is a cassette of real vLLM traffic played at its recorded pace, and the search has
one canned answer. What stands between them is the real gateway.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
import uvloop
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.app import Gateway
from gateway.server.serve import loopback
from gateway.settings import Settings
from gateway.tools.canned import CannedSearch
from gateway.tools.web_search import WebSearch
from gateway.turn import Event, Fold, read_event
from gateway.turn.web_search import SearchCall, SearchOutcome, SearchResult
from gateway.wire.sse import SSEReader
from recorder.cassette import Cassette
from recorder.player import Player, Seen
from recorder.serving import Receive, Scope, Send, bind, origin, serving

CASSETTE = Path(__file__).with_name("demo.yaml")

RESULTS = (
    SearchResult(
        title="Announcing Rust 1.95.0 | Rust Blog",
        url="https://blog.rust-lang.org/2026/04/16/Rust-1.95.0/",
        snippet="The Rust team is happy to announce a new version of Rust, 1.95.0.",
        page_age="2026-04-16",
    ),
)
"""What the search finds. The cassette's second round holds it, in the words that the gateway makes of it."""


def main(speed: float = 1.0) -> int:
    """Run the demo, ``speed`` times as fast as it was recorded; returns the exit status."""
    return uvloop.run(show(Console(highlight=False), speed))


async def show(console: Console, speed: float) -> int:
    """Start upstream and gateway, send the recorded request, print both sides as things happen."""
    request = next(iter(Cassette(CASSETTE))).request.body
    console.print(f"\n[bold]The client asks:[/bold] {request['messages'][0]['content']}")
    console.print("It declares a function, web_search, that it cannot run itself, and asks for a stream.\n")
    report = Report(console)
    search = WatchedSearch(report)
    with closing(WatchedUpstream(speed, report)) as upstream, bind("127.0.0.1", 0) as listener:
        settings = Settings(upstream=origin(listener), log_level="error")
        async with (
            serving(upstream, listener, on_stop=upstream.stop),
            loopback(Gateway(settings, runners={"web_search": search})) as gateway,
        ):
            answer = await ask(gateway, request, report)
    if not answer.ended:
        console.print("\n[red]The answer did not end as it should.[/red]")
        return 1
    console.print(f"\n[bold]The client's answer:[/bold] {answer.text.strip()}")
    console.print(
        f"One request, one message of {len(answer.message['content'])} blocks. Behind it: {upstream.rounds} rounds "
        f"upstream and {search.searches} search, of which the client saw nothing.\n\n"
        "With your own server: [bold]messages-gateway serve --upstream http://127.0.0.1:8000[/bold]\n"
    )
    return 0


async def ask(gateway: str, request: dict[str, Any], report: "Report") -> "Message":
    """Send the request as a client would, and report each part of the message when it is whole."""
    answer = Message()
    async with httpx.AsyncClient(base_url=gateway, timeout=60) as client:
        await client.get("/health")  # the first connection takes time of its own, which is not what is shown
        report.client("POST /v1/messages")
        async with client.stream("POST", "/v1/messages", json=request) as response:
            if response.status_code != 200:
                report.client(f"HTTP {response.status_code}", (await response.aread()).decode())
                return answer
            async for chunk in response.aiter_bytes():
                for event in answer.feed(chunk):
                    report_event(event, answer, report)
    return answer


def report_event(event: Event, answer: "Message", report: "Report") -> None:
    """What the client sees: blocks when they are whole, the rest as it comes."""
    match event["type"]:
        case "content_block_stop":
            report.client(f"block {event['index']}, {answer.kind}", f"{answer.text} ({answer.pieces} deltas)")
        case "message_delta":
            report.client("message_delta", f"stop_reason {event['delta']['stop_reason']}")
        case "error":
            report.client("error", event["error"]["message"])
        case "message_start" | "message_stop" as kind:
            report.client(kind)


class Message:
    """A message that arrives as a stream. ``text`` and ``pieces`` are those of its latest block."""

    def __init__(self) -> None:
        self.ended = False
        self.pieces = 0
        self._reader = SSEReader()
        self._fold = Fold()

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events in the bytes that came, each already part of the message."""
        for frame in self._reader.feed(chunk):
            event = read_event(frame.data)
            self._fold.take([event])
            match event["type"]:
                case "content_block_start":
                    self.pieces = 0
                case "content_block_delta":
                    self.pieces += 1
                case "message_stop":
                    self.ended = True
            yield event

    @property
    def message(self) -> dict[str, Any]:
        return self._fold.message

    @property
    def kind(self) -> str:
        return str(self.message["content"][-1]["type"])

    @property
    def text(self) -> str:
        block = self.message["content"][-1]
        if self.kind == "tool_use":
            return f"{block['name']}({json.dumps(block['input'])})"
        return str(block[self.kind])


class WatchedUpstream:
    """The cassette as an upstream that reports what it is asked and what it answers."""

    def __init__(self, speed: float, report: "Report") -> None:
        self.rounds = 0
        self._report = report
        self._player = Player([CASSETTE], speed=speed, on_request=self._asked)
        self.stop, self.close = self._player.stop, self._player.close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = Message()

        async def watched(message: dict[str, Any]) -> None:
            for event in answer.feed(message.get("body", b"")):
                if event["type"] == "content_block_stop" and answer.text.strip():
                    self._report.behind(f"round {self.rounds} answers {answer.kind}", answer.text)
            await send(message)

        await self._player(scope, receive, watched)

    def _asked(self, seen: Seen) -> None:
        if seen.path != "/v1/messages":
            return
        self.rounds += 1
        later = [block["type"] for message in seen.body["messages"][1:] for block in message["content"]]
        self._report.behind(
            f"round {self.rounds} asks", f"the question, {', '.join(later)}" if later else "the question"
        )
        if seen.problem is not None:
            self._report.behind("this was not recorded", seen.problem)


class WatchedSearch:
    """The gateway's search tool with a canned backend, which reports what it runs."""

    def __init__(self, report: "Report") -> None:
        self.searches = 0
        self._report = report
        backend = CannedSearch(default=RESULTS)
        self._tool = WebSearch(backend, timeout_s=60, concurrency=1, max_results=8, result_max_chars=20_000)

    async def run(self, call: SearchCall) -> SearchOutcome:
        """Run one search."""
        self.searches += 1
        self._report.behind("the gateway searches", call.query)
        outcome = await self._tool.run(call)
        self._report.behind("the search finds", outcome.text)
        return outcome

    async def aclose(self) -> None:
        """Close the tool."""
        await self._tool.aclose()


class Report:
    """Prints what happens, when it happens: milliseconds since the first of it, and on which side."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started: float | None = None
        self._row("ms", Text("the client sees", "bold"), Text("behind the gateway", "bold"))

    def client(self, what: str, detail: str = "") -> None:
        """Something that the client sees."""
        self._row(self._now(), _line(what, "cyan", detail), Text())

    def behind(self, what: str, detail: str = "") -> None:
        """Something that it does not see."""
        self._row(self._now(), Text(), _line(what, "yellow", detail))

    def _now(self) -> str:
        if self._started is None:
            self._started = perf_counter()
        return f"{(perf_counter() - self._started) * 1000:.0f}"

    def _row(self, at_ms: str, client: Text, behind: Text) -> None:
        grid = Table.grid(expand=True, padding=(0, 2, 0, 0))
        grid.add_column(width=5, justify="right", style="dim")
        grid.add_column(ratio=1)
        grid.add_column(ratio=1)
        grid.add_row(at_ms, client, behind)
        self._console.print(grid)


def _line(what: str, style: str, detail: str) -> Text:
    return Text.assemble((what, style), ": " if detail else "", " ".join(detail.split()))
