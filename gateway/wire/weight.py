"""What a JSON body would cost to read, told without reading it.

A value takes up to thirty times its bytes once it is decoded: ``[],`` a list and its place in another. So 32 MiB of
small values take a gigabyte and seconds, where 32 MiB of long strings take little more than themselves. What costs is
what stands outside strings, and that can be counted piece by piece, in the time that it takes to copy the body.
"""

WEIGHT_MAX = 2_000_000
"""Most that a body may weigh: about two million numbers, or a quarter of a million small objects. Decoded that is less
than 128 MiB."""

_PIECE = 1 << 18


def is_heavy(body: bytes, most: int = WEIGHT_MAX) -> bool:
    """Whether a body weighs more than ``most``.

    A comma, which goes with each value, weighs 1; a colon, which goes with each member, 3; a list or an object 4. What
    is no JSON may weigh anything.
    """
    total = 0
    within = False
    """Whether the piece begins within a string."""
    cut = b""
    """A backslash whose other half is in the next piece."""
    for start in range(0, len(body), _PIECE):
        piece = (cut + body[start : start + _PIECE]).replace(rb"\\", b"")
        cut = b""
        if piece.endswith(b"\\"):
            piece, cut = piece[:-1], b"\\"
        parts = piece.replace(rb"\"", b"").split(b'"')
        outside = b" ".join(parts[1 if within else 0 :: 2])
        total += outside.count(b",") + 3 * outside.count(b":") + 4 * (outside.count(b"[") + outside.count(b"{"))
        if total > most:
            return True
        within ^= len(parts) % 2 == 0
    return False
