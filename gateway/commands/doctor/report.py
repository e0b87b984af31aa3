"""The doctor's round, and how it is shown: a line a check, or JSON."""

import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from gateway.commands.doctor.check import Check
from gateway.commands.doctor.keys import examine_keys
from gateway.commands.doctor.search import examine_search
from gateway.commands.doctor.tools import examine_tools
from gateway.commands.doctor.upstream import Patience, examine_upstream
from gateway.settings import Settings

_STYLES = {"ok": "green", "problem": "bold red", "note": "yellow"}
_PATIENCE = Patience()


async def examine(settings: Settings, patience: Patience = _PATIENCE) -> AsyncIterator[Check]:
    """Each check as soon as it is done."""
    async for check in examine_upstream(settings, patience):
        yield check
    yield await examine_search(settings)
    for check in (*examine_tools(settings), *examine_keys(settings)):
        yield check


async def report(settings: Settings, console: Console, *, as_json: bool) -> bool:
    """Examine and show; True where there is no problem.

    JSON is one object: ``ok``, and ``checks`` with ``name``, ``status``, ``message`` and ``fix`` (or null) each.
    """
    checks = []
    with nullcontext() if as_json else console.status("examining…"):
        async for check in examine(settings):
            checks.append(check)
            if not as_json:
                _show(check, console)
    healthy = all(check.status != "problem" for check in checks)
    if as_json:
        print(json.dumps({"ok": healthy, "checks": [asdict(check) for check in checks]}, indent=2))
    return healthy


def _show(check: Check, console: Console) -> None:
    status = (f"{check.status:<8}", _STYLES[check.status])
    console.print(Text.assemble(status, (f"{check.name:<12}", "bold"), f" {check.message}"), soft_wrap=True)
    if check.fix:
        console.print(Text.assemble(" " * 21, ("→ ", "dim"), (check.fix, "cyan")), soft_wrap=True)
