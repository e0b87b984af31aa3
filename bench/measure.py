"""One measurement of one server: the same request bytes, the same upstream, a warm-up before each window."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from statistics import quantiles

from bench import bodies
from bench.client import Caller, Fault, Reader, connect, post
from bench.process import Server
from bench.script import Plan

CALLERS = 8
MANY_CALLERS = 64  # enough to keep several workers busy
EVENTS_PER_S = 5000  # of all streams together, so that neither the double nor the reader is what is measured
PLAIN = Plan()
TURN = Plan(events=130, searches=1, thinking=20)  # as most turns are: think, search, answer; 150 events
FASTEST_S = 0.01  # between two events of one stream
OPENED_PER_S = 500
SETTLE_S = 0.5
PROBES = 50
QUIET_PROBES = 20
TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Sample:
    """What one window gave: a number per measured quantity."""

    case: str
    server: str
    values: dict[str, float]


class Double:
    """The running upstream double, as its controller sees it."""

    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def plan(self, plan: Plan) -> None:
        await self._tell(b"/bench/plan", plan.encode())

    async def finish(self) -> None:
        await self._tell(b"/bench/finish", b"{}")

    async def seen(self) -> dict[str, int]:
        seen: dict[str, int] = json.loads(await self._tell(b"/bench/seen", b"{}"))
        return seen

    async def _tell(self, path: bytes, body: bytes) -> bytes:
        return await ask(self.port, body, path)


async def ask(port: int, body: bytes, path: bytes = b"/v1/messages") -> bytes:
    """One request, its answer's body. Raises Fault where the status is not 200."""
    [caller] = await connect(port, 1, lambda: Caller(post(body, path), b""))
    caller.stopped = True
    caller.start()
    await within(caller.lost)
    if caller.fault is not None:
        raise Fault(caller.fault)
    return caller.body


async def within(awaitable: Awaitable[object]) -> None:
    """Raises Fault after TIMEOUT_S."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await awaitable
    except TimeoutError as error:
        raise Fault(f"no end after {TIMEOUT_S} s") from error


async def check_loop(server: Server, double: Double) -> None:
    """The server's tool loop really engages: one search, two rounds, nothing of the call visible. Raises Fault."""
    await double.plan(Plan(searches=1))
    answer = await ask(server.port, bodies.loop())
    seen = await double.seen()
    if seen != {"messages": 2, "searches": 1} or b"tool_use" in answer or b"message_stop" not in answer:
        raise Fault(f"{server.name} does not run the loop: upstream saw {seen}, the client {answer[-2000:]!r}")


async def requests(
    server: Server, double: Double, case: str, body: bytes, *, window_s: float, plan: Plan = PLAIN
) -> Sample:
    """CPU time per request, the answer coming at once and whole, rounds and all. Raises Fault.

    Of a stream also the time to its first byte, of one request after the other on a server that does nothing else.
    """
    streamed = b'"stream":true' in body
    await double.plan(plan)
    values = await saturated(server, body, b"message_stop" if streamed else b"end_turn", CALLERS, window_s=window_s)
    values = {"cpu_us": values["cpu_us"]}
    if streamed:
        first = [await first_event(server, body) for _ in range(QUIET_PROBES)]
        values |= {"first_p50_ms": percentile(first, 50) / 1e6}
    return Sample(case, server.name, values)


async def history(server: Server, double: Double, case: str, body: bytes, *, window_s: float, plan: Plan) -> Sample:
    """CPU time per turn and the most memory there is while one is answered after the other. Raises Fault."""
    await double.plan(plan)
    values = await saturated(server, body, b"message_stop", 1, window_s=window_s)
    return Sample(case, server.name, {name: values[name] for name in ("cpu_us", "peak_mb")})


async def throughput(server: Server, double: Double, case: str, body: bytes, *, window_s: float) -> Sample:
    """Answers a second while it has as many requests as it can take, and how many cores it takes for them."""
    await double.plan(PLAIN)
    values = await saturated(server, body, b"end_turn", MANY_CALLERS, window_s=window_s)
    return Sample(case, server.name, {name: values[name] for name in ("cpu_us", "per_s", "cores")})


async def saturated(server: Server, body: bytes, proof: bytes, number: int, *, window_s: float) -> dict[str, float]:
    """What a server does while so many callers ask again as soon as they are answered. Raises Fault."""
    await ask(server.port, body)  # a server may load half of itself at its first request
    callers = await connect(server.port, number, lambda: Caller(post(body), proof))
    for caller in callers:
        caller.start()
    await asyncio.sleep(SETTLE_S)
    answers, cpu = sum(caller.answers for caller in callers), server.cpu_ns()
    server.forget_peak()
    began = time.monotonic()
    await asyncio.sleep(window_s)
    answers, cpu = sum(caller.answers for caller in callers) - answers, server.cpu_ns() - cpu
    elapsed = time.monotonic() - began
    for caller in callers:
        caller.stopped = True
    await within(asyncio.gather(*(caller.lost for caller in callers)))
    for caller in callers:
        if caller.fault is not None:
            raise Fault(f"{server.name}: {caller.fault}")
    if answers == 0:
        raise Fault(f"{server.name}: no answer in {window_s} s")
    return {
        "cpu_us": cpu / answers / 1e3,
        "per_s": answers / elapsed,
        "cores": cpu / elapsed / 1e9,
        "peak_mb": server.peak_bytes() / 1e6,
    }


