"""Whose tools they are, as far as the settings say."""

from collections.abc import Iterator

from gateway.commands.doctor.check import Check
from gateway.settings import Settings
from gateway.turn import KINDS


def examine_tools(settings: Settings) -> Iterator[Check]:
    """Whether a function that the gateway could take over by its name is left to the client."""
    if settings.gateway_tools is None:
        return
    left = sorted(KINDS.functions.keys() - {*settings.gateway_tools, *settings.tool_aliases})
    if left:
        what = f"{', '.join(left)}: a function of that name is left to the client, as --gateway-tools says"
        yield Check("tools", "note", what, f"--gateway-tools {','.join(sorted(KINDS.functions))} takes it over")
