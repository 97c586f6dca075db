import pytest
import torch
from pytorch_metric_learning import losses as pml_losses, reducers as pml_reducers
from pytorch_metric_learning.regularizers import LpRegularizer

from bspml.errors import InputError
from bspml.losses.reducers import IMAE, GradientRescaling, SuperLoss, TransformReducer
from bspml.losses.reducers.catalogue import CATALOGUE
from bspml.losses.reducers.inner import make_plan
from bspml.losses.reducers.wrapping import _facts
from helpers import reducer_kit as kit


class Largest(pml_reducers.MeanReducer):
    """The mean of the largest half: linear in the losses it picks."""

    def element_reduction(self, losses, *_):
        return losses.flatten().topk(len(losses) // 2).values.mean()


class LogMeanExp(pml_reducers.MeanReducer):
    """Not linear."""

    def element_reduction(self, losses, *_):
        return losses.exp().mean().log()


REDUCERS = [
    pml_reducers.MeanReducer(),
    pml_reducers.SumReducer(),
    pml_reducers.AvgNonZeroReducer(),
    pml_reducers.ThresholdReducer(low=0.1, high=1.0),
    pml_reducers.ClassWeightedReducer(torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64)),
    pml_reducers.PerAnchorReducer(),
    pml_reducers.PerAnchorReducer(reducer=pml_reducers.AvgNonZeroReducer()),
    Largest(),
    pml_reducers.MultipleReducers(
        {"pos_loss": pml_reducers.SumReducer()}, default_reducer=pml_reducers.AvgNonZeroReducer()
    ),
]


@pytest.mark.parametrize("reducer", REDUCERS, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("name", ["ContrastiveLoss", "NCALoss"])
def test_the_identity_keeps_what_every_reducer_does(name, reducer):
    embeddings, labels = kit.batch()
    plain, wrapped = kit.make(name, reducer=reducer), kit.make(name, reducer=reducer)
    wrapped.reducer = TransformReducer(wrapped.reducer, _facts(wrapped, CATALOGUE[name]))
    expected = kit.value_and_gradient(plain, embeddings, labels)
    got = kit.value_and_gradient(wrapped, embeddings, labels)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_a_class_weighted_reducer_meets_each_loss_once():
    """Multi-similarity losses come as (N, 1); multiplied by (N,) they would become (N, N)."""
    embeddings, labels = kit.batch()
    weights = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.float64)
    loss = kit.make("MultiSimilarityLoss", reducer=pml_reducers.ClassWeightedReducer(weights))
    losses = kit.elements(loss, embeddings, labels)["loss"]
    wrapped = SuperLoss(loss, lam=1e15, tau=0.0)
    got = wrapped(embeddings, labels)
    torch.testing.assert_close(got.detach(), (losses * weights[labels]).mean())


def test_the_sum_is_n_times_the_mean():
    embeddings, labels = kit.batch()
    mean = SuperLoss(kit.make("MultiSimilarityLoss"), tau=0.5)(embeddings, labels)
    total = SuperLoss(kit.make("MultiSimilarityLoss", reducer=pml_reducers.SumReducer()), tau=0.5)(
        embeddings, labels
    )
    torch.testing.assert_close(total, len(labels) * mean)


def test_easy_triplets_are_not_dropped_for_being_negative_after_the_transform():
    embeddings, labels = kit.batch()
    loss = kit.make("TripletMarginLoss", margin=1.0)
    raw = kit.elements(loss, embeddings, labels)["loss"]
    wrapped = SuperLoss(loss, lam=0.25, tau=10.0)  # every loss lies below tau
    value = wrapped(embeddings, labels)
    kept = wrapped.reducer.confidences["loss"].kept
    assert torch.equal(kept, raw > 0)
    assert 0 < kept.sum() < len(kept)
    assert value < 0


def test_thresholds_are_those_of_the_raw_losses():
    raw = torch.tensor([0.0, 0.1, 0.5, 1.0, 2.0])
    reducer = pml_reducers.ThresholdReducer(low=0.1, high=1.0)
    plan = make_plan(reducer, "loss", {}, raw, torch.zeros(5, 2), None)
    assert plan.keep.tolist() == [False, False, True, False, False]
    assert plan.finish(torch.tensor([9.0, 9.0, -4.0, 9.0, 9.0])).item() == -4.0


def test_a_threshold_that_nothing_passes_gives_zero_with_a_gradient():
    embeddings, labels = kit.batch()
    loss = kit.make("ContrastiveLoss", reducer=pml_reducers.ThresholdReducer(low=1e9))
    value, gradient = kit.value_and_gradient(SuperLoss(loss), embeddings, labels)
    assert value == 0
    assert not gradient.any()


