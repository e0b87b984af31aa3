"""JSON as the core reads and writes it.

Strict (no NaN, no lone surrogate), integers of any size kept, object keys in their order.
"""

from typing import Any

import msgspec

from gateway.errors import InvalidRequest


class Unreadable(ValueError):
    """The bytes are not JSON that can be read here: malformed, not UTF-8, or nested too deep."""


def read(data: bytes | msgspec.Raw) -> Any:
    """The value that ``data`` holds. Raises :class:`Unreadable`."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def write(value: Any) -> bytes:
    """``value`` as compact UTF-8 JSON.

    Raises :class:`InvalidRequest` where it is nested too deep: what could just be read is deeper once it is in a body.
    """
    try:
        return msgspec.json.encode(value)
    except RecursionError:
        raise InvalidRequest("a value is nested too deep to be sent on") from None


def read_fields(body: bytes) -> dict[str, bytes] | None:
    """The top level of a JSON object, each value as its own bytes, in order; None where ``body`` is no such thing.

    Of a key that stands twice the last value counts, as for every JSON reader upstream is likely to use.
    """
    try:
        body.decode("utf-8")  # values that are only sliced are not checked by the decoder
        fields = _FIELDS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return {name: bytes(value) for name, value in fields.items()}


def write_fields(fields: dict[str, bytes]) -> bytes:
    """The JSON object with these members, each value written as it is."""
    return b"{" + b",".join(write(name) + b":" + value for name, value in fields.items()) + b"}"


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
