"""A loss says once that a batch has no positive pair, whatever it is wrapped in."""

import warnings

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses

import bspml
from bspml.losses.positives import PositiveWatch

ROWS, TEXT = torch.arange(8), "a batch of 8 samples has as many labels: .* no positive pair"


def made(name):
    weights = bspml.SampleWeights(torch.arange(16) // 2)
    pairs, triplets = pml_losses.MultiSimilarityLoss(), pml_losses.TripletMarginLoss()
    return {
        "bspml": lambda: bspml.BSPMLLoss(weights, miner=bspml.BSPMLMiner(weights)),
        "weighted": lambda: bspml.Weighted(triplets, weights),
        "weighted bspml": lambda: bspml.Weighted(bspml.BSPMLLoss(weights), weights),
        "superloss": lambda: bspml.SuperLoss(pairs),
        "rescaled": lambda: bspml.GradientRescaling(pml_losses.ContrastiveLoss()),
        "both": lambda: bspml.Weighted(bspml.SuperLoss(triplets), weights),
    }[name]()


@pytest.mark.parametrize(
    "name", ["bspml", "weighted", "weighted bspml", "superloss", "rescaled", "both"]
)
def test_batches_without_a_positive_are_told_of_once(name):
    loss = made(name)
    embeddings = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    weighs = name not in ("superloss", "rescaled")
    pairs, alone = ({"sample_index": r} if weighs else {} for r in (ROWS, 2 * ROWS))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loss(embeddings, ROWS // 2, **pairs).isfinite()  # pairs: nothing to say
    with pytest.warns(UserWarning, match=TEXT) as said:
        value = loss(embeddings, ROWS, **alone)
    assert len([w for w in said if "no positive pair" in str(w.message)]) == 1
    if name in ("bspml", "weighted", "both"):  # the others push negatives apart
        assert value == 0
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="a batch of")
        loss(embeddings, ROWS, **alone)


def test_losses_that_compare_with_proxies_have_nothing_to_say():
    weights = bspml.SampleWeights(ROWS)
    loss = bspml.Weighted(pml_losses.ProxyNCALoss(8, 4), weights)
    softmax = bspml.SuperLoss(pml_losses.NormalizedSoftmaxLoss(8, 4))
    embeddings = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss(embeddings, ROWS, sample_index=ROWS)
        softmax(embeddings, ROWS)


def test_what_has_no_labels_or_no_rows_has_nothing_to_say():
    watch = PositiveWatch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for labels in (None, torch.empty(0), torch.tensor([1, 0, 1]), torch.zeros(2, 2)):
            watch.look(labels)
    assert not watch.is_silent
