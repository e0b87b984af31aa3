"""The patterns by which a credential in a text is known: the project's own, and those of the detect-secrets package.

Own rules know a credential by the name beside it, or by a beginning that its maker gave it. What detect-secrets
(Apache-2.0) knows of makers is used beside them; its rules that go by names or by entropy are not, for in a prompt
nearly everything is a name or a word.
"""

import re
from dataclasses import dataclass
from functools import cache

Spans = list[tuple[int, int, str]]
"""(start, end, kind) of parts of a text."""

# What stands before "key" is looked at behind it: few words have it, and all would be tried for what may stand before.
_WHOSE = ("api", "access", "account", "secret", "private", "subscription", "functions")
_KEY = f"key(?:{'|'.join(rf'(?<={whose}key)|(?<={whose}[-_]key)' for whose in _WHOSE)})"
_NAME = rf"(?:{_KEY}|secret|passw(?:or)?d|passphrase|token|credentials?|authorization)"
_NAME_HINTS = ("key", "secret", "passw", "token", "credential", "authorization")
FIELD = rf"[\w-]*{_NAME}"
"""The name of a JSON field that holds a credential."""
QUERY_FIELD = rf"(?:{FIELD}|key|token|auth|sig|signature|x-amz-[\w-]+)"
"""The name of a query's field that holds one."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern whose last group is secret; its match where it has no group, or is ``whole``.

    ``hints`` are a cheap test, in lower case. Where upper and lower case are one, the pattern is in lower case and so
    is the text it is given: much quicker than IGNORECASE.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    lower: bool = False
    whole: bool = False


def _rule(kind: str, hints: str | tuple[str, ...], pattern: str, *, lower: bool = False) -> Rule:
    return Rule(kind, (hints,) if isinstance(hints, str) else hints, re.compile(pattern), lower=lower)


_OWN = (
    _rule(
        "private key",
        "private key",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[^\"']*?(?:-----END[A-Z0-9 ]*-----|(?=[\"'])|\Z)",
    ),
    _rule("API key", "sk-", r"\bsk-[A-Za-z0-9_-]{16,}"),
    _rule("API key", ("sk_", "rk_", "whsec_"), r"\b(?:[sr]k_(?:live|test)|whsec)_[A-Za-z0-9+/=]{16,}"),
    _rule("API key", "tvly-", r"\btvly-[A-Za-z0-9_-]{10,}"),
    _rule("API key", "bsa", r"\bBSA[A-Za-z0-9_-]{20,}"),
    _rule("API key", "hf_", r"\bhf_[A-Za-z0-9]{20,}"),
    _rule("API key", "gsk_", r"\bgsk_[A-Za-z0-9]{20,}"),
    _rule("API key", "xai-", r"\bxai-[A-Za-z0-9]{20,}"),
    _rule("API key", "nvapi-", r"\bnvapi-[A-Za-z0-9_-]{20,}"),
    _rule("API key", "aiza", r"\bAIza[A-Za-z0-9_-]{30,}"),
    _rule("API key", "sg.", r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _rule(
        "access token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"\b(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}",
    ),
    _rule("access token", "glpat-", r"\bglpat-[A-Za-z0-9_-]{16,}"),
    _rule("access token", "xox", r"\bxox[abeprs]-[A-Za-z0-9-]{10,}"),
    _rule("access token", "npm_", r"\bnpm_[A-Za-z0-9]{30,}"),
    _rule("access token", "pypi-", r"\bpypi-[A-Za-z0-9_-]{32,}"),
    _rule("access token", ("ya29.", "gocspx-"), r"\b(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{16,}"),
    _rule("access token", ("hvs.", "hvb.", "hvr."), r"\bhv[sbr]\.[A-Za-z0-9_-]{20,}"),
    _rule("access token", "s.", r"s\.(?<![\w.]s\.)(?=[A-Za-z]*\d)[A-Za-z0-9]{24}\b"),
    _rule("access token", "eyj", r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    _rule("client secret", "q~", r"(?<![\w~.-])[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}(?![\w~-])"),
    _rule("credential", "bearer", r"\bbearer\s+((?=[^\s\"'\\]*\d)[\w.~+/=-]{12,})", lower=True),
    _rule("credential", "basic", r"\bauthorization\W{1,4}basic\s+([\w+/=-]{8,})", lower=True),
    _rule(
        "password",
        "curl",
        r"\bcurl\b(?:(?![;|]|&&)[^\n]){0,500}?\s(?:-[a-zA-Z]*[uU]|--(?:proxy-)?user)[\s=]*[\"'\\]*[^\s:\"'\\]*:([^\s\"'\\]+)",
    ),
    _rule(
        "password in a URL",
        ("://", ":\\/\\/"),
        # A password may hold an @, and by mistake a slash; what is a port and a path holds none.
        r":(?:\\?/){2}[^/\s:@\"'\\]*:([^/\s\"'\\<>]+|(?!\d{1,5}[/?#\\])[^\s\"'\\<>]{1,256}?)@(?=[\w\[])",
    ),
    _rule("key in a URL", "=", rf"[?&;]{QUERY_FIELD}=([^&;#\s\"'<>\\`)]+)", lower=True),
    _rule("key in a URL", "code=", r"[?&]code=([\w%-]{40,}=*)"),
    _rule(
        "key in JSON",
        '"',
        # what the second line leaves out is a token of the model's, with its log probability
        rf"\"{FIELD}\\?\"\s*:\s*\\?\"([^\"\\]{{8,}}+)"
        r"(?!(?:\\.|[^\"\\])*\\?\"\s*,\s*\\?\"logprob)",
        lower=True,
    ),
    _rule("assigned key", _NAME_HINTS, rf"{_NAME}\s*[=:]\s*[\"']?((?=[^\s\"']*\d)[\w.~+/-]{{12,}}=*)", lower=True),
)

SCHEMA_TYPES = frozenset(("string", "object", "array", "number", "integer", "boolean", "null", "apikey", "http"))
"""What the ``type`` of a schema can be, in lower case: a field ``password`` may be described as well as given."""
_NESTED = re.compile(rf"{_NAME}\\?\"\s*:\s*[{{\[]")
_PART = re.compile(r"[{}\[\]]|\\?\"((?:[^\"\\]|\\(?!\").)*+)\\?\"(\s*:)?")
_NESTED_CHARS = 4096


def nested_values(lower: str) -> Spans:
    """The texts in an object or a list that is the value of a secret field, of JSON in lower case."""
    found: Spans = []
    end = 0
    for opening in _NESTED.finditer(lower):
        if opening.start() >= end:
            spans, end = _values(lower, opening.end() - 1)
            found += spans
    return found


def _values(lower: str, start: int) -> tuple[Spans, int]:
    """Those of the object or list that begins at ``start``; and where it ends.

    None of a schema's, nor of a token of the model's.
    """
    spans: Spans = []
    end, depth, name = start, 0, ""
    for part in _PART.finditer(lower, start, start + _NESTED_CHARS):
        end = part.end()
        if part[1] is None:
            depth += 1 if part[0] in "{[" else -1
            if depth == 0:
                break
        elif part[2] is not None:
            name = part[1]
            if name == "logprob":
                return [], end
        elif name == "type" and part[1] in SCHEMA_TYPES:
            return [], end
        elif len(part[1]) >= 8:
            spans.append((part.start(1), part.end(1), "key in JSON"))
    return spans, end


@cache
def rules() -> tuple[Rule, ...]:
    """All of them. The package is loaded by the first who looks for a credential, which takes a tenth of a second."""
    from detect_secrets.plugins.aws import AWSKeyDetector
    from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
    from detect_secrets.plugins.base import RegexBasedDetector
    from detect_secrets.plugins.discord import DiscordBotTokenDetector
    from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
    from detect_secrets.plugins.mailchimp import MailchimpDetector
    from detect_secrets.plugins.pypi_token import PypiTokenDetector
    from detect_secrets.plugins.sendgrid import SendGridDetector
    from detect_secrets.plugins.slack import SlackDetector
    from detect_secrets.plugins.square_oauth import SquareOAuthDetector
    from detect_secrets.plugins.stripe import StripeDetector
    from detect_secrets.plugins.telegram_token import TelegramBotTokenDetector
    from detect_secrets.plugins.twilio import TwilioKeyDetector

    known: dict[type[RegexBasedDetector], tuple[str, ...]] = {
        AWSKeyDetector: ("a3t", "abia", "acca", "akia", "asia", "aws"),
        AzureStorageKeyDetector: ("accountkey=",),
        DiscordBotTokenDetector: (".",),
        GitLabTokenDetector: ("gl", "gr1348941"),
        MailchimpDetector: ("-us",),
        PypiTokenDetector: ("pypi-",),
        SendGridDetector: ("sg.",),
        SlackDetector: ("xox", "hooks.slack.com"),
        SquareOAuthDetector: ("sq0csp-",),
        StripeDetector: ("k_live_",),
        TelegramBotTokenDetector: (":aa",),
        TwilioKeyDetector: ("ac", "sk"),
    }
    kept = (
        Rule(plugin.secret_type, hints, pattern, whole=True)
        for plugin, hints in ((made(), hints) for made, hints in known.items())
        for pattern in plugin.denylist
    )
    return (*_OWN, *kept)
