"""Arguments of another kind or size than any, which once ended in somebody else's exception."""

import inspect

import numpy as np
import pandas as pd
import pytest
import torch
from pytorch_metric_learning import losses as pml_losses

import bspml
from bspml import evaluation, functional
from bspml.errors import InputError
from bspml.losses.neighbour_vote import NeighbourVote
from bspml.losses.prism import PRISMFilter

Y = np.repeat(np.arange(5), 4)
X = np.eye(5, dtype="f4")[Y] + 0.1
HUGE, SERIES = 10**30, pd.Series([1, 2], index=[5, 6])


def wrapped(**options):
    return inspect.unwrap(bspml.GradientRescaling)(pml_losses.ContrastiveLoss(), **options)


def curriculum(**options):
    return bspml.SelfPacedCurriculum(bspml.SampleWeights(Y), **options)


DATA, SETS = {"embeddings": X, "labels": Y}, {"embeddings": X, "labels": Y, "set_ids": Y}
CASES = [
    (bspml.evaluate, DATA, {"device": HUGE, "ignore": torch.tensor(3.5)}),
    (bspml.evaluate, DATA, {"seed": SERIES, "backend": SERIES}),
    (evaluation.evaluate_sets, SETS, {"ignore": np.array(0.5)}),
    (
        bspml.audit,
        DATA,
        {"names": -1, "texts": 3.5, "neighbours": HUGE, "pictures": "x"},
    ),
    (bspml.contrastive_statistics, DATA, {"null_bins": HUGE}),
    (
        bspml.sampled_contrastive_statistics,
        DATA,
        {"null_values": HUGE, "seed": None, "null_bins": HUGE},
    ),
    (
        bspml.CrossBatchMemory,
        {"loss": bspml.BSPMLLoss(), "embedding_size": 2},
        {"memory_size": HUGE},
    ),
    (
        PRISMFilter,
        {"num_classes": 3, "embedding_size": 2, "noise_rate": 0.1},
        {"memory_size": HUGE},
    ),
    (NeighbourVote, {"num_samples": 9, "embedding_size": 2}, {"num_samples": HUGE}),
    (wrapped, {}, {"kind": np.array([1, 2])}),
    (curriculum, {}, {"seed": HUGE}),
    (bspml.load, {}, {"path": None}),
    (
        functional.data_parameters_loss,
        {"labels": torch.tensor([0]), "confidence": torch.ones(1)},
        {"logits": torch.tensor(3.0)},
    ),
    (
        functional.reliability_loss,
        {"reliability": torch.ones(6)},
        {"average_precision": torch.ones(3)},
    ),
    (functional.gr_weight, {"beta": 1}, {"p": None}),
]  # fmt: skip


@pytest.mark.parametrize(("call", "good", "odd"), CASES)
def test_an_odd_argument_is_refused_in_one_sentence(call, good, odd):
    call = inspect.unwrap(call)  # before beartype has its say
    for name, value in odd.items():
        with pytest.raises(InputError, match=f"`{name}`") as refused:
            call(**{**good, name: value})
        assert "\n" not in str(refused.value)
