"""Losses of an announced batch, without any of the libraries."""

import pytest
import torch
from pytorch_metric_learning import losses

import bspml
from bspml.errors import InputError
from bspml.integrations.announced_batch import kept_rows_of_batch, under, weighted_value

LABELS = torch.tensor([0, 0, 1, 1, 0, 1])


def test_rows_of_weight_0_leave_and_fractions_are_refused():
    weights = bspml.SampleWeights(LABELS)
    weights.update([1, 0, 1, 1, 0.5, 1])
    assert kept_rows_of_batch(weights, 3) is None  # an evaluation, whatever its rows are
    weights.set_batch([3, 1, 0])
    assert kept_rows_of_batch(weights, 3).tolist() == [True, False, True]
    weights.set_batch([3, 0])
    assert kept_rows_of_batch(weights, 2) is None
    weights.set_batch([3, 4])
    with pytest.raises(InputError, match="weights 0 and 1 only"):
        kept_rows_of_batch(weights, 2)


@pytest.mark.parametrize("make", [losses.MultiSimilarityLoss, bspml.BSPMLLoss])
def test_a_weighted_loss_is_the_plain_one_in_an_evaluation(make):
    weights, embeddings = bspml.SampleWeights(LABELS), torch.eye(6) + 0.3
    weights.update([1, 0, 0.5, 1, 1, 0.2])
    loss = bspml.Weighted(make(), weights)
    plain = weighted_value(loss, weights, embeddings, LABELS)
    assert torch.equal(plain, make()(embeddings, LABELS))
    weights.set_batch(range(6))
    value = weighted_value(loss, weights, embeddings, LABELS)
    assert torch.equal(value, loss(embeddings, LABELS, sample_index=range(6)))
    assert not torch.isclose(value, plain)


def test_an_evaluation_moves_no_average_of_the_loss_and_leaves_it_in_its_mode():
    weights, embeddings = bspml.SampleWeights(LABELS), torch.eye(6) + 0.3
    loss = bspml.Weighted(bspml.SuperLoss(losses.MultiSimilarityLoss()), weights)
    weights.set_batch(range(6))
    weighted_value(loss, weights, embeddings, LABELS)
    weights.clear_batch()
    before = {name: value.clone() for name, value in loss.state_dict().items()}
    weighted_value(loss, weights, 2 * embeddings.flip(0), LABELS)
    assert all(torch.equal(before[name], value) for name, value in loss.state_dict().items())
    assert loss.training
    assert not weights.evaluating
    weights.set_batch(range(6))
    weighted_value(loss, weights, embeddings.flip(0), LABELS)
    assert any(not torch.equal(before[name], value) for name, value in loss.state_dict().items())


def test_a_loss_that_looks_these_weights_up_stays_as_it_is():
    weights, others = bspml.SampleWeights(LABELS), bspml.SampleWeights(LABELS)
    weighted = bspml.Weighted(losses.ContrastiveLoss(), weights)
    memory = bspml.CrossBatchMemory(weighted, 6, memory_size=12)
    assert under(weighted, weights) is weighted
    assert under(memory, weights) is memory
    assert isinstance(under(losses.ContrastiveLoss(), weights), bspml.Weighted)
    for loss in (weighted, memory):
        with pytest.raises(InputError, match="has other weights than the curriculum"):
            under(loss, others)
    with pytest.raises(InputError, match=r"use bspml.CrossBatchMemory\(Weighted"):
        under(bspml.CrossBatchMemory(losses.ContrastiveLoss(), 6, memory_size=12), weights)
    either = losses.MultipleLosses([weighted, memory])
    assert under(either, weights) is either
    with pytest.raises(InputError, match="has other weights than the curriculum"):
        under(losses.MultipleLosses([weighted, bspml.Weighted(losses.NCALoss(), others)]), weights)
    with pytest.raises(InputError, match=r"Use MultipleLosses\(\[Weighted"):
        under(losses.MultipleLosses([weighted, losses.NCALoss()]), weights)


def test_weights_of_another_kind_are_the_loss_s_own_affair():
    class OfClasses(losses.ContrastiveLoss):
        def __init__(self):
            super().__init__()
            self.weights = torch.ones(3)

    weights = bspml.SampleWeights(LABELS)
    assert isinstance(under(losses.MultipleLosses([OfClasses()]), weights), bspml.Weighted)


def test_a_wrapper_of_several_processes_is_refused_with_a_way_that_works():
    weights, loss = bspml.SampleWeights(LABELS), losses.ContrastiveLoss()
    wrapped = bspml.distributed.DistributedLossWrapper(loss)
    with pytest.raises(InputError, match="Pass the loss that it wraps"):
        under(wrapped, weights)
    assert under(loss, weights).loss is loss
