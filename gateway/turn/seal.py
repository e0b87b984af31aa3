"""Sealing: what the model read of a native call's result travels in ``encrypted_content``, and comes back as it was.

AES-256-GCM (:mod:`gateway.turn.ciphers`). The first entry of a result carries the text, the others nothing; each is
bound, as associated data, to the call's id, its place, the number of entries, its url and its title. So an entry that
was edited, moved, cut, left out or made elsewhere does not open.

Of a round with several calls, the text is sealed with their ids (:meth:`Sealer.of_round`): a client that puts each
result behind its call would otherwise seem to send back a round for each.
"""

import base64
import binascii
import copy
import json
import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.turn.ciphers import Ciphers

_NONCE_BYTES = 12


class Sealer:
    """Seals and opens the text of native results.

    ``keys`` are secrets of any length, the first seals, all open (so a key is rotated by putting a new one in front).
    ``max_chars`` bounds a sealed entry that is looked at, in characters of ``encrypted_content``. ``calls`` are the ids
    of the calls of one round, in order: those that are sealed with a text, or were with the text last opened.
    """

    calls: Sequence[str] = ()

    def __init__(self, keys: Sequence[str], *, max_chars: int = 1_000_000) -> None:
        if not keys:
            raise ValueError("a sealer needs at least one key")
        self._keys = tuple(keys)
        self._max_chars = max_chars

    def of_round(self, calls: Sequence[str] = ()) -> "Sealer":
        """The same sealer for one round, with these ``calls``; without any, to find out by ``open`` which they are."""
        sealer = copy.copy(self)
        sealer.calls = calls
        return sealer

    def seal(self, text: str, call_id: str, entries: Sequence[tuple[str, str]]) -> list[str]:
        """One ``encrypted_content`` for each of ``entries`` (url, title); together they hold ``text``."""
        sealed = []
        with_calls = bool(self.calls)
        head = json.dumps(list(self.calls)).encode("ascii") + b"\n" if with_calls else b""
        for place, (url, title) in enumerate(entries):
            nonce = os.urandom(_NONCE_BYTES)
            plain = head + text.encode("utf-8", "surrogatepass") if place == 0 else b""
            bound = _bound(call_id, place, len(entries), url, title, with_calls=with_calls)
            data = _ciphers(self._keys).encrypt(nonce, plain, bound)
            sealed.append(base64.urlsafe_b64encode(nonce + data).decode("ascii"))
        return sealed

    def open(self, call_id: str, entries: Sequence[tuple[str, str, str]]) -> str | None:
        """The text that ``entries`` (url, title, encrypted_content) hold; None unless every one is as it was sealed."""
        for with_calls in (False, True):
            plain = self._opened_together(call_id, entries, with_calls=with_calls)
            if plain is not None:
                head, _, text = plain.partition(b"\n") if with_calls else (b"[]", b"", plain)
                self.calls = json.loads(head)
                return text.decode("utf-8", "surrogatepass")
        return None

    def _opened_together(
        self, call_id: str, entries: Sequence[tuple[str, str, str]], *, with_calls: bool
    ) -> bytes | None:
        """What the first of ``entries`` holds, where all of them open."""
        first: bytes | None = None
        for place, (url, title, sealed) in enumerate(entries):
            bound = _bound(call_id, place, len(entries), url, title, with_calls=with_calls)
            plain = self._opened(sealed, bound)
            if plain is None:
                return None
            if place == 0:
                first = plain
        return first

    def _opened(self, sealed: str, bound: bytes) -> bytes | None:
        if len(sealed) > self._max_chars:
            return None
        try:
            data = base64.b64decode(sealed.encode("ascii"), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            return None
        if len(data) < _NONCE_BYTES + 16:
            return None
        return _ciphers(self._keys).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], bound)


@lru_cache(maxsize=4)
def _ciphers(keys: tuple[str, ...]) -> "Ciphers":
    from gateway.turn.ciphers import Ciphers  # 7 MB, for those who have native results

    return Ciphers(keys)


def _bound(call_id: str, place: int, count: int, url: str, title: str, *, with_calls: bool) -> bytes:
    return json.dumps([call_id, place, count, url, title, *(["calls"] if with_calls else [])]).encode("ascii")
