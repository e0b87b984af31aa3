"""What is measured: the rows of the table, each a measurement with its request and what upstream does."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from bench import bodies, measure
from bench.process import Server
from bench.script import Plan

LEAD = 2000  # events of an answer that is already long when its events are measured
LEAD_STREAMS = 100
FIND_40_KB = Plan(searches=1, results=20)

STREAMS = {"streams": ("proxied", bodies.stream()), "loop": ("loop", bodies.loop())}


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: repetitions, seconds a window, numbers of streams, whether the slow cases run too."""

    reps: int
    window_s: float
    ladder: list[int]
    whole: bool


@dataclass(frozen=True, slots=True)
class Case:
    """Rows of the table: the same measurement, of one server after the other that does this kind of thing."""

    kind: str
    name: str
    take: Callable[[Server, measure.Double, str], Awaitable[measure.Sample]]
    direct: bool = False  # taken of the upstream itself too
    fresh: bool = False  # taken of a server that was just started, so that nothing that came before is in the figures
    once: bool = False  # memory does not depend on what else the machine does


def request_cases(effort: Effort) -> list[Case]:
    """Whole requests, and whole turns with an answer of one event."""
    take = partial(measure.requests, window_s=effort.window_s)
    search = partial(take, plan=Plan(searches=1))
    many = partial(measure.throughput, body=bodies.small(), window_s=effort.window_s)
    return [
        Case("requests", "small request", partial(take, body=bodies.small())),
        Case("requests", "75 KB request", partial(take, body=bodies.claude_code()), direct=True),
        Case("requests", "600 KB request", partial(take, body=bodies.long_session(600)), direct=True),
        Case("loop", "turn of one search", partial(search, body=bodies.loop()), direct=True),
        Case("loop", "turn of two searches at once", partial(take, body=bodies.loop(), plan=Plan(searches=2))),
        Case("loop", "native turn, result of 40 KB", partial(take, body=bodies.native(), plan=FIND_40_KB)),
        Case("loop", "75 KB turn of one search", partial(search, body=bodies.claude_code(search=True)), direct=True),
        Case("loop", "600 KB turn of one search", partial(search, body=bodies.long_session(600, search=True))),
        Case("workers", "small requests, as many as it takes", many),
    ]


def history_cases(effort: Effort) -> list[Case]:
    """What a turn costs by the size of the conversation before it: with a search, it asks upstream twice."""
    sizes = [38, 75, 150, 300] if effort.whole else []
    take = partial(measure.history, window_s=effort.window_s)
    return [
        Case("native", f"history of {messages} messages, {rounds}", partial(take, body=body, plan=plan), fresh=True)
        for messages in sizes
        for body in [bodies.native_history(messages)]
        for rounds, plan in {"one round": Plan(), "two rounds": Plan(searches=1)}.items()
    ]


def stream_cases(effort: Effort) -> list[Case]:
    cases = []
    for kind, (what, body) in STREAMS.items():
        take = partial(measure.streams, body=body, window_s=effort.window_s)
        for number in effort.ladder:
            cases.append(Case(kind, f"{what} event, {_streams(number)}", partial(take, number=number), direct=True))
        if effort.whole:
            long = partial(take, number=LEAD_STREAMS, plan=Plan(lead=LEAD))
            cases.append(Case(kind, f"{what} event, {LEAD_STREAMS} streams, after {LEAD} events", long))
    take = partial(measure.streams, body=bodies.loop(), window_s=effort.window_s)
    for number in [number for number in effort.ladder if number > 1]:
        others = {
            "with blanks": Plan(spelling="blanks"),
            "as llama.cpp spells it": Plan(spelling="llama.cpp"),
            "of a client's call": Plan(kind="arguments"),
        }
        for name, plan in others.items():
            cases.append(
                Case("loop", f"loop event {name}, {_streams(number)}", partial(take, number=number, plan=plan))
            )
        cases.append(
            Case(
                "loop",
                f"event of a turn (think, search, answer), {_streams(number)}",
                partial(measure.turns, body=bodies.loop(), number=number),
            )
        )
    return cases


def memory_cases(effort: Effort) -> list[Case]:
    return [
        Case(
            kind,
            f"memory, {what}, {_streams(number)}",
            partial(measure.memory, body=body, number=number),
            fresh=True,
            once=True,
        )
        for kind, (what, body) in STREAMS.items()
        for number in effort.ladder
        if effort.whole
    ]


def _streams(number: int) -> str:
    return f"{number} stream{'s' if number > 1 else ''}"


def cases_of(effort: Effort, only: str) -> list[Case]:
    """All cases in whose name the pattern is found."""
    cases = request_cases(effort) + stream_cases(effort) + history_cases(effort) + memory_cases(effort)
    return [case for case in cases if re.search(only, case.name)]
