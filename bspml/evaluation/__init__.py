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

from bspml.evaluation.accuracy_calculator import AccuracyCalculator as AccuracyCalculator
from bspml.evaluation.detection import (
    NoiseDetection as NoiseDetection,
    noise_detection as noise_detection,
)
from bspml.evaluation.retrieval import (
    CollapseWarning as CollapseWarning,
    RetrievalMetrics as RetrievalMetrics,
    evaluate as evaluate,
)
from bspml.evaluation.selection import (
    SelectedEpoch as SelectedEpoch,
    select_epochs as select_epochs,
    selection_columns as selection_columns,
)
from bspml.evaluation.set_to_set import SetMetrics as SetMetrics, evaluate_sets as evaluate_sets
