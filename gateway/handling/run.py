"""The IO shell of an answer that the gateway makes itself: upstream, tools, and the client's answer.

One loop, whatever the rounds are (:class:`gateway.turn.Rounds`): a turn's, or the one of a token request. What a turn
is lives in ``gateway.turn``. When the client goes, the app cancels the task that is in here, and every ``finally`` lets
go of what it holds: the upstream connection, the tools, the pings.
"""

import asyncio
from time import perf_counter

from gateway.books.observer import CallBegun, CallEnded
from gateway.errors import Refused
from gateway.handling.answer import ClientAnswer, JsonAnswer, StreamAnswer, pass_events, see_through
from gateway.handling.ask import (
    EVENT_STREAM_TYPE,
    JSON_TYPE,
    ask,
    asking_headers,
    expect_readable,
    read_leftover,
    with_type,
)
from gateway.handling.exchange import Exchange, Services
from gateway.handling.memory import Share
from gateway.tools.slots import calling_for
from gateway.turn import Call, Out, Outcome, Rounds
from gateway.upstream import Response
from gateway.wire.headers import header, response_headers


async def run(rounds: Rounds, exchange: Exchange, services: Services) -> None:
    """Answer the whole HTTP request that these ``rounds`` were read from.

    Raises :class:`gateway.errors.RequestError` where nothing has been sent yet, for the app to answer.
    """
    answer: ClientAnswer = JsonAnswer(exchange)
    if rounds.stream:
        answer = StreamAnswer(exchange, services.settings.ping_interval_s, services.settings.early_head_s)
    exchange.record.names(rounds.model)
    await see_through(_Run(rounds, answer, exchange, services).drive(), answer, exchange, services.settings)


class _Run:
    """One answer on its way."""

    def __init__(self, rounds: Rounds, answer: ClientAnswer, exchange: Exchange, services: Services) -> None:
        self._rounds = rounds
        self._answer = answer
        self._exchange = exchange
        self._services = services
        self._settings = services.settings
        self._headers = asking_headers(exchange, services)
        self._unfolds = rounds.stream and not rounds.streams
        """Whether the client's stream is made from JSON answers (rule 9's exception)."""

    async def drive(self) -> None:
        """All the rounds, and the calls between them."""
        rounds = self._rounds
        if self._unfolds or (rounds.stream and self._settings.early_head_s is not None):
            self._answer.hold()
        calling_for(self)
        with Share(self._services.memory, rounds.held) as share:
            await self._run_late_calls()
            await self._run_rounds(share)
        await self._answer.finish(rounds.message())

    async def _run_rounds(self, share: Share) -> None:
        rounds = self._rounds
        first = True
        while not rounds.over:
            body = rounds.request()
            share.holds(rounds.held)
            async with ask(self._exchange, self._services, "POST", rounds.target, self._headers, body) as asked:
                if not await self._read(asked, first=first):
                    continue
                await self._end_round(asked)
                await read_leftover(asked.response)
            first = False

    async def _read(self, asked: ask, *, first: bool) -> bool:
        """Whether the round has been read: False where it is to be asked for in another way."""
        rounds, response = self._rounds, asked.response
        if first:
            self._exchange.record.is_called(header(response.headers, b"request-id"))
        if response.status != 200:
            await self._not_ok(response)
            return False
        expect_readable(response, stream=rounds.streams)
        if first:
            await self._begin(response)
        if rounds.streams:
            await pass_events(asked, self._answer, rounds.read, self._settings.max_event_bytes)
        else:
            await self._read_json(asked)
        return True

    async def _begin(self, response: Response) -> None:
        headers = response_headers(response.headers)
        if self._unfolds:
            self._answer.hold(with_type(headers, EVENT_STREAM_TYPE))
        elif self._rounds.head_waits:
            self._answer.hold(headers)
        else:
            await self._answer.start(headers)

    async def _read_json(self, asked: ask) -> None:
        out: Out = []
        body = await asked.response.read(self._settings.max_turn_bytes)
        asked.piece()
        self._rounds.read_whole(body, out)
        await self._answer.send(out)

    async def _end_round(self, asked: ask) -> None:
        rounds = self._rounds
        out: Out = []
        calls = rounds.end(out)
        asked.whole(rounds.answer())
        self._exchange.record.counts(rounds.usage())
        if out:
            await self._answer.send(out)
        await self._run_calls(calls)
        if rounds.over:
            out = []
            rounds.finish(out)
            if out:
                await self._answer.send(out)

    async def _run_late_calls(self) -> None:
        """Run what the history left to be run, for a client that upstream would answer: no round has shown that yet."""
        calls = self._rounds.late_calls()
        if calls:
            refusal = await self._services.upstream.refusal(self._exchange.scope["headers"])
            if refusal is not None:
                raise Refused(refusal.status, response_headers(refusal.headers), refusal.body)
        await self._run_calls(calls)

    async def _run_calls(self, calls: list[Call]) -> None:
        """Run calls side by side; each outcome is presented once none before it is missing."""
        running = [(place, call) for place, call in enumerate(calls) if call.settled is None]
        tasks = {place: asyncio.ensure_future(self._run_call(call)) for place, call in running}
        out: Out = []
        try:
            for place, call in enumerate(calls):
                if place in tasks and out:
                    await self._answer.send(out)
                    out = []
                self._rounds.take(call, await tasks[place] if place in tasks else call.settled, out)
            if out:
                await self._answer.send(out)
        finally:
            for task in tasks.values():
                task.cancel()

    async def _run_call(self, call: Call) -> Outcome:
        record, observers = self._exchange.record, self._services.observers
        record.runs(call.kind)
        begun = CallBegun(call.kind, call.tool.name, call.upstream_id, call.call_id, call.job)
        for begins in observers.call_began:
            begins(record, begun)
        began_at = perf_counter()
        outcome: Outcome | None = None
        try:
            outcome = await self._services.runners[call.kind].run(call.job)
            return outcome
        finally:
            ended = CallEnded(begun, (perf_counter() - began_at) * 1000, outcome)
            for ends in observers.call_ended:
                ends(record, ended)

    async def _not_ok(self, response: Response) -> None:
        """The first round's answer passes; a later one's ends the turn. Returns where the rounds ask otherwise."""
        rounds = self._rounds
        if not rounds.can_ask_otherwise:
            self._answer.close()  # no ping, late as it may be, takes the status away
        body = await response.read(self._settings.max_turn_bytes)
        if rounds.asks_otherwise(response.status, body):
            return
        self._answer.close()
        headers = [field for field in response_headers(response.headers) if field[0] != b"request-id"]  # the first's
        told = rounds.refusal(response.status, body)
        raise Refused(response.status, headers if told is body else with_type(headers, JSON_TYPE), told)
