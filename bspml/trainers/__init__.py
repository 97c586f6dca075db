"""One round of training, start to end, and the weight step between rounds."""

from bspml.trainers.alternating import AlternatingTrainer, RoundRecord
from bspml.trainers.curriculum import CurriculumRecord, FixedCurriculum, SelfPacedCurriculum

__all__ = [
    "AlternatingTrainer",
    "CurriculumRecord",
    "FixedCurriculum",
    "RoundRecord",
    "SelfPacedCurriculum",
]
