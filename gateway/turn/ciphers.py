"""AES-256-GCM from ``cryptography``, whose import is the largest of all: only :mod:`gateway.turn.seal` asks for it."""

from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


class Ciphers:
    """A cipher for each of ``keys``, secrets of any length: the first encrypts, all decrypt."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._ciphers = [AESGCM(_derived(key)) for key in keys]

    def encrypt(self, nonce: bytes, plain: bytes, bound: bytes) -> bytes:
        """``plain``, encrypted and bound to ``bound``."""
        return self._ciphers[0].encrypt(nonce, plain, bound)

    def decrypt(self, nonce: bytes, data: bytes, bound: bytes) -> bytes | None:
        """What was encrypted; None unless it is what :meth:`encrypt` made, with one of the keys."""
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(nonce, data, bound)
            except InvalidTag:
                continue
        return None


def _derived(key: str) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=b"messages-gateway seal 1").derive(key.encode())
