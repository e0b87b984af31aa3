"""``/v1/messages`` and ``count_tokens``: which of the ways a request takes, and what is changed of it before."""

from gateway.books.record import model_of
from gateway.errors import InvalidRequest
from gateway.handling.ask import JSON_TYPE
from gateway.handling.classify import TokenRequest, classify
from gateway.handling.exchange import Exchange, Services
from gateway.handling.proxy import proxy
from gateway.handling.refuse import noting
from gateway.handling.run import run
from gateway.tokens import Dialect
from gateway.turn import MessagesRounds, Mode, Rounds, TokenRound, TokenRounds, Turn, look, translate_body
from gateway.wire.headers import header


async def messages(exchange: Exchange, services: Services) -> None:
    """Answer by a turn, with tokens, by both, or by what upstream answers."""
    if not _is_read(exchange, services):
        await proxy(exchange, services)
        return
    await _apply_rules(exchange, services)
    rules = services.rules
    holds = look(exchange.body, rules.kinds, rules.aliases)
    mode = await _mode(exchange, services) if holds.deferred else "expand"
    turn, tokens = classify(exchange.body, rules, exchange.client_model, holds, mode)
    if turn is None and holds.deferred:
        exchange.body = translate_body(exchange.body, holds, rules, mode) or exchange.body
    if turn is not None:
        await _turn(exchange, services, turn, tokens)
    elif tokens is not None:
        await _tokens(exchange, services, tokens)
    else:
        await proxy(exchange, services)


async def count_tokens(exchange: Exchange, services: Services) -> None:
    """Pass a count on, of what upstream would be asked."""
    if _is_read(exchange, services):
        await _apply_rules(exchange, services)
        rules = services.rules
        holds = look(exchange.body, rules.kinds, rules.aliases)
        mode = await _mode(exchange, services) if holds.deferred else "expand"
        exchange.body = translate_body(exchange.body, holds, rules, mode) or exchange.body
    await proxy(exchange, services)


def _is_read(exchange: Exchange, services: Services) -> bool:
    """Whether the body is looked into: it must be declared as JSON, which no page can do without a preflight.

    Raises :class:`InvalidRequest` where one that is not would go around the model map or the token cap.
    """
    declared = header(exchange.scope["headers"], b"content-type") or b""
    if declared == JSON_TYPE or declared.partition(b";")[0].strip().lower() == JSON_TYPE:
        return True
    if services.model_rules.in_force:
        raise InvalidRequest("content-type: must be application/json: a model map or a token cap is in force here")
    return False


async def _apply_rules(exchange: Exchange, services: Services) -> None:
    if services.model_rules.in_force:
        client = exchange.scope["headers"]
        exchange.body, exchange.client_model = await services.model_rules.apply(exchange.body, client)


async def _mode(exchange: Exchange, services: Services) -> Mode:
    """What upstream is given of deferred tools."""
    return await services.upstream.deferred_mode(model_of(exchange.body), exchange.scope["headers"])


async def _turn(exchange: Exchange, services: Services, turn: Turn, tokens: TokenRequest | None) -> None:
    _note(exchange)
    with services.turnstile:
        exchange.record.is_turn()
        rounds: Rounds = MessagesRounds(turn, exchange.target)
        if tokens is not None:
            rounds = TokenRounds(turn, tokens.fields, await _dialect(exchange, services), exchange.target)
        await run(rounds, exchange, services)


async def _tokens(exchange: Exchange, services: Services, tokens: TokenRequest) -> None:
    if await _dialect(exchange, services) == "lmdeploy":
        await proxy(exchange, services)  # it speaks the fields itself
        return
    _note(exchange)
    with services.turnstile:
        round_ = TokenRound(
            tokens.fields,
            tokens.body,
            stream=tokens.stream,
            model=exchange.record.model,
            renamed=exchange.client_model,
            max_bytes=services.settings.max_turn_bytes,
        )
        await run(round_, exchange, services)


async def _dialect(exchange: Exchange, services: Services) -> Dialect:
    return await services.upstream.dialect(exchange.scope["headers"])


def _note(exchange: Exchange) -> None:
    """For the record: an answer that the gateway makes itself."""
    record = exchange.record
    record.names(exchange.client_model or model_of(exchange.body))
    exchange.send = noting(record, exchange.send)
