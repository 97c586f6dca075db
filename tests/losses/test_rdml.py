"""RDML against a loop over triplets."""

import math

import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity, LpDistance
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.reducers import DoNothingReducer, MeanReducer

from bspml.errors import InputError
from bspml.losses.rdml import RDMLLoss
from bspml.losses.reducers import GradientRescaling, SuperLoss
from helpers.draws import normal_batch

ETAS = (0.5, 1.0, 2.0, 3.0, 4.0)
EXACT = {"rtol": 0, "atol": 1e-12}


def batch(rows=12, classes=4, dtype=torch.float64, seed=0):
    return normal_batch(rows, 5, classes, seed, dtype)


def loop(emb, labels, eta, margin):
    """Every triplet by itself, active ones averaged."""
    unit = emb / emb.norm(dim=1, keepdim=True)
    values = []
    for a in range(len(emb)):
        for p in range(len(emb)):
            for n in range(len(emb)):
                if a != p and labels[a] == labels[p] and labels[a] != labels[n]:
                    near = (unit[a] - unit[p]).square().sum()
                    far = (unit[a] - unit[n]).square().sum()
                    h = torch.relu(near - far + margin)
                    if h > 0:
                        values.append((1 - torch.exp(-eta * h)) / (1 - math.exp(-eta)))
    return torch.stack(values).mean()


@pytest.mark.parametrize("eta", ETAS)
@pytest.mark.parametrize("margin", [1.0, 0.3])
def test_it_is_the_mean_rescaled_hinge_of_the_violating_triplets(eta, margin):
    emb, labels = batch()
    value = RDMLLoss(eta, margin)(emb, labels)
    expected = loop(emb, labels, eta, margin)
    torch.testing.assert_close(value, expected, **EXACT)
    grad, expected_grad = (torch.autograd.grad(v, emb)[0] for v in (value, expected))
    torch.testing.assert_close(grad, expected_grad, **EXACT)


def test_a_triplet_by_hand():
    # d_ap = 2 and d_an = 0, squared: h = 2 - 0 + 1 = 3; (1 - e^-1.5) / (1 - e^-.5) = 1.974410
    emb = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    triplet = tuple(torch.tensor([row]) for row in range(3))
    assert RDMLLoss(0.5)(emb, indices_tuple=triplet).item() == pytest.approx(1.974410, abs=1e-6)


def test_eta_0_is_the_plain_hinge_and_small_eta_close_to_it():
    emb, labels = batch()
    plain = TripletMarginLoss(margin=1.0, distance=LpDistance(power=2))(emb, labels)
    torch.testing.assert_close(RDMLLoss(0)(emb, labels), plain, **EXACT)
    torch.testing.assert_close(RDMLLoss(1e-7)(emb, labels), plain, rtol=1e-6, atol=0)


def test_a_hopeless_triplet_pulls_less_than_under_the_hinge_and_less_the_larger_eta():
    emb = torch.tensor([[1.0, 0.1], [-1.0, 0.2], [1.0, 0.0]], dtype=torch.float64)
    pulls = []
    for eta in (0.0, *ETAS):
        leaf = emb.clone().requires_grad_()
        RDMLLoss(eta)(leaf, indices_tuple=tuple(torch.tensor([i]) for i in range(3))).backward()
        pulls.append(float(leaf.grad.norm()))
    assert pulls == sorted(pulls, reverse=True)
    assert pulls[-1] < 1e-6


def test_values_are_bounded_by_their_limit():
    emb, labels = batch(24)
    for eta in ETAS:
        losses = RDMLLoss(eta, reducer=DoNothingReducer())(emb, labels)["loss"]["losses"]
        assert (
            0
            <= float(losses.detach().min())
            <= float(losses.detach().max())
            <= 1 / -math.expm1(-eta)
        )


def test_the_gradient_is_that_of_the_values():
    # The mean of all triplets: the choice of active ones is not differentiable.
    emb, labels = batch(6, 2)
    loss = RDMLLoss(2.0, reducer=MeanReducer())
    assert torch.autograd.gradcheck(lambda e: loss(e, labels), (emb,))


def test_similarities_references_and_half_precision_work():
    emb, labels = batch(dtype=torch.float32)
    refs, ref_labels = batch(9, 3, torch.float32, seed=1)
    value = RDMLLoss(1.0, distance=CosineSimilarity())(emb, labels, None, refs, ref_labels)
    assert value > 0
    half = RDMLLoss(1.0)(emb.half(), labels)
    torch.testing.assert_close(half.float(), RDMLLoss(1.0)(emb, labels), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [0]])
def test_a_batch_without_triplets_costs_nothing_but_keeps_the_graph(labels):
    emb = torch.randn(len(labels), 3, requires_grad=True)
    value = RDMLLoss(1.0)(emb, torch.tensor(labels))
    value.backward()
    assert value == 0
    assert torch.equal(emb.grad, torch.zeros_like(emb))


@pytest.mark.parametrize("wrapper", [SuperLoss, GradientRescaling])
def test_it_can_be_wrapped_as_a_hinge(wrapper):
    emb, labels = batch()
    loss = wrapper(RDMLLoss(1.0))
    loss(emb, labels).backward()
    assert emb.grad.isfinite().all()
    assert getattr(loss.reducer, "kind", "hinge") == "hinge"


def test_impossible_settings_are_refused():
    with pytest.raises(InputError, match=r"`eta` must be in \[0, inf\); got -1"):
        RDMLLoss(-1)
    with pytest.raises(InputError, match="`margin` must be finite"):
        RDMLLoss(1, margin=math.inf)
    with pytest.raises(TypeError, match="smooth_loss"):
        RDMLLoss(1, smooth_loss=True)
