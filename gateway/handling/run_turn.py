"""The IO shell of a turn: upstream, tools, and the client's answer; what a turn is lives in ``gateway.turn``.

When the client goes, the app cancels the task that is in here, and every ``finally`` lets go of what it holds: the
upstream connection, the tools, the pings.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter

from gateway.asgi import direct_of
from gateway.handling.answer import Answer, JsonAnswer, Refused, StreamAnswer, see_through
from gateway.handling.ask import EVENT_STREAM_TYPE, JSON_TYPE, asking_headers, expect_readable, read_leftover, with_type
from gateway.handling.exchange import Exchange, Services
from gateway.turn import Call, Out, Outcome, Rounds
from gateway.upstream import Response
from gateway.wire.headers import response_headers
from gateway.wire.sse import SSEReader


async def run_turn(rounds: Rounds, exchange: Exchange, services: Services) -> None:
    """Answer the whole HTTP request that the turn of these ``rounds`` was read from.

    Raises :class:`gateway.errors.RequestError` where nothing has been sent yet, for the app to answer.
    """
    answer: Answer = JsonAnswer(exchange)
    if rounds.turn.stream:
        answer = StreamAnswer(exchange, services.settings.ping_interval_s)
    exchange.record.model = rounds.turn.model
    await see_through(_Run(rounds, answer, exchange, services).drive(), answer, exchange, services.settings)


class _Run:
    """One turn on its way."""

    def __init__(self, rounds: Rounds, answer: Answer, exchange: Exchange, services: Services) -> None:
        self._rounds = rounds
        self._answer = answer
        self._exchange = exchange
        self._services = services
        self._settings = services.settings
        self._headers = asking_headers(exchange, services)
        self._unfolds = rounds.turn.stream and not rounds.streams
        """Whether the client's stream is made from JSON answers (rule 9's exception)."""

    async def drive(self) -> None:
        """All the rounds, and the calls between them."""
        turn = self._rounds.turn
        if self._unfolds:
            self._answer.hold()
        await self._run_calls(turn.late_calls())
        while not turn.over:
            response = await self._ask()
            try:
                await self._end_round()
                await read_leftover(response)
            finally:
                response.close()
        await self._answer.finish()

    async def _ask(self) -> Response:
        """Ask for the next round and read it to its end. However that goes, its time is upstream's."""
        body = self._rounds.request()
        record = self._exchange.record
        record.rounds += 1
        sent = perf_counter()
        try:
            response = await self._services.upstream.request("POST", self._rounds.target, self._headers, body)
            try:
                await self._read(response)
            except BaseException:
                response.close()
                raise
            return response
        finally:
            record.upstream_ms += (perf_counter() - sent) * 1000

    async def _read(self, response: Response) -> None:
        rounds = self._rounds
        if response.status != 200:
            await self._not_ok(response)
        expect_readable(response, stream=rounds.streams)
        if rounds.turn.rounds_ended == 0:
            await self._begin(response)
        await (self._read_stream(response) if rounds.streams else self._read_json(response))

    async def _begin(self, response: Response) -> None:
        headers = response_headers(response.headers)
        if self._unfolds:
            self._answer.hold(with_type(headers, EVENT_STREAM_TYPE))
        else:
            await self._answer.start(headers)

    async def _read_stream(self, response: Response) -> None:
        rounds, turn, send = self._rounds, self._rounds.turn, self._answer.send
        reader = SSEReader(self._settings.max_event_bytes)
        direct, passes = direct_of(self._exchange.scope), self._passes(reader)
        while not turn.round_done:
            chunk = await response.read_chunk()
            if not chunk:
                break
            out: Out = []
            try:
                rounds.read_frames(reader.feed(chunk), out)
            finally:
                if out:  # what came before an event that cannot be used is not lost
                    await send(out)
            if direct is not None and response.sink is None:  # not before: the head goes with the first events
                response.sink = direct.sink(passes)

    def _passes(self, reader: SSEReader) -> Callable[[bytes], bool]:
        """What takes a piece that is one event and needs no change, and says whether it was that."""
        stands_alone, passes, wrote = reader.stands_alone, self._rounds.passes, self._answer.wrote

        def takes(chunk: bytes) -> bool:
            if not (stands_alone(chunk) and passes(chunk)):
                return False
            wrote()
            return True

        return takes

    async def _read_json(self, response: Response) -> None:
        out: Out = []
        for event in self._rounds.read_whole(await response.read(self._settings.max_turn_bytes)):
            self._rounds.turn.feed(event, None, out)
        await self._answer.send(out)

    async def _end_round(self) -> None:
        rounds, turn, record = self._rounds, self._rounds.turn, self._exchange.record
        out: Out = []
        calls = rounds.end(out)
        record.count(turn.usage())
        if out:
            await self._answer.send(out)
        await self._run_calls(calls)
        if turn.over:
            out = []
            rounds.finish(out)
            await self._answer.send(out)

    async def _run_calls(self, calls: list[Call]) -> None:
        """Run calls side by side; each outcome is presented once none before it is missing."""
        tasks = [asyncio.ensure_future(self._run_call(call)) for call in calls]
        try:
            for call, task in zip(calls, tasks, strict=True):
                outcome = await task
                out: Out = []
                self._rounds.turn.answer(call, outcome, out)
                if out:
                    await self._answer.send(out)
        finally:
            for task in tasks:
                task.cancel()

    async def _run_call(self, call: Call) -> Outcome:
        if call.settled is not None:
            return call.settled
        self._exchange.record.tools.append(call.kind)
        outcome = await self._services.runners[call.kind].run(call.job)
        self._services.metrics.tool_call(call.kind, outcome.error)
        return outcome

    async def _not_ok(self, response: Response) -> None:
        """The first round's answer passes; a later one's ends the turn."""
        self._answer.close()  # no ping, late as it may be, takes the status away
        self._exchange.record.status = response.status
        headers = response_headers(response.headers)
        body = await response.read(self._settings.max_turn_bytes)
        told = self._rounds.refusal(response.status, body)
        raise Refused(response.status, headers if told is body else with_type(headers, JSON_TYPE), told)
