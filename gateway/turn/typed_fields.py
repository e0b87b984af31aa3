"""The fields that several of Anthropic's typed tools have, read where a request declares one."""

from typing import NamedTuple

from gateway.errors import InvalidRequest
from gateway.turn.kind import Declaration


class Domains(NamedTuple):
    """What a typed tool may reach: ``allowed`` alone, or all but ``blocked``; empty lists restrict nothing."""

    allowed: tuple[str, ...]
    blocked: tuple[str, ...]


NO_DOMAINS = Domains((), ())


def read_max_uses(declaration: Declaration) -> int | None:
    """``max_uses``: an integer of at least 1, None for no bound. Raises :class:`InvalidRequest`."""
    value = declaration.entry.get("max_uses")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InvalidRequest(f"{declaration.path}.max_uses: must be an integer of at least 1")
    return value


def read_domains(declaration: Declaration) -> Domains:
    """``allowed_domains`` or ``blocked_domains``, not both. Raises :class:`InvalidRequest`."""
    allowed = _domain_list(declaration, "allowed_domains")
    blocked = _domain_list(declaration, "blocked_domains")
    if allowed and blocked:
        raise InvalidRequest(f"{declaration.path}: allowed_domains and blocked_domains cannot both be set")
    return Domains(allowed, blocked)


def are_domains(value: object) -> bool:
    """Whether ``value`` is a list of domains, each a non-empty string."""
    return isinstance(value, list) and all(isinstance(domain, str) and domain.strip() for domain in value)


def _domain_list(declaration: Declaration, name: str) -> tuple[str, ...]:
    value = declaration.entry.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not are_domains(value):
        raise InvalidRequest(f"{declaration.path}.{name}: must be a list of domains, each a non-empty string")
    return tuple(value)
