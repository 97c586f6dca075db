"""Metrics of embeddings, of sets of them and of sample weights.

`evaluate` measures retrieval, `evaluate_sets` retrieval of sets, `noise_detection` how well sample
weights tell wrong labels, and `select_epochs` says which epoch a number is taken from.

Example:
    >>> import torch
    >>> from bspml.evaluation import evaluate
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> evaluate(embeddings, torch.tensor([0, 0, 1, 1]), ks=(1,)).recall_at_k
    {1: 1.0}
"""

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
