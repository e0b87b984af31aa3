"""``messages-gateway doctor``: looks at everything between a client and an answer, and says what to type."""

from gateway.commands.doctor.check import Check, Status
from gateway.commands.doctor.report import examine, report
from gateway.commands.doctor.upstream import Patience

__all__ = ["Check", "Patience", "Status", "examine", "report"]
