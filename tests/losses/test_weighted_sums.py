"""The log-sums with weights inside, against pytorch-metric-learning and against copies."""

import pytest
import pytorch_metric_learning.losses as pml_losses
import torch
from pytorch_metric_learning.reducers import MeanReducer, SumReducer

from bspml import SampleWeights, Weighted
from bspml.losses.kept_rows import Rows
from bspml.losses.reducers.catalogue import CATALOGUE
from bspml.losses.weighted_sums import _VALUES, weighted_values
from helpers import reducer_kit as kit

EXACT = 1e-12
NAMES = [cls.__name__ for cls in _VALUES]


def values(loss, embeddings, labels, pairs=None, ref_emb=None, ref_labels=None, weights=None):
    ref_emb = embeddings if ref_emb is None else ref_emb
    ref_labels = labels if ref_labels is None else ref_labels
    ones = torch.ones(len(ref_emb), dtype=torch.float64)
    rows = Rows(embeddings, labels, pairs, ref_emb, ref_labels)
    return weighted_values(loss, rows, ones if weights is None else weights)["loss"]


def some_pairs(labels, ref_labels, size):
    """Pairs or triplets of a random part of the batch."""
    generator = torch.Generator().manual_seed(4)
    same = labels[:, None] == ref_labels
    positive = same & (torch.rand(same.shape, generator=generator) < 0.7)
    negative = ~same & (torch.rand(same.shape, generator=generator) < 0.5)
    if labels is ref_labels:
        positive.fill_diagonal_(False)
    if size == 4:
        return (*positive.nonzero(as_tuple=True), *negative.nonzero(as_tuple=True))
    triplets = positive[:, :, None] & negative[:, None]
    return triplets.nonzero(as_tuple=True)


def test_every_log_sum_of_the_catalogue_has_its_formula():
    ours = {"BSPMLLoss"}  # weighs inside by itself
    assert {n for n, entry in CATALOGUE.items() if entry.log_sum} - ours == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [None, 3, 4])
@pytest.mark.parametrize("foreign", [False, True])
def test_with_weights_of_1_they_are_pytorch_metric_learnings(name, size, foreign):
    embeddings, labels = kit.batch()
    ref_emb, ref_labels = kit.batch(rows=16, seed=5) if foreign else (embeddings, labels)
    pairs = None if size is None else some_pairs(labels, ref_labels, size)
    theirs = kit.make(name).compute_loss(embeddings, labels, pairs, ref_emb, ref_labels)["loss"]
    ours = values(kit.make(name), embeddings, labels, pairs, ref_emb, ref_labels)
    expected = theirs["losses"].flatten()
    assert ours["reduction_type"] == theirs["reduction_type"]
    assert torch.equal(torch.stack([*map(torch.as_tensor, ours["indices"])]),
                       torch.stack([*map(torch.as_tensor, theirs["indices"])]))  # fmt: skip
    torch.testing.assert_close(ours["losses"], expected, rtol=EXACT, atol=EXACT)
    gradients = [torch.autograd.grad(v.square().sum(), embeddings, retain_graph=True)[0]
                 for v in (ours["losses"], expected)]  # fmt: skip
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


# LiftedStructureLoss also takes the negatives of a pair's positive, by its number in the batch.
@pytest.mark.parametrize("name", [n for n in NAMES if n != "LiftedStructureLoss"])
def test_a_reference_of_weight_2_counts_as_two_copies_of_it(name):
    """Against foreign references, where copies add nothing but terms to the sums."""
    embeddings, labels = kit.batch()
    ref_emb, ref_labels = kit.batch(rows=8, seed=5)
    weights = torch.tensor([1.0, 2, 1, 1, 2, 1, 2, 1], dtype=torch.float64)
    copies = torch.arange(8).repeat_interleave(weights.long())
    ours = values(kit.make(name), embeddings, labels, None, ref_emb, ref_labels, weights)
    theirs = kit.make(name).compute_loss(
        embeddings, labels, None, ref_emb[copies], ref_labels[copies]
    )["loss"]
    if ours["reduction_type"] == "element":
        torch.testing.assert_close(ours["losses"], theirs["losses"].flatten(), rtol=1e-10, atol=0)
        return
    # A positive's copies give a value each: all the same, and that of the one.
    listed = dict(zip(zip(*(x.tolist() for x in ours["indices"]), strict=True),
                      ours["losses"], strict=True))  # fmt: skip
    a, p = theirs["indices"]
    for anchor, copy, value in zip(a.tolist(), p.tolist(), theirs["losses"].flatten(), strict=True):
        torch.testing.assert_close(listed[anchor, int(copies[copy])], value, rtol=1e-10, atol=0)


# CircleLoss holds its factors fixed by definition, which differences do not.
@pytest.mark.parametrize("name", [n for n in NAMES if n != "CircleLoss"])
def test_gradients_are_those_of_differences(name):
    embeddings, labels = kit.batch(rows=8)
    weights = torch.linspace(0.2, 0.9, 8, dtype=torch.float64)
    loss = kit.make(name)

    def total(x):
        return values(loss, x, labels, weights=weights)["losses"].sum()

    assert torch.autograd.gradcheck(total, embeddings, eps=1e-6, atol=1e-5)


def test_a_subclass_with_a_formula_of_its_own_has_none_here():
    class Mine(pml_losses.CircleLoss):
        def _compute_loss(self, mat, pos_mask, neg_mask):
            return super()._compute_loss(mat, pos_mask, neg_mask)

    embeddings, labels = kit.batch()
    rows = Rows(embeddings, labels, None, embeddings, labels)
    assert weighted_values(Mine(), rows, torch.ones(12, dtype=torch.float64)) is None


