"""Usage counters: the last value of each within a round, summed over the rounds of a turn.

Rule 8. A counter is an integer, at the top or inside an object; everything else (a tier's name, null)
is the last round's. Some counters say how full the context is: of those the sum is no size of anything.
"""

from typing import Any

Usage = dict[str, Any]

ITERATION_COUNTERS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")

CONTEXT_COUNTERS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation")
"""What a client adds up to the size of its context."""


def with_both_counters(usage: Usage) -> Usage:
    """``usage`` with the two counters that every client reads; one that upstream did not give is 0."""
    missing = {name: 0 for name in ("input_tokens", "output_tokens") if usage.get(name) is None}
    return {**usage, **missing}


def latest(seen: Usage, new: Usage) -> None:
    """Take into ``seen`` the values of one more ``usage`` object of the same round; null never hides a value."""
    for name, value in new.items():
        old = seen.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            latest(old, value)
        elif value is not None or name not in seen:
            seen[name] = dict(value) if isinstance(value, dict) else value


def summed(rounds: list[Usage]) -> Usage:
    """The turn's usage: integers added up, other values the last round's that has them."""
    total: Usage = {}
    for usage in rounds:
        for name, value in usage.items():
            old = total.get(name)
            if isinstance(value, dict):
                total[name] = summed([old, value]) if isinstance(old, dict) else summed([value])
            elif _counts(value):
                total[name] = value + old if _counts(old) else value
            elif not (value is None and old is not None):
                total[name] = value
    return total


def with_last_context(total: Usage, rounds: list[Usage]) -> Usage:
    """``total`` with the context as the last round that counted its input had it; what that one left out is 0."""
    last = next((usage for usage in reversed(rounds) if _counts(usage.get("input_tokens"))), None)
    if last is None:
        return total
    context = {name: last[name] if name in last else _zero(total[name]) for name in CONTEXT_COUNTERS if name in total}
    return {**total, **context}


def _zero(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _zero(one) for name, one in value.items()}
    return 0 if _counts(value) else value


def iteration(usage: Usage) -> Usage:
    """One round's entry of ``usage.iterations``: all four counters, 0 where the round gave none."""
    entry: Usage = {"type": "message"}
    for name in ITERATION_COUNTERS:
        value = usage.get(name)
        entry[name] = value if _counts(value) else 0
    return entry


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
