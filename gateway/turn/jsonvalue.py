"""JSON as the core reads and writes it.

Strict (no NaN), integers of any size kept, object keys in their order. A lone surrogate, which UTF-8 cannot hold and
many a program writes as an escape where it cuts a text, is read as U+FFFD.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gateway.errors import InvalidRequest


class Unreadable(ValueError):
    """The bytes are not JSON that can be read here: malformed, not UTF-8, or nested too deep."""


def read(data: bytes | msgspec.Raw) -> Any:
    """The value that ``data`` holds. Raises :class:`Unreadable`."""
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise Unreadable(str(error)) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        whole = mended(bytes(data))
        if whole == data:
            raise Unreadable(str(error)) from error
        try:
            return msgspec.json.decode(whole)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise Unreadable(str(error)) from error


def mended(data: bytes) -> bytes:
    """``data`` with the escape of U+FFFD for that of each lone surrogate; of very many, only for the first."""
    return _SURROGATE.sub(lambda found: rb"\ufffd" if len(found[0]) == _LONE else found[0], data, count=_MENDED)


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


def write_fields(fields: Mapping[str, bytes], *, messages: Sequence[bytes] | None = None) -> bytes:
    """The JSON object with the members ``fields``, each value written as it is; with ``messages``, these as the list.

    Every byte is copied once.
    """
    pieces = [b"{"]
    for name, value in fields.items():
        pieces += [write(name), b":"]
        if name == "messages" and messages is not None:
            pieces.append(b"[")
            for message in messages:
                pieces += [message, b","]
            _end(pieces, b"]")
        else:
            pieces.append(value)
        pieces.append(b",")
    _end(pieces, b"}")
    return b"".join(pieces)


def _end(pieces: list[bytes], bracket: bytes) -> None:
    """Close a list or an object; no comma stays before its end."""
    if pieces[-1] == b",":
        pieces[-1] = bracket
    else:
        pieces.append(bracket)


_LONE = len(rb"\ud800")
_SURROGATE = re.compile(
    # What begins with a backslash of its own is no escape; a pair is one character.
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
_MENDED = 100_000
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
