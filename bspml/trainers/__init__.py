"""One round of training, start to end, and the weight step between rounds.

Names are loaded when first used: the settings of a curriculum can be read without torch.

Example:
    >>> import bspml, torch
    >>> from bspml.trainers import SelfPacedCurriculum
    >>> weights = bspml.SampleWeights(["a", "a", "b", "b"])
    >>> record = SelfPacedCurriculum(weights, preset="paper", age=1.0).update(torch.eye(4))
    >>> record.maw == weights.maw()
    True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bspml.trainers.alternating import AlternatingTrainer, RoundRecord
    from bspml.trainers.curriculum import CurriculumRecord, FixedCurriculum, SelfPacedCurriculum

__all__ = [
    "AlternatingTrainer",
    "CurriculumRecord",
    "FixedCurriculum",
    "RoundRecord",
    "SelfPacedCurriculum",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        home = "alternating" if name in ("AlternatingTrainer", "RoundRecord") else "curriculum"
        return getattr(importlib.import_module(f"bspml.trainers.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
