"""``messages-gateway doctor``: looks at everything between a client and an answer, and says what to type."""

from gateway.doctor.check import Check, Status
from gateway.doctor.report import examine, report

__all__ = ["Check", "Status", "examine", "report"]
