"""The command line: `python -m load.run --help`, or `make load`. Linux only, for it reads /proc."""

import asyncio
import json
import os
import platform
import re
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click
import uvloop
from pydantic import SecretStr

from bench import bodies, peers
from bench.client import Caller, Fault, Reader, connect, post
from bench.measure import Double, percentile
from bench.process import PAGE, Server, StartFailed, free_port, running
from bench.run import machine
from bench.script import Plan
from gateway.app import Gateway
from gateway.server.serve import loopback
from gateway.settings import Settings

EVENTS_PER_S = 10
OPENED_PER_S = 200
IN_FLIGHT = "messages_gateway_requests_in_flight"
SETTLE_S = 6
"""Until idle connections to upstream, kept for 4 s, are gone."""
STALLED_KB = 2000
"""What a client that does not read may cost."""
LATE_S = 60
"""How much longer than it lasts a part may take."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much load."""

    streams: int = 1000
    seconds: float = 300
    turns: int = 10_000
    stalled: int = 200


SHORT = Extent(streams=100, seconds=20, turns=500, stalled=20)


class Memory:
    """Resident memory over time: flat if its end is no higher than its beginning, but for a little."""

    def __init__(self, pid: int | str) -> None:
        self._statm = Path(f"/proc/{pid}/statm")
        self.samples: list[float] = []

    def sample(self) -> float:
        """Take one, in MB."""
        self.samples.append(int(self._statm.read_text().split()[1]) * PAGE / 1e6)
        return self.samples[-1]

    def verdict(self, name: str, kept_mb: float = 0) -> str:
        """Of the samples since the first fifth. Raises Fault where memory grew by more than ``kept_mb`` explains."""
        settled = self.samples[len(self.samples) // 5 :]
        tenth = max(1, len(settled) // 10)
        begin, end = min(settled[:tenth]), min(settled[-tenth:])
        if end > begin * 1.05 + 2 + kept_mb:
            raise Fault(f"{name}: memory grew from {begin:.1f} to {end:.1f} MB")
        return f"memory {begin:.1f} MB at first, {end:.1f} MB at the end, {max(settled):.1f} MB at most"


def descriptors(pid: int | str) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


async def metric(server: Server, pattern: str) -> float:
    """The sum of the gateway's metrics whose line matches."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    lines = (await reader.read()).decode().splitlines()
    writer.close()
    return sum(float(line.rpartition(" ")[2]) for line in lines if re.match(pattern, line))


async def streams(server: Server, double: Double, extent: Extent) -> str:
    """Every stream gets all its events, in order, with its own mark. Half pass through, half are turns."""
    events = round(extent.seconds * EVENTS_PER_S)
    await double.plan(Plan(events=events, lead=0, interval_s=1 / EVENTS_PER_S))
    await metric(server, IN_FLIGHT)  # it answers, so it has opened all that it keeps open
    before = descriptors(server.process.pid)
    readers = []
    memory = Memory(server.process.pid)
    for mark in range(1, extent.streams + 1):
        body = json.loads(bodies.loop() if mark % 2 else bodies.stream()) | {"metadata": {"user_id": str(mark)}}
        request = post(json.dumps(body, separators=(",", ":")).encode())
        readers += await connect(server.port, 1, lambda request=request: Reader(request))  # type: ignore[misc]
        readers[-1].start()
        await asyncio.sleep(1 / OPENED_PER_S)
    late: list[int] = []
    cpu, began = server.cpu_ns(), time.monotonic()
    async with asyncio.timeout(extent.seconds + LATE_S):
        while not all(reader.lost.done() for reader in readers):
            await asyncio.sleep(1)
            if time.monotonic() - began < extent.seconds - 2:
                memory.sample()
            for reader in readers:
                late += reader.late_ns
                reader.late_ns.clear()
    cpu = server.cpu_ns() - cpu
    for mark, reader in enumerate(readers, 1):
        if reader.fault is not None or not reader.whole or reader.events != events or reader.stream != b"%d" % mark:
            told = reader.fault or f"{reader.events} events of {events}, marked {reader.stream!r}"
            raise Fault(f"stream {mark}: {told}")
    await asyncio.sleep(SETTLE_S)
    left = descriptors(server.process.pid) - before
    ok = await metric(server, r'messages_gateway_requests_total\{outcome="ok",route="/v1/messages",status="2xx"\}')
    in_flight = await metric(server, IN_FLIGHT)
    if left > 0 or ok != extent.streams or in_flight != 1:  # the one that asks
        raise Fault(f"{left} descriptors left, {ok:g} requests ok, {in_flight - 1:g} in flight")
    total = events * extent.streams
    # A turn keeps its text for its next request: mark, count and time of every event.
    kept_mb = total / 2 * len(f" {extent.streams}.{events}.{time.monotonic_ns()}") / 1e6
    return (
        f"{extent.streams} streams, half of them turns, {EVENTS_PER_S} events a second for {extent.seconds:g} s: all "
        f"{total:,} events arrived, in order, each on its own stream; {memory.verdict('streams', kept_mb)}, "
        f"{kept_mb:.0f} MB of it text that the turns keep; "
        f"late by {percentile(late, 50) / 1e6:.1f} ms (p50), {percentile(late, 99) / 1e6:.1f} ms (p99); "
        f"{cpu / total / 1e3:.1f} µs of CPU an event; no descriptor left"
    )


async def turns(double: Double, extent: Extent) -> str:
    """One turn after another, each with a search; the gateway runs in this process, where its tasks can be counted."""
    settings = Settings(
        upstream=double.origin,
        search_provider="brave",
        search_base_url=double.origin,
        search_api_key=SecretStr(peers.SEARCH_KEY),
        log_level="error",
    )
    memory = Memory("self")

    async def some(url: str, number: int, *, sampled: bool) -> None:
        [caller] = await connect(int(url.rpartition(":")[2]), 1, lambda: Caller(post(bodies.loop()), b"message_stop"))
        caller.start()
        async with asyncio.timeout(number * 0.1 + LATE_S):
            while caller.answers < number and caller.fault is None:
                await asyncio.sleep(0.05)
                if sampled:
                    memory.sample()
            caller.stopped = True
            await caller.lost
        if caller.fault is not None:
            raise Fault(f"turn {caller.answers}: {caller.fault}")

    await double.plan(Plan(searches=1))
    async with loopback(Gateway(settings)) as url:
        await some(url, extent.turns // 20, sampled=False)
        await asyncio.sleep(SETTLE_S)
        before = len(asyncio.all_tasks()), descriptors("self")
        began = time.monotonic()
        await some(url, extent.turns, sampled=True)
        elapsed = time.monotonic() - began
        await asyncio.sleep(SETTLE_S)
        after = len(asyncio.all_tasks()), descriptors("self")
    if after > before:
        raise Fault(f"tasks and descriptors before {before}, after {after}")
    seen = await double.seen()
    if seen["messages"] != 2 * seen["searches"]:
        raise Fault(f"upstream was asked {seen['messages']} times, the backend {seen['searches']} times")
    return (
        f"{extent.turns:,} turns one after another, each two rounds and a search, {extent.turns / elapsed:.0f} a "
        f"second: {memory.verdict('turns')} (client included); no task and no descriptor left"
    )


async def stalled(server: Server, extent: Extent) -> str:
    """Clients that stop reading while upstream sends all it can: what each costs, and what others notice."""
    alone = await answer_times(server)
    memory = Memory(server.process.pid)
    before = memory.sample()
    async with not_reading(server.port, extent.stalled):
        while len(memory.samples) < 6 or memory.samples[-1] > memory.samples[-5] + 0.5:
            await asyncio.sleep(0.5)
            memory.sample()
        beside = await answer_times(server)
    each = (memory.samples[-1] - before) * 1e3 / extent.stalled
    if each > STALLED_KB:
        raise Fault(f"a client that does not read costs {each:.0f} KB")
    return (
        f"{extent.stalled} clients that do not read, upstream sending all it can: {each:.0f} KB of the gateway's "
        f"memory each; a small request took {alone} before and {beside} meanwhile"
    )


@asynccontextmanager
async def not_reading(port: int, number: int) -> AsyncIterator[None]:
    """Clients whose requests pass through. (A turn keeps its text besides, up to --max-turn-bytes.)"""
    clients = []
    request = post(json.dumps(json.loads(bodies.stream()) | {"model": "flood"}, separators=(",", ":")).encode())
    for _ in range(number):
        clients.append(socket.create_connection(("127.0.0.1", port)))
        clients[-1].sendall(request)
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        for client in clients:
            client.close()


async def answer_times(server: Server) -> str:
    """p50 and p99 of small requests, one after another."""
    times = []
    for _ in range(200):
        [caller] = await connect(server.port, 1, lambda: Caller(post(bodies.small()), b"end_turn"))
        caller.stopped = True
        began = time.monotonic_ns()
        caller.start()
        async with asyncio.timeout(LATE_S):
            await caller.lost
        if caller.fault is not None:
            raise Fault(f"beside those that do not read: {caller.fault}")
        times.append(time.monotonic_ns() - began)
    return f"{percentile(times, 50) / 1e6:.1f} ms (p50) and {percentile(times, 99) / 1e6:.1f} ms (p99)"


async def go(extent: Extent, parts: tuple[str, ...]) -> None:
    print(
        f"messages-gateway {version('messages-gateway')}; Python {platform.python_version()}; {machine()}; "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    )
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        scratch = Path(folder)
        port = free_port()
        command = [sys.executable, "-m", "load.upstream", str(port)]
        env = peers.environment({"PYTHONPATH": str(peers.ROOT)})
        with running("upstream", command, port, log=scratch / "upstream.log", env=env):
            double = Double(port)
            if "streams" in parts:
                with gateway(double, scratch) as server:
                    print(await streams(server, double, extent), flush=True)
            if "stalled" in parts:
                with gateway(double, scratch) as server:
                    print(await stalled(server, extent), flush=True)
            if "turns" in parts:
                print(await turns(double, extent), flush=True)


def gateway(double: Double, scratch: Path) -> AbstractContextManager[Server]:
    """A gateway that was just started, so that nothing that came before is in its figures."""
    port = free_port()
    start = peers.messages_gateway().start(double.origin, port, scratch)
    env = peers.environment(start.env)
    return running("gateway", start.command, port, log=scratch / "gateway.log", env=env)


PARTS = ("streams", "stalled", "turns")


@click.command()
@click.option("--short", is_flag=True, help="A minute's worth, for continuous integration.")
@click.option("--streams", type=click.IntRange(1), help="Streams at once.")
@click.option("--seconds", type=click.FloatRange(5), help="How long they last.")
@click.option("--turns", type=click.IntRange(20), help="Turns one after another.")
@click.option("--stalled", type=click.IntRange(1), help="Clients that do not read.")
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS), default=PARTS, help="Only this; repeatable.")
def main(short: bool, parts: tuple[str, ...], **given: int | float | None) -> None:
    """Load the gateway, and fail where anything is lost, mixed up, or left behind."""
    chosen = {name: value for name, value in given.items() if value is not None}
    try:
        uvloop.run(go(replace(SHORT if short else Extent(), **chosen), parts))  # type: ignore[arg-type]
    except (Fault, StartFailed, TimeoutError) as error:
        raise click.ClickException(str(error) or type(error).__name__) from error


if __name__ == "__main__":
    main()
