"""Losses in an evaluation: its samples have no row in the table, so every one of them weighs 1."""

import copy

import pytest
import torch
from pytorch_metric_learning import losses, miners

import bspml
from bspml.errors import SampleIndexError
from bspml.losses.filtered import FilteredLoss

LABELS = torch.arange(4).repeat_interleave(3)
OTHERS = torch.arange(3).repeat_interleave(2)


@pytest.fixture
def weights():
    table = bspml.SampleWeights(LABELS)
    table.update(torch.linspace(0, 1, 12))
    table.evaluating = True
    return table


@pytest.fixture
def embeddings():
    generator = torch.Generator().manual_seed(0)
    return torch.nn.functional.normalize(torch.randn(6, 5, generator=generator))


@pytest.mark.parametrize(
    ("wrap", "plain"),
    [
        (lambda w: bspml.Weighted(losses.ContrastiveLoss(), w), losses.ContrastiveLoss()),
        (lambda w: bspml.Weighted(losses.MultiSimilarityLoss(), w), losses.MultiSimilarityLoss()),
        (lambda w: bspml.Weighted(losses.TripletMarginLoss(), w), losses.TripletMarginLoss()),
        (lambda w: bspml.BSPMLLoss(w), bspml.BSPMLLoss()),
        (lambda w: bspml.Weighted(bspml.BSPMLLoss(), w), bspml.BSPMLLoss()),
        (
            lambda w: bspml.BSPMLLoss(w, miner=bspml.BSPMLMiner(w)),
            bspml.BSPMLLoss(miner=bspml.BSPMLMiner()),
        ),
        (
            lambda w: bspml.SuperLoss(bspml.Weighted(losses.ContrastiveLoss(), w), tau=0.1),
            bspml.SuperLoss(losses.ContrastiveLoss(), tau=0.1),
        ),
        (
            lambda w: bspml.SuperLoss(
                losses.ContrastiveLoss(), tau=0.1, smoothing="sample", sample_weights=w
            ),
            bspml.SuperLoss(losses.ContrastiveLoss(), tau=0.1),
        ),
    ],
)
def test_rows_that_nobody_names_weigh_1_and_named_ones_what_they_weigh(
    weights, embeddings, wrap, plain
):
    loss, plain = wrap(weights).eval(), plain.eval()
    assert float(loss(embeddings, OTHERS)) == pytest.approx(float(plain(embeddings, OTHERS)))
    rows = [0, 1, 3, 4, 6, 7]
    weights.set_batch(rows)
    announced = float(loss(embeddings, LABELS[rows]))
    assert announced != pytest.approx(float(plain(embeddings, OTHERS)))
    weights.clear_batch()
    weights.evaluating = False
    with pytest.raises(SampleIndexError, match="indices are missing"):
        loss(embeddings, OTHERS)
    weights.set_batch(rows)
    assert float(loss(embeddings, LABELS[rows])) == announced


@pytest.mark.parametrize("miner", [None, miners.BatchHardMiner()])
def test_a_memory_queues_nothing_of_an_evaluation(weights, embeddings, miner):
    weighted = bspml.Weighted(losses.ContrastiveLoss(), weights)
    memory = bspml.CrossBatchMemory(weighted, 5, memory_size=20, miner=miner)
    rows = [1, 2, 3, 4, 6, 7]
    memory(embeddings.flip(0), LABELS[rows], sample_index=rows)
    before = copy.deepcopy(memory.state_dict())
    pairs = None if miner is None else miner(embeddings, OTHERS)
    expected = losses.ContrastiveLoss()(embeddings, OTHERS, pairs)
    assert torch.equal(memory.eval()(embeddings, OTHERS), expected)
    assert str(memory.state_dict()) == str(before)
    assert torch.equal(memory.index_memory, before["index_memory"])


def test_a_filter_leaves_no_sample_of_an_evaluation_out(weights, embeddings):
    class Nobody(torch.nn.Module):
        def forward(self, embeddings, labels):
            return torch.zeros(len(embeddings), dtype=torch.bool)

    loss = FilteredLoss(losses.ContrastiveLoss(), Nobody(), weights=weights)
    assert torch.equal(loss(embeddings, OTHERS), losses.ContrastiveLoss()(embeddings, OTHERS))
    assert float(loss(embeddings, LABELS[:6], sample_index=range(6))) == 0


@pytest.mark.parametrize("smoothing", ["none", "class", "sample"])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda loss, w, kwargs: bspml.SuperLoss(loss, sample_weights=w, **kwargs),
        lambda loss, w, kwargs: bspml.Weighted(
            bspml.SuperLoss(loss, sample_weights=w, **kwargs), w
        ),
        lambda loss, w, kwargs: bspml.CrossBatchMemory(
            bspml.SuperLoss(loss, sample_weights=w, **kwargs), 5, 20
        ),
    ],
)
def test_superloss_learns_nothing_of_an_evaluation_in_whatever_mode(
    weights, embeddings, wrap, smoothing
):
    loss = wrap(losses.ContrastiveLoss(), weights, {"smoothing": smoothing})
    rows = [1, 2, 3, 4, 6, 7]
    loss(embeddings.flip(0), LABELS[rows], sample_index=rows)
    before = copy.deepcopy(loss.state_dict())
    value = loss(embeddings, OTHERS)
    assert all(module.training for module in loss.modules())
    after = loss.state_dict()
    assert all(torch.equal(before[k], after[k]) for k in before if torch.is_tensor(before[k]))
    assert value == loss.eval()(embeddings, OTHERS)


def test_superloss_without_a_table_learns_nothing_of_an_evaluation_under_weighted(
    weights, embeddings
):
    loss = bspml.SuperLoss(bspml.Weighted(losses.TripletMarginLoss(), weights), tau="mean")
    rows = [1, 2, 3, 4, 6, 7]
    loss(embeddings.flip(0), LABELS[rows], sample_index=rows)
    tau = loss.loss.reducer.tau
    loss(embeddings, OTHERS)
    assert loss.loss.reducer.tau == tau