def test_doing_nothing_returns_the_transformed_losses_flat():
    embeddings, labels = kit.batch()
    loss = kit.make("MultiSimilarityLoss", reducer=pml_reducers.DoNothingReducer())
    terms = SuperLoss(loss, tau=0.5)(embeddings, labels)
    assert terms["loss"]["losses"].shape == (12,)
    assert terms["loss"]["indices"].tolist() == list(range(12))
    mean = SuperLoss(kit.make("MultiSimilarityLoss"), tau=0.5)(embeddings, labels)
    torch.testing.assert_close(terms["loss"]["losses"].mean(), mean)


def test_a_reducer_of_ones_own_picks_on_raw_losses():
    embeddings, labels = kit.batch()
    loss = kit.make("NCALoss", reducer=Largest())
    losses = kit.elements(loss, embeddings, labels)["loss"]
    picked = losses.topk(6)
    wrapped = SuperLoss(loss, lam=1e15, tau=0.25)
    value = wrapped(embeddings, labels)
    torch.testing.assert_close(value.detach(), (picked.values - 0.25).mean())
    kept = wrapped.reducer.confidences["loss"].kept
    assert set(kept.nonzero().flatten().tolist()) == set(picked.indices.tolist())


def test_a_reducer_that_is_not_linear_is_refused_by_name():
    embeddings, labels = kit.batch()
    loss = SuperLoss(kit.make("NCALoss", reducer=LogMeanExp()))
    with pytest.raises(InputError, match="LogMeanExp is not linear in the losses it picks"):
        loss(embeddings, labels)


def test_a_reducer_that_combines_sub_losses_its_own_way_is_refused():
    class Product(pml_reducers.MultipleReducers):
        def forward(self, loss_dict, embeddings, labels):
            raise AssertionError

    loss = kit.make("ContrastiveLoss")
    loss.set_reducer(Product({}))
    with pytest.raises(InputError, match="reducer Product, which combines sub-losses"):
        SuperLoss(loss)


def test_combining_by_sub_loss_reduction_is_kept():
    class Half(pml_reducers.MultipleReducers):
        def sub_loss_reduction(self, sub_losses, embeddings=None, labels=None):
            return sub_losses.sum() / 2

    embeddings, labels = kit.batch()
    whole, half = kit.make("ContrastiveLoss"), kit.make("ContrastiveLoss")
    half.set_reducer(Half(dict(half.reducer.reducers)))
    torch.testing.assert_close(
        2 * SuperLoss(half, tau=0.5)(embeddings, labels),
        SuperLoss(whole, tau=0.5)(embeddings, labels),
    )


class RootMeanSquare(pml_reducers.MeanReducer):
    """Not linear, although twice the losses give twice the value."""

    def element_reduction(self, losses, *_):
        return losses.square().mean().sqrt()


def test_a_reducer_that_only_scales_like_a_linear_one_is_refused_by_name():
    embeddings, labels = kit.batch()
    loss = SuperLoss(kit.make("NCALoss", reducer=RootMeanSquare()))
    with pytest.raises(InputError, match="RootMeanSquare is not linear in the losses it picks"):
        loss(embeddings, labels)


@pytest.mark.parametrize("wrapper", [SuperLoss, GradientRescaling, IMAE])
@pytest.mark.parametrize("embeddings", [torch.ones(8, 4), torch.zeros(8, 4)])
def test_a_batch_that_nothing_of_enters_has_no_gradient_not_even_nan(wrapper, embeddings):
    """All embeddings alike: the noise of a signal is 0, its ratio's derivative infinite."""
    embeddings = embeddings.clone().requires_grad_()
    loss = wrapper(pml_losses.SignalToNoiseRatioContrastiveLoss())
    value = loss(embeddings, torch.arange(8) // 2)
    (gradient,) = torch.autograd.grad(value, embeddings)
    assert value == 0
    assert not gradient.any()


def test_a_divisor_of_zero_gives_zero_with_a_gradient():
    class Undivided(pml_losses.BaseMetricLossFunction):
        def compute_loss(self, embeddings, labels, indices_tuple, ref_emb, ref_labels):
            rows, losses = torch.arange(len(embeddings)), (embeddings * 0).sqrt().sum(1)
            info = {"losses": losses, "indices": rows, "reduction_type": "element", "divisor": 0}
            return {"loss": info}

    embeddings, labels = kit.batch()
    loss = SuperLoss(Undivided(reducer=pml_reducers.DivisorReducer()))
    value, gradient = kit.value_and_gradient(loss, embeddings, labels)
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize("wrapper", [SuperLoss, GradientRescaling])
def test_beside_a_regulariser_smooth_ap_keeps_the_reducer_it_was_given(wrapper):
    """Its sub-loss is called ap_loss, and pytorch-metric-learning sets reducers for `loss`."""
    embeddings, labels = kit.batch()
    values = []
    for reducer in (pml_reducers.SumReducer(), pml_reducers.MeanReducer()):
        loss = kit.make(
            "SmoothAPLoss",
            reducer=reducer,
            embedding_regularizer=LpRegularizer(),
            embedding_reg_weight=0.0,
        )
        values.append(wrapper(loss)(embeddings, labels))
    torch.testing.assert_close(values[0], 12 * values[1])
