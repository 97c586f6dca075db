"""The outer loop of self-paced learning: statistics of the embeddings, new weights, new age."""

from bspml.trainers.curriculum.fixed import FixedCurriculum
from bspml.trainers.curriculum.record import CurriculumRecord
from bspml.trainers.curriculum.self_paced import SelfPacedCurriculum

__all__ = ["CurriculumRecord", "FixedCurriculum", "SelfPacedCurriculum"]
