"""``messages-gateway doctor``: looks at everything between a client and an answer, and says what to type."""

from gateway.doctor.check import Check, Status
from gateway.doctor.report import examine, report
from gateway.doctor.upstream import Patience

__all__ = ["Check", "Patience", "Status", "examine", "report"]
