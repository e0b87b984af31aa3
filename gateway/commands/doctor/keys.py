"""What can be said of the settings without asking anybody."""

from collections.abc import Iterator

from gateway.commands.doctor.check import Check
from gateway.settings import Settings, unknown_variables
from gateway.wire.hosts import is_loopback


def examine_keys(settings: Settings) -> Iterator[Check]:
    """Whether clients need a key, and whether sealed results outlive a restart. No key is ever shown."""
    if settings.api_keys:
        yield Check("client keys", "ok", f"{_count(len(settings.api_keys))} set: clients must present one")
    elif is_loopback(settings.host):
        yield Check("client keys", "ok", f"none needed: the gateway listens on {settings.host} alone")
    else:
        yield Check(
            "client keys",
            "note",
            f"none set: whoever reaches {settings.host} port {settings.port} can use the model",
            "export GATEWAY_API_KEYS=$(openssl rand -hex 32)",
        )
    if not settings.api_keys:
        yield _web_pages(settings)
    if settings.seal_keys:
        yield Check("seal keys", "ok", f"{_count(len(settings.seal_keys))} set: give every replica the same")
    else:
        yield Check(
            "seal keys",
            "note",
            "none set: search results in a conversation cannot be read again after a restart, or by another replica",
            "export GATEWAY_SEAL_KEYS=$(openssl rand -hex 32)",
        )
    for name in unknown_variables():
        yield Check("environment", "note", f"{name} is set, and there is no such setting", "messages-gateway serve -h")


def _web_pages(settings: Settings) -> Check:
    if "*" in settings.cors_origins:
        return Check(
            "web pages",
            "note",
            "any may use the model, in a browser that reaches the gateway",
            "list those that may in --cors-origins, or export GATEWAY_API_KEYS=$(openssl rand -hex 32)",
        )
    pages = ", ".join(settings.cors_origins) or "--cors-origins lists others"
    what = f"none may use the model but those of the gateway's own host ({pages})"
    if is_loopback(settings.host):
        names = ", ".join(settings.allowed_hosts) or "--allowed-hosts lists some"
        what += f"; nor requests under a name of the internet ({names})"
    return Check("web pages", "ok", what)


def _count(number: int) -> str:
    return "1 key is" if number == 1 else f"{number} keys are"
