"""The fallthrough: bytes in, bytes out. Nothing is held back, nothing added, error bodies pass as they are."""

import re
from time import perf_counter
from typing import Final

import msgspec

from gateway.errors import UpstreamBroken, UpstreamError
from gateway.exchange import Exchange, Services
from gateway.observe import outcome_of
from gateway.rewrite import NameInStream, name_in_message
from gateway.upstream import Response
from gateway.wire.headers import Headers, header, response_headers, upstream_headers

_TAIL_BYTES: Final = 2048
_BODILESS: Final = frozenset({204, 205, 304})
_NUMBER = re.compile(rb"\s*:\s*(\d{1,15})")
_NAME = re.compile(rb'\s*:\s*"([^"\\]{1,200})"')


class _Probe(msgspec.Struct):
    model: str = ""


_PROBE = msgspec.json.Decoder(_Probe)


async def proxy(exchange: Exchange, services: Services) -> None:
    """Answer an exchange with what upstream answers.

    Raises :class:`gateway.errors.UpstreamError` while no byte has gone to the client. Once one has, an upstream that
    fails leaves the answer unfinished and the record's outcome ``cut``: the server then breaks the client's connection,
    so that the client can tell.
    """
    record = exchange.record
    settings = services.settings
    key = settings.upstream_api_key
    headers = upstream_headers(
        exchange.scope["headers"],
        upstream_api_key=key.get_secret_value() if key else None,
        gateway_keys=bool(settings.api_keys),
        identity=exchange.client_model is not None,
    )
    record.rounds = 1
    started = perf_counter()
    try:
        response = await services.upstream.request(exchange.scope["method"], exchange.target, headers, exchange.body)
        try:
            if not 200 <= response.status <= 599:
                raise UpstreamBroken(f"upstream answered with status {response.status}, which HTTP does not have")
            await _pass_on(exchange, response)
        finally:
            response.close()
    finally:
        record.upstream_ms = (perf_counter() - started) * 1000


async def _pass_on(exchange: Exchange, response: Response) -> None:
    headers = response_headers(response.headers)
    name = exchange.client_model
    if name is None or header(headers, b"content-encoding") not in (None, b"identity"):
        await _stream(exchange, response, headers, None)
    elif (header(headers, b"content-type") or b"").startswith(b"text/event-stream"):
        await _stream(exchange, response, _without_length(headers), NameInStream(name))
    else:
        # Upstream sends a JSON answer when all of it is there, so that waiting for its end costs no time.
        body = name_in_message(await response.read(), name)
        await _send_head(exchange, response.status, [*_without_length(headers), (b"content-length", b"%d" % len(body))])
        await exchange.send({"type": "http.response.body", "body": body})
        _read_figures(exchange, body[:_TAIL_BYTES], body[-_TAIL_BYTES:])


async def _stream(exchange: Exchange, response: Response, headers: Headers, naming: NameInStream | None) -> None:
    if response.status in _BODILESS:
        headers = _without_length(headers)  # of the body there would have been: the server takes it at its word
    await _send_head(exchange, response.status, headers)
    send = exchange.send
    first = earlier = before = last = b""
    more = True
    try:
        while more:
            chunk = await response.read_chunk()
            more = not response.ended
            if not first:
                first = chunk
            if chunk:
                earlier, before, last = before, last, chunk
            if naming is not None:
                chunk = naming.feed(chunk) if more else naming.feed(chunk) + naming.flush()
            if chunk or not more:
                await send({"type": "http.response.body", "body": chunk, "more_body": more})
    except UpstreamError:
        exchange.record.outcome = "cut"
    tail = b"".join((earlier[-_TAIL_BYTES:], before[-_TAIL_BYTES:], last[-_TAIL_BYTES:]))
    _read_figures(exchange, first[:_TAIL_BYTES], tail[-_TAIL_BYTES:])


async def _send_head(exchange: Exchange, status: int, headers: Headers) -> None:
    exchange.record.answered = True
    exchange.record.status = status
    exchange.record.outcome = outcome_of(status)
    await exchange.send({"type": "http.response.start", "status": status, "headers": headers})


def _without_length(headers: Headers) -> Headers:
    return [field for field in headers if field[0] != b"content-length"]


def _read_figures(exchange: Exchange, beginning: bytes, end: bytes) -> None:
    """For the log line: what the first and last bytes of an answer say of model and tokens, without parsing it.

    A quote inside a JSON string is escaped, so that a generated text cannot be taken for a member.
    """
    record = exchange.record
    record.input_tokens = _count(end, b'"input_tokens"', b'"prompt_tokens"')
    record.output_tokens = _count(end, b'"output_tokens"', b'"completion_tokens"')
    if record.outcome == "ok" and (end.startswith(b"event: error\n") or b"\nevent: error\n" in end):
        record.outcome = "upstream_error"
    if not record.model:
        at = beginning.find(b'"model"')
        found = _NAME.match(beginning, at + len(b'"model"')) if at >= 0 else None
        record.model = found[1].decode("utf-8", "replace") if found else asked_for(exchange.body)


def _count(end: bytes, *names: bytes) -> int | None:
    for name in names:
        at = end.rfind(name)
        found = _NUMBER.match(end, at + len(name)) if at >= 0 else None
        if found:
            return int(found[1])
    return None


def asked_for(body: bytes) -> str:
    """The model that a Messages body names, empty if none."""
    try:
        return _PROBE.decode(body).model
    except (msgspec.DecodeError, RecursionError):
        return ""
