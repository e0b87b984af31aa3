"""``/v1/messages`` and ``count_tokens``: which of the ways a request takes, and what is changed of it before."""

from gateway.aside import LARGE, aside
from gateway.books.record import model_of
from gateway.errors import InvalidRequest
from gateway.handling.ask import JSON_TYPE
from gateway.handling.classify import TokenRequest, classify
from gateway.handling.early import proxy_early, wants_stream
from gateway.handling.exchange import Exchange, Services
from gateway.handling.proxy import proxy
from gateway.handling.refuse import noting
from gateway.handling.run import run
from gateway.tokens import Dialect
from gateway.turn import Holds, MessagesRounds, Mode, Rounds, TokenRound, TokenRounds, Turn, look, translate_body
from gateway.wire.headers import header
from gateway.wire.weight import is_heavy


async def messages(exchange: Exchange, services: Services) -> None:
    """Answer by a turn, with tokens, by both, or by what upstream answers."""
    if not _is_read(exchange, services):
        await proxy(exchange, services)
        return
    large = await _is_large(exchange)
    await _apply_rules(exchange, services)
    body, rules = exchange.body, services.rules
    holds = await aside(look, body, rules.kinds, rules.aliases) if large else look(body, rules.kinds, rules.aliases)
    exchange.record.names(exchange.client_model or holds.model)
    mode = await _mode(exchange, services) if holds.deferred else "expand"
    if large:
        turn, tokens = await aside(classify, body, rules, exchange.client_model, holds, mode)
    else:
        turn, tokens = classify(body, rules, exchange.client_model, holds, mode)
    if turn is None and holds.deferred:
        await _translate(exchange, services, holds, mode, large=large)
    del body  # a turn holds all that it needs of it
    if turn is not None:
        await _turn(exchange, services, turn, tokens)
    elif tokens is not None:
        await _tokens(exchange, services, tokens)
    else:
        await _proxy(exchange, services)


async def count_tokens(exchange: Exchange, services: Services) -> None:
    """Pass a count on, of what upstream would be asked."""
    if _is_read(exchange, services):
        large = await _is_large(exchange)
        await _apply_rules(exchange, services)
        body, rules = exchange.body, services.rules
        holds = await aside(look, body, rules.kinds, rules.aliases) if large else look(body, rules.kinds, rules.aliases)
        exchange.record.names(exchange.client_model or holds.model)
        mode = await _mode(exchange, services) if holds.deferred else "expand"
        await _translate(exchange, services, holds, mode, large=large)
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


async def _is_large(exchange: Exchange) -> bool:
    """Whether the body is to be worked on aside. Raises :class:`InvalidRequest` for one that is too much work."""
    if len(exchange.body) <= LARGE:
        return False
    if await aside(is_heavy, exchange.body):
        raise InvalidRequest("the request is made of too many small values")
    return True


async def _translate(exchange: Exchange, services: Services, holds: Holds, mode: Mode, *, large: bool) -> None:
    """Make the body one that upstream can read, where there is no turn to be made of it."""
    body, rules = exchange.body, services.rules
    translated = (
        await aside(translate_body, body, holds, rules, mode) if large else translate_body(body, holds, rules, mode)
    )
    exchange.body = translated or body


async def _apply_rules(exchange: Exchange, services: Services) -> None:
    if services.model_rules.in_force:
        client = exchange.scope["headers"]
        exchange.body, exchange.client_model = await services.model_rules.apply(exchange.body, client)


async def _mode(exchange: Exchange, services: Services) -> Mode:
    """What upstream is given of deferred tools."""
    return await services.upstream.deferred_mode(model_of(exchange.body), exchange.scope["headers"])


async def _turn(exchange: Exchange, services: Services, turn: Turn, tokens: TokenRequest | None) -> None:
    _note(exchange)
    exchange.body = b""  # the turn has all of it
    with services.turnstile:
        exchange.record.is_turn()
        rounds: Rounds = MessagesRounds(turn, exchange.target)
        if tokens is not None:
            rounds = TokenRounds(turn, tokens.fields, await _dialect(exchange, services), exchange.target)
        await run(rounds, exchange, services)


async def _tokens(exchange: Exchange, services: Services, tokens: TokenRequest) -> None:
    if await _dialect(exchange, services) == "lmdeploy":
        await _proxy(exchange, services)  # it speaks the fields itself
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


async def _proxy(exchange: Exchange, services: Services) -> None:
    early = services.settings.early_head_s is not None and wants_stream(exchange.body)
    await (proxy_early if early else proxy)(exchange, services)


async def _dialect(exchange: Exchange, services: Services) -> Dialect:
    return await services.upstream.dialect(exchange.scope["headers"])


def _note(exchange: Exchange) -> None:
    """For the record: an answer that the gateway makes itself."""
    exchange.send = noting(exchange.record, exchange.send)
