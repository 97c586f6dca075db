"""The outer loop of self-paced learning: statistics of the embeddings, new weights, new age."""

from bspml.curriculum.fixed import FixedCurriculum
from bspml.curriculum.record import CurriculumRecord
from bspml.curriculum.self_paced import SelfPacedCurriculum

__all__ = ["CurriculumRecord", "FixedCurriculum", "SelfPacedCurriculum"]
