"""Numbers on embeddings (`evaluate`) and on sample weights (`noise_detection`)."""

from bspml.evaluation.detection import NoiseDetection, noise_detection
from bspml.evaluation.retrieval import CollapseWarning, RetrievalMetrics, evaluate

__all__ = [
    "CollapseWarning",
    "NoiseDetection",
    "RetrievalMetrics",
    "evaluate",
    "noise_detection",
]
