"""A host as browsers read it: what looks different and leads to the same server is the same host.

The host parser of the URL standard (url.spec.whatwg.org, "Host parsing"): percent-encoding is decoded, UTS #46 maps
letters that stand for others and makes punycode of the rest, and whatever ends in a number is an IPv4 address. As
there, and unlike IDNA, a label need be no name that anybody could register: browsers go there all the same.
"""

import re
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import unquote_to_bytes

import idna

HOST_MAX_CHARS = 253
"""Of a name in DNS."""

_FORBIDDEN = re.compile(r"[\x00-\x20#%/:<>?@\[\\\]^|\x7f]")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_READ_TWO_WAYS = "\N{LATIN CAPITAL LETTER SHARP S}"
"""One version of UTS #46 makes ß of it, an earlier one ss."""


def read_host(host: str) -> str | None:
    """``host`` (of an IPv6 address what stands in its brackets) in lower case, punycode, without a dot at its end.

    None for what leads nowhere: what browsers refuse, and what is too long for a name.
    """
    if ":" in host:
        return _ipv6(host)
    if "%" in host or not host.isascii():
        mapped = _mapped(host)
        if mapped is None:
            return None
        host = mapped
    host = host.lower().rstrip(".")
    if not host or len(host) > HOST_MAX_CHARS or _FORBIDDEN.search(host):
        return None
    return _ipv4(host) if _NUMBER.fullmatch(host.rpartition(".")[2]) else host


def _mapped(host: str) -> str | None:
    try:
        decoded = unquote_to_bytes(host).decode("utf-8")
        if _READ_TWO_WAYS in decoded:
            return None
        labels = idna.uts46_remap(decoded, std3_rules=False, transitional=False).split(".")
    except (UnicodeError, idna.IDNAError):
        return None
    if any(label.startswith("xn--") and not label.isascii() for label in labels):
        return None
    return ".".join(label if label.isascii() else f"xn--{label.encode('punycode').decode()}" for label in labels)


def _ipv6(host: str) -> str | None:
    try:
        return None if "%" in host else IPv6Address(host).compressed
    except ValueError:
        return None


def _ipv4(host: str) -> str | None:
    """Up to four numbers, decimal, octal (0…) or hexadecimal (0x…); the last fills the bytes that are left."""
    parts = host.split(".")
    if len(parts) > 4 or not all(map(_NUMBER.fullmatch, parts)):
        return None
    try:
        *first, last = map(_number, parts)
    except ValueError:  # an 8 in an octal number
        return None
    if any(part > 255 for part in first) or last >= 256 ** (4 - len(first)):
        return None
    return str(IPv4Address(sum((part << 8 * (3 - place) for place, part in enumerate(first)), last)))


def _number(part: str) -> int:
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    return int(part, 8 if part.startswith("0") else 10)