@pytest.mark.parametrize("name", [n for n in NAMES if n != "NCALoss"])
def test_a_batch_of_one_class_gives_what_the_loss_gives(name):
    embeddings, labels = kit.batch(rows=4)[0], torch.zeros(4, dtype=torch.long)
    theirs = kit.make(name).compute_loss(embeddings, labels, None, embeddings, labels)["loss"]
    ours = values(kit.make(name), embeddings, labels)
    if isinstance(theirs["losses"], int):
        assert ours["losses"] == 0
    else:
        torch.testing.assert_close(ours["losses"], theirs["losses"].flatten())


# An anchor of GeneralizedLiftedStructureLoss without positives has another value, not none.
@pytest.mark.parametrize("name", [n for n in NAMES if n != "GeneralizedLiftedStructureLoss"])
@pytest.mark.parametrize("foreign", [False, True])
@pytest.mark.parametrize("reducer", [None, MeanReducer, SumReducer])
def test_a_small_weight_is_nearly_absence(name, foreign, reducer):
    """Two samples a class: what is left of the other one's class has no positive."""
    labels = torch.arange(4).repeat_interleave(2)
    embeddings = kit.batch(rows=8)[0]
    refs = kit.batch(rows=8, seed=5)[0]
    rows = torch.arange(8)

    def outcome(weight):
        table = SampleWeights(labels)
        table.update(torch.tensor([weight] + [1.0] * 7))
        x = embeddings.detach().clone().requires_grad_()
        loss = Weighted(kit.make(name), table)
        if reducer is not None:
            loss.loss.reducer = reducer()
        if foreign:
            value = loss(x, labels, None, refs, labels, sample_index=rows, ref_sample_index=rows)
        else:
            value = loss(x, labels, sample_index=rows)
        return value.detach(), torch.autograd.grad(value, x)[0]

    absent, gradient = outcome(0.0)
    for weight in (1e-30, 1e-36):
        small, its = outcome(weight)
        torch.testing.assert_close(small, absent, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(its, gradient, rtol=1e-6, atol=1e-6)
    # Nor does the way there jump: no gradient of the sample that fades is larger than at first.
    sizes = [outcome(weight)[1].norm() for weight in (1.0, 0.1, 1e-3, 1e-6, 1e-9)]
    assert all(size <= 2 * sizes[0] for size in sizes)


def test_supcon_under_equal_weights_keeps_every_anchor_and_never_falls_below_0():
    """By hand: log( e^s_p + sum over the others of w e^s ) - s_p, the mean over positives."""
    embeddings, labels = kit.batch(rows=12)
    loss = kit.make("SupConLoss")
    for weight in (1.0, 0.5, 0.1, 0.01):
        equal = torch.full((12,), weight, dtype=torch.float64)
        found = values(loss, embeddings, labels, weights=equal)
        unit = torch.nn.functional.normalize(embeddings)
        s = (unit @ unit.T / loss.temperature).exp()
        expected = torch.zeros(12, dtype=torch.float64)
        for i in range(12):
            positives = [p for p in range(12) if p != i and labels[p] == labels[i]]
            for p in positives:
                others = sum(weight * s[i, k] for k in range(12) if k not in (i, p))
                expected[i] += ((s[i, p] + others) / s[i, p]).log() / len(positives)
        torch.testing.assert_close(found["losses"], expected, rtol=1e-9, atol=1e-12)
        assert (found["losses"] > 0).all()
        torch.testing.assert_close(found["trust"], equal)
        table = SampleWeights(labels)
        table.update(torch.full((12,), weight))
        whole = Weighted(loss, table)(embeddings, labels, sample_index=torch.arange(12))
        torch.testing.assert_close(whole, expected.mean(), rtol=1e-6, atol=0)


def test_an_anchor_counts_as_much_as_its_best_positive():
    """Divided by hand: sum of w_i max_p w_p l_i over sum of w_i max_p w_p."""
    embeddings, labels = kit.batch(rows=12)
    weights = torch.linspace(0.05, 0.9, 12, dtype=torch.float64)
    table = SampleWeights(labels)
    table.update(weights)
    held = table.weights.double()
    same = (labels[:, None] == labels) & ~torch.eye(12, dtype=torch.bool)
    best = torch.where(same, held, 0).amax(1)
    worst = torch.where(labels[:, None] != labels, held, 0).amax(1)
    for name in ("SupConLoss", "NCALoss", "CircleLoss"):
        found = values(kit.make(name), embeddings, labels, weights=held)
        counts = held * best * (worst if name == "CircleLoss" else 1)
        each = torch.zeros(12, dtype=torch.float64)
        each = each.index_copy(0, found["indices"], found["losses"])
        where = (each > 0) | (name == "NCALoss")  # whose own reducer is the mean of all
        expected = (counts * each)[where].sum() / counts[where].sum()
        value = Weighted(kit.make(name), table)(embeddings, labels, sample_index=torch.arange(12))
        torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)


def test_rows_without_positives_count_in_a_mean_as_they_do_under_weights_of_1():
    embeddings, labels = kit.batch(rows=9)
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 3])  # the last one is alone
    for name in ("SupConLoss", "CircleLoss", "NCALoss"):
        loss = kit.make(name)
        loss.reducer = MeanReducer()
        table = SampleWeights(labels)
        plain = loss(embeddings, labels)
        table.update(torch.tensor([1.0] * 8 + [1 - 1e-7]))
        nearly = Weighted(loss, table)(embeddings, labels, sample_index=torch.arange(9))
        torch.testing.assert_close(nearly, plain, rtol=1e-5, atol=1e-6)
