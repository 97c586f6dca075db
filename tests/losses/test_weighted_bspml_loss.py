"""`Weighted` around our own loss, which multiplies by weights itself, wrapped or not."""

import pytest
import torch
from pytorch_metric_learning import losses, reducers, regularizers

import bspml
from bspml.errors import InputError

LABELS = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
ROWS = torch.arange(9)
WRAPPERS = {
    "superloss": lambda loss: bspml.SuperLoss(loss, lam=0.3, tau=0.4),
    "mean tau": lambda loss: bspml.SuperLoss(loss, lam=0.3, tau="mean"),
    "gr": lambda loss: bspml.GradientRescaling(loss, beta=4, lam=0.5),
    "imae": lambda loss: bspml.IMAE(loss, T=4),
}


def value_and_gradient(loss, weights=None):
    points = torch.randn(9, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    points.requires_grad_()
    rows = ROWS if weights is None else ROWS[weights > 0]
    known = {"sample_index": rows} if weights is None else {}
    value = loss(torch.nn.functional.normalize(points[rows]), LABELS[rows], **known)
    return value, torch.autograd.grad(value, points)[0]


@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("fractions", [False, True])
def test_whichever_goes_around_the_other_is_the_same(name, fractions):
    numbers = torch.tensor([1, 0, 1, 1, 0.5, 1, 0.2, 1, 1]) if fractions else (ROWS != 1).float()
    weights = bspml.SampleWeights(LABELS)
    weights.update(numbers)
    wrap = WRAPPERS[name]
    outer = bspml.Weighted(wrap(bspml.BSPMLLoss()), weights)
    expected = value_and_gradient(wrap(bspml.Weighted(bspml.BSPMLLoss(), weights)))
    for found in (outer, bspml.Weighted(wrap(bspml.BSPMLLoss(weights)), weights)):
        for ours, theirs in zip(value_and_gradient(found), expected, strict=True):
            assert torch.equal(ours, theirs)
    if not fractions:  # weight 0 is absence
        alone = value_and_gradient(wrap(bspml.BSPMLLoss()), numbers)
        for ours, theirs in zip(expected, alone, strict=True):
            assert torch.allclose(ours, theirs)
    confidences = outer.loss.reducer.sample_confidences()
    assert confidences.isnan().nonzero()[:, 0].tolist() == [1]


def test_weights_that_the_wrapper_had_before_count_once():
    weights = bspml.SampleWeights(LABELS)
    weights.update(torch.linspace(0.2, 1, 9))
    wrapped = bspml.SuperLoss(bspml.BSPMLLoss(), lam=0.3, tau=0.4, sample_weights=weights)
    expected = bspml.SuperLoss(bspml.Weighted(bspml.BSPMLLoss(), weights), lam=0.3, tau=0.4)
    found = bspml.Weighted(wrapped, weights)
    for ours, theirs in zip(value_and_gradient(found), value_and_gradient(expected), strict=True):
        assert torch.equal(ours, theirs)
    others = bspml.SuperLoss(bspml.BSPMLLoss(), sample_weights=bspml.SampleWeights(LABELS))
    with pytest.raises(InputError, match="another table"):
        bspml.Weighted(others, weights)


@pytest.mark.parametrize(
    "reducer", [reducers.MeanReducer, reducers.AvgNonZeroReducer, reducers.PerAnchorReducer]
)
@pytest.mark.parametrize("wrap", [lambda loss: loss, *WRAPPERS.values()])
def test_a_mean_that_counts_samples_of_weight_0_is_refused(reducer, wrap):
    weights = bspml.SampleWeights(LABELS)
    with pytest.raises(InputError, match="counts samples, not their weights"):
        bspml.Weighted(wrap(bspml.BSPMLLoss(reducer=reducer())), weights)


@pytest.mark.parametrize("smoothing", ["class", "sample"])
@pytest.mark.parametrize("inside", [bspml.BSPMLLoss, losses.MultiSimilarityLoss])
def test_what_weighs_nothing_moves_no_average_of_its_class(smoothing, inside):
    weights, keep = bspml.SampleWeights(LABELS), ROWS % 4 > 0
    weights.update(keep)
    points = torch.randn(9, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def smoothed(loss):
        settings = {"tau": 0.4, "smoothing": smoothing, "sample_weights": weights}
        wrapped = bspml.SuperLoss(loss, **settings)
        return bspml.Weighted(wrapped, weights), wrapped.reducer

    loss, reducer = smoothed(inside())
    alone, its_reducer = smoothed(inside())
    for _ in range(2):
        value = loss(points, LABELS, sample_index=ROWS)
        expected = alone(points[keep], LABELS[keep], sample_index=ROWS[keep])
        torch.testing.assert_close(value, expected)
    torch.testing.assert_close(reducer.smoothed.average, its_reducer.smoothed.average)
    assert torch.equal(reducer.smoothed.seen, its_reducer.smoothed.seen)


@pytest.mark.parametrize("numbers", [[1, 0, 1, 1, 0, 1, 1, 1, 1], [1, 0, 1, 0.3, 1, 1, 0, 1, 0.6]])
def test_a_triplet_goes_with_any_of_its_samples(numbers):
    """As under any loss: the negative of a positive that weighs 0 is no pair either."""
    weights = bspml.SampleWeights(LABELS)
    weights.update(numbers)
    points = torch.randn(9, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    triplets = torch.tensor([[0, 1, 3], [0, 2, 6], [3, 4, 7], [3, 5, 8], [8, 7, 1], [7, 6, 0]]).T
    ours, theirs = (
        bspml.Weighted(loss, weights)(points, LABELS, tuple(triplets), sample_index=ROWS)
        for loss in (bspml.BSPMLLoss(), losses.MultiSimilarityLoss())
    )
    torch.testing.assert_close(ours, theirs)
    paper = bspml.BSPMLLoss(weights, weighting="paper")
    assert paper(points, LABELS, tuple(triplets), sample_index=ROWS) > 0


@pytest.mark.parametrize("reducer", [None, reducers.SumReducer, reducers.DoNothingReducer])
def test_what_weighs_nothing_is_not_in_the_regularizer_either(reducer):
    weights, keep = bspml.SampleWeights(LABELS), ROWS % 4 > 0
    weights.update(keep)
    points = torch.randn(9, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def regular(weights=None):
        given = {} if reducer is None else {"reducer": reducer()}
        of = {"embedding_regularizer": regularizers.ZeroMeanRegularizer(), "weights": weights}
        return bspml.BSPMLLoss(**of, **given)

    def number(found):
        parts = found.values() if isinstance(found, dict) else [{"losses": found}]
        return sum(part["losses"].sum() for part in parts)

    expected = number(regular()(points[keep], LABELS[keep]))
    for loss in (regular(weights), bspml.Weighted(regular(), weights)):
        torch.testing.assert_close(number(loss(points, LABELS, sample_index=ROWS)), expected)
