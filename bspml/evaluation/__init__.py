"""Numbers on embeddings (`evaluate`), on sets of them (`evaluate_sets`), on sample weights
(`noise_detection`), and which epoch a number is taken from (`select_epochs`)."""

from bspml.evaluation.detection import NoiseDetection, noise_detection
from bspml.evaluation.retrieval import CollapseWarning, RetrievalMetrics, evaluate
from bspml.evaluation.selection import SelectedEpoch, select_epochs, selection_columns
from bspml.evaluation.set_to_set import SetMetrics, evaluate_sets

__all__ = [
    "CollapseWarning",
    "NoiseDetection",
    "RetrievalMetrics",
    "SelectedEpoch",
    "SetMetrics",
    "evaluate",
    "evaluate_sets",
    "noise_detection",
    "select_epochs",
    "selection_columns",
]