@asynccontextmanager
async def open_streams(
    server: Server, double: Double, body: bytes, number: int, plan: Plan
) -> AsyncIterator[list[Reader]]:
    """That many running streams, past the lead of `plan`, which comes at once; ended whole at the exit.

    Raises Fault.
    """
    await double.plan(replace(plan, events=None, interval_s=_interval_s(number)))
    readers = await connect(server.port, number, lambda: Reader(post(body), plan.lead))
    try:
        await start(readers)
        await within(asyncio.gather(*(reader.under_way for reader in readers)))
        await asyncio.sleep(SETTLE_S)
        yield readers
        await double.finish()
        await within(asyncio.gather(*(reader.lost for reader in readers)))
    finally:
        for reader in readers:
            reader.transport.abort()
    check_whole(server, readers)


async def start(readers: list[Reader]) -> None:
    for position, reader in enumerate(readers):
        reader.start()
        if position % 10 == 9:
            await asyncio.sleep(10 / OPENED_PER_S)


def check_whole(server: Server, readers: list[Reader]) -> None:
    """Raises Fault where a stream was cut, or an event of it lost or mixed up."""
    for reader in readers:
        if reader.fault is not None or not reader.whole:
            raise Fault(f"{server.name}, {len(readers)} streams: {reader.fault or 'a stream was cut'}")


def _interval_s(number: int) -> float:
    return max(FASTEST_S, number / EVENTS_PER_S)


async def streams(
    server: Server, double: Double, case: str, body: bytes, number: int, *, window_s: float, plan: Plan = PLAIN
) -> Sample:
    """CPU time per event, and how late the events are, while that many streams run. Raises Fault."""
    async with open_streams(server, double, body, number, plan) as readers:
        for reader in readers:
            reader.late_ns.clear()
        events, cpu = sum(reader.events for reader in readers), server.cpu_ns()
        await asyncio.sleep(window_s)
        events, cpu = sum(reader.events for reader in readers) - events, server.cpu_ns() - cpu
        late = [late for reader in readers for late in reader.late_ns]
        # A probe's first event would come with all of a lead behind it.
        first = [await first_event(server, body) for _ in range(PROBES)] if plan.lead == 1 else []
    values = {"cpu_us": cpu / events / 1e3}
    for name, times in {"first": first, "later": late}.items():
        if times:
            values |= {f"{name}_p{percent}_ms": percentile(times, percent) / 1e6 for percent in (50, 99)}
    return Sample(case, server.name, values)


async def turns(server: Server, double: Double, case: str, body: bytes, number: int) -> Sample:
    """CPU time per event of whole turns, that many side by side, all that they cost besides included. Raises Fault."""
    await double.plan(replace(TURN, interval_s=_interval_s(number)))
    readers = await connect(server.port, number, lambda: Reader(post(body), rounds=2))
    cpu = server.cpu_ns()
    try:
        await start(readers)
        await within(asyncio.gather(*(reader.lost for reader in readers)))
    finally:
        for reader in readers:
            reader.transport.abort()
    cpu = server.cpu_ns() - cpu
    check_whole(server, readers)
    return Sample(case, server.name, {"cpu_us": cpu / sum(reader.events for reader in readers) / 1e3})


async def first_event(server: Server, body: bytes) -> int:
    """From a request to the first bytes of its stream, in ns; the stream is left then."""
    [probe] = await connect(server.port, 1, lambda: Reader(post(body)))
    probe.start()
    await within(probe.first_bytes)
    probe.transport.close()
    if probe.first_ns is None:
        raise Fault(f"{server.name}: a stream without bytes")
    return probe.first_ns


async def memory(server: Server, double: Double, case: str, body: bytes, number: int) -> Sample:
    """Resident memory of a server that was just started: idle, then with that many streams open. Raises Fault."""
    await throughput(server, double, case, bodies.small(), window_s=0.5)
    await asyncio.sleep(SETTLE_S)
    idle = server.rss_bytes()
    async with open_streams(server, double, body, number, Plan()):
        loaded = server.rss_bytes()
    return Sample(
        case,
        server.name,
        {"idle_mb": idle / 1e6, "loaded_mb": loaded / 1e6, "stream_kb": (loaded - idle) / number / 1e3},
    )


def percentile(values: list[int], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else float(values[0])
