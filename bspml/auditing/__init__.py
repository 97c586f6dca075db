"""The audit of labels: needs embeddings from anywhere and no training."""

from bspml.auditing.judging import audit
from bspml.auditing.report import AuditReport

__all__ = ["AuditReport", "audit"]
