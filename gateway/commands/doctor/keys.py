"""What can be said of the settings without asking anybody."""

from collections.abc import Iterator

from gateway.commands.doctor.check import Check
from gateway.server.reach import LOOPBACK
from gateway.settings import Settings, unknown_variables


def examine_keys(settings: Settings) -> Iterator[Check]:
    """Whether clients need a key, and whether sealed results outlive a restart. No key is ever shown."""
    if settings.api_keys:
        yield Check("client keys", "ok", f"{_count(len(settings.api_keys))} set: clients must present one")
    elif settings.host in LOOPBACK:
        yield Check("client keys", "ok", f"none needed: the gateway listens on {settings.host} alone")
    else:
        yield Check(
            "client keys",
            "note",
            f"none set: whoever reaches {settings.host} port {settings.port} can use the model",
            "export GATEWAY_API_KEYS=$(openssl rand -hex 32)",
        )
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


def _count(number: int) -> str:
    return "1 key is" if number == 1 else f"{number} keys are"
