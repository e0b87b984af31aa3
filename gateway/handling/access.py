"""Who may ask, and for which paths."""

import hmac
from collections.abc import Sequence
from urllib.parse import unquote

from pydantic import SecretStr

from gateway.errors import AuthenticationFailed
from gateway.wire.headers import Headers

_DECODINGS = 8
"""No path is encoded more often in earnest, and each decoding of a long one takes time."""


class Keys:
    """The gateway's keys; without any, everybody may ask."""

    def __init__(self, keys: Sequence[SecretStr]) -> None:
        self._keys = tuple(key.get_secret_value().encode() for key in keys)

    def check(self, headers: Headers) -> None:
        """Raises :class:`AuthenticationFailed` where ``x-api-key`` or ``Authorization: Bearer`` holds none of them."""
        if not self._keys:
            return
        given = [value for name, value in headers if name == b"x-api-key"]
        for name, value in headers:
            if name == b"authorization" and value[:7].lower() == b"bearer ":
                given.append(value[7:].strip())
        # Every pair is compared, so that the time tells nothing.
        if not sum(hmac.compare_digest(key, value) for key in self._keys for value in given):
            raise AuthenticationFailed("x-api-key or Authorization: Bearer must hold one of this gateway's keys")


def is_plain(path: str) -> bool:
    """Whether a decoded path is what it looks like, however often it was encoded.

    No empty or dot segment, not even one with parameters (which some servers cut off: ``..;x``), no control character.
    """
    for _ in range(_DECODINGS):
        encoded, path = path, unquote(path)
        if path == encoded:
            break
    else:
        return False
    segments = path.replace("\\", "/").split("/")[1:]
    return path == "/" or (
        path.isprintable() and not any(segment.partition(";")[0] in ("", ".", "..") for segment in segments)
    )
