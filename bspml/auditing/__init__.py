"""The audit of labels: needs embeddings from anywhere and no training.

Names are loaded when first used: to look into an audit's folder needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bspml.auditing.judging import audit
    from bspml.auditing.report import AuditReport

__all__ = ["AuditReport", "audit"]

_HOME = {"audit": "bspml.auditing.judging", "AuditReport": "bspml.auditing.report"}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
