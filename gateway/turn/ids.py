"""A native call's id, made so that the upstream's own id can be read back from it.

Anthropic's ids are a prefix (``srvtoolu_``, say) and what matches ``[a-zA-Z0-9_]+``. ASCII letters and digits stand for
themselves, any other byte is ``_`` and two hex digits, so ``__`` never occurs and can set off the number of an id that
came more than once.
"""

import re

_BODY = re.compile(r"((?:[A-Za-z0-9]|_[0-9a-f]{2})+)(?:__[0-9]+)?")


def call_id(upstream_id: str, taken: set[str], prefix: str) -> str:
    """The client's id for the call that upstream named ``upstream_id`` (not empty), unlike any in ``taken``."""
    written = prefix + "".join(
        chr(byte) if byte < 128 and chr(byte).isalnum() else f"_{byte:02x}" for byte in upstream_id.encode("utf-8")
    )
    if written not in taken:
        return written
    # Steps that double, then halves: of an id that came a thousand times, not all thousand are looked for again.
    used, free = 1, 2
    while f"{written}__{free}" in taken:
        used, free = free, 2 * free
    while free - used > 1:
        middle = (used + free) // 2
        used, free = (middle, free) if f"{written}__{middle}" in taken else (used, middle)
    return f"{written}__{free}"


def upstream_id(call_id: str, prefix: str) -> str:
    """The upstream's id that ``call_id`` was made from; an id not made here stands for itself."""
    match = _BODY.fullmatch(call_id.removeprefix(prefix)) if call_id.startswith(prefix) else None
    if match is None:
        return call_id
    escaped = match[1].encode("ascii")
    raw = re.sub(rb"_([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), escaped)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return call_id
