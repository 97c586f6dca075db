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
    from bspml.trainers.averaging import average_weights
    from bspml.trainers.curriculum import CurriculumRecord, FixedCurriculum, SelfPacedCurriculum
    from bspml.trainers.patience import Patience
    from bspml.trainers.schedules import lr_schedule

__all__ = [
    "AlternatingTrainer",
    "CurriculumRecord",
    "FixedCurriculum",
    "Patience",
    "RoundRecord",
    "SelfPacedCurriculum",
    "average_weights",
    "lr_schedule",
]

_HOME = {
    "AlternatingTrainer": "alternating",
    "Patience": "patience",
    "RoundRecord": "alternating",
    "average_weights": "averaging",
    "lr_schedule": "schedules",
}


def __getattr__(name: str) -> Any:
    if name in __all__:
        home = importlib.import_module(f"bspml.trainers.{_HOME.get(name, 'curriculum')}")
        return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
