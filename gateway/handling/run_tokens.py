"""The IO shell of a token request that is no turn, on vLLM: from the endpoint that has the tokens to a message.

As in ``gateway.handling.run_turn``, the app cancels the task in here when the client goes.
"""

from time import perf_counter

from gateway.errors import UpstreamBroken
from gateway.handling.answer import JsonAnswer, Refused, StreamAnswer, see_through
from gateway.handling.ask import (
    EVENT_STREAM_TYPE,
    JSON_TYPE,
    asking_headers,
    expect_readable,
    read_leftover,
    with_type,
)
from gateway.handling.classify import TokenRequest
from gateway.handling.exchange import Exchange, Services
from gateway.tokens import chunk_error, message_events, translate_round
from gateway.turn import Event, Out, jsonvalue, read_answer, read_event
from gateway.turn.lifecycle import stream_error
from gateway.turn.rounds import DONE, refusal
from gateway.upstream import Response
from gateway.wire.headers import Headers, response_headers
from gateway.wire.sse import Frame, SSEReader


async def run_token_request(request: TokenRequest, exchange: Exchange, services: Services) -> None:
    """Answer the whole HTTP request.

    Raises :class:`gateway.errors.RequestError` where nothing has been sent yet, for the app to answer.
    """
    run = _Run(request, exchange, services)
    if request.stream:
        stream = StreamAnswer(exchange, services.settings.ping_interval_s)
        await see_through(run.as_stream(stream), stream, exchange, services.settings)
    else:
        whole = JsonAnswer(exchange)
        await see_through(run.as_json(whole), whole, exchange, services.settings)


class _Run:
    """One request on its way."""

    def __init__(self, request: TokenRequest, exchange: Exchange, services: Services) -> None:
        self._translator = translate_round(request.fields, "vllm", stream=request.stream)
        self._body = jsonvalue.write(self._translator.request(request.body))
        self._exchange = exchange
        self._services = services
        self._settings = services.settings
        self._over = False

    async def as_json(self, answer: JsonAnswer) -> None:
        """One JSON message."""
        headers, message = await self._message(answer)
        answer.hold(headers)
        await answer.give(message)

    async def as_stream(self, answer: StreamAnswer) -> None:
        """Events; where upstream has none, those of its JSON answer, with pings until it comes (rule 9)."""
        if self._translator.streams:
            await self._events(answer)
        else:
            answer.hold()
            headers, message = await self._message(answer)
            answer.hold(with_type(headers, EVENT_STREAM_TYPE))
            await answer.send([*message_events(message)])
        await answer.finish()

    async def _message(self, answer: JsonAnswer | StreamAnswer) -> tuple[Headers, Event]:
        started = perf_counter()
        response = await self._ask(answer)
        try:
            message = self._translator.message(read_answer(await response.read(self._settings.max_turn_bytes)))
        finally:
            response.close()
            self._exchange.record.upstream_ms = (perf_counter() - started) * 1000
        self._name(message)
        self._note(message)
        return response_headers(response.headers), message

    async def _events(self, answer: StreamAnswer) -> None:
        """Upstream's stream. It says 200 before it has looked at the whole request: the head waits for an event."""
        started = perf_counter()
        response = await self._ask(answer)
        try:
            answer.hold(response_headers(response.headers))
            reader = SSEReader(self._settings.max_event_bytes)
            while not self._over and (chunk := await response.read_chunk()):
                if self._translator.tokens.size > self._settings.max_turn_bytes:
                    raise UpstreamBroken(f"The answer has grown over {self._settings.max_turn_bytes} bytes.")
                out: Out = []
                try:
                    for frame in reader.feed(chunk):
                        self._read(frame, answer, out)
                finally:
                    if out:  # what came before an event that cannot be used is not lost
                        await answer.send(out)
            self._translator.end()
            await read_leftover(response)
        finally:
            response.close()
            self._exchange.record.upstream_ms = (perf_counter() - started) * 1000

    def _read(self, frame: Frame, answer: StreamAnswer, out: Out) -> None:
        if frame.data == DONE:
            out += self._translator.end()
            return
        chunk = read_event(frame.data)
        failed = chunk_error(chunk)
        if failed is not None and not answer.started and not out:
            status, body = failed
            raise Refused(status, [(b"content-type", JSON_TYPE)], jsonvalue.write(body))
        for event in self._translator.events(chunk):
            match event["type"]:
                case "error":
                    raise stream_error(event)
                case "message_start":
                    self._name(event["message"])
                case "message_delta":
                    self._note(event)
                case "message_stop":
                    self._over = True
            out.append(event)

    async def _ask(self, answer: JsonAnswer | StreamAnswer) -> Response:
        services = self._services
        self._exchange.record.rounds = 1
        headers = asking_headers(self._exchange, services)
        response = await services.upstream.request("POST", self._translator.path, headers, self._body)
        try:
            if response.status != 200:
                answer.close()  # no ping, late as it may be, takes the status away
                said = await response.read(self._settings.max_turn_bytes)
                body = refusal(self._translator, response.status, said)
                raise Refused(response.status, with_type(response_headers(response.headers), JSON_TYPE), body)
            expect_readable(response, stream=self._translator.streams)
        except BaseException:
            response.close()
            raise
        return response

    def _note(self, holder: Event) -> None:
        """Write down the usage of a message, or of its end."""
        self._exchange.record.count(holder["usage"])

    def _name(self, message: Event) -> None:
        """Name the model as the client did, where a model map changed the name."""
        if self._exchange.client_model is not None:
            message["model"] = self._exchange.client_model
