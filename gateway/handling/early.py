"""A stream of messages that begins before upstream does: its 200 and a ping, when upstream has been silent for long.

The status is then gone. Whatever fails is an ``error`` event, with Anthropic's type for the status that it would have
had, and upstream's words.
"""

from typing import Any

import msgspec

from gateway.errors import Refused, UpstreamError
from gateway.handling.answer import StreamAnswer
from gateway.handling.ask import ask, asking_headers, expect_readable
from gateway.handling.exchange import Exchange, Services
from gateway.handling.pings import silence_of
from gateway.handling.proxy import Passing, give_on, relay
from gateway.handling.refuse import noting
from gateway.wire.rewrite import NameInStream


async def proxy_early(exchange: Exchange, services: Services) -> None:
    """Answer a request for a stream with what upstream answers; before it does, if that takes long.

    Raises :class:`gateway.errors.UpstreamError` while no byte has gone to the client.
    """
    record, settings = exchange.record, services.settings
    record.passes(exchange.body)
    exchange.send = noting(record, exchange.send)
    answer = StreamAnswer(exchange, settings.ping_interval_s, settings.early_head_s)
    answer.hold()
    headers = asking_headers(exchange, services, identity=True)  # no coding could be named any more
    passing = Passing()
    try:
        async with ask(exchange, services, "POST", exchange.target, headers, exchange.body) as asked:
            response = asked.response
            if not answer.started:
                answer.close()
                await give_on(exchange, services, asked)
            elif response.status != 200:
                refused = Refused(response.status, [], await response.read(settings.max_turn_bytes))
                record.fails(refused)
                await answer.refuse(refused)
            else:
                expect_readable(response, stream=True)
                answer.close()
                if exchange.client_model is not None:
                    passing.naming = NameInStream(exchange.client_model)
                await relay(exchange, asked, passing, silence_of(response, [_EVENT_STREAM], services))
    except UpstreamError as error:
        if not answer.started:
            raise
        record.fails(error)
        if passing.is_between_events():  # else it is left unfinished, and the client can tell
            await answer.fail(error)
    finally:
        answer.close()


def wants_stream(body: bytes) -> bool:
    """Whether a Messages body asks for a stream."""
    try:
        return _PROBE.decode(body).stream is True
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


class _Probe(msgspec.Struct):
    stream: Any = None


_PROBE = msgspec.json.Decoder(_Probe)
_EVENT_STREAM = (b"content-type", b"text/event-stream")
