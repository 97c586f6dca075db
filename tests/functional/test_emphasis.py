"""Emphasis focus and spread against search and quadrature, and the published variances."""

import math
import warnings

import mpmath
import pytest
import torch
from hypothesis import given, strategies as st

from bspml.errors import InputError
from bspml.functional import (
    WeightCurve,
    emphasis_focus,
    emphasis_spread,
    gr_cross_entropy,
    imae_variance,
)
from bspml.functional.gradient_rescaling import imae


def variance_by_quadrature(weight):
    """Of weight(p), p uniform in [0, 1], with thirty digits."""
    with mpmath.workdps(30):
        places = [0, 0.01, 0.1, 0.3, 0.5, 0.8, 1]
        mean = mpmath.quad(weight, places)
        return float(mpmath.quad(lambda p: (weight(p) - mean) ** 2, places))


def test_the_published_variances():
    """[Wang IMAE 2019]: MAE 0.09, cross-entropy 0.33, T = 8 4.55."""
    assert round(WeightCurve.mae().spread(), 2) == 0.09
    assert round(WeightCurve.cross_entropy().spread(), 2) == 0.33
    assert round(imae_variance(8), 2) == 4.55
    assert WeightCurve.mae().spread() == pytest.approx(4 / 45, rel=1e-14)
    assert WeightCurve.cross_entropy().spread() == pytest.approx(1 / 3, rel=1e-14)


@pytest.mark.parametrize("T", [1e-3, 0.5, 1.0, 1.999, 2.0, 2.001, 8.0, 16.0, 100.0])
def test_imae_variance_is_the_integral(T):
    with mpmath.workdps(40):
        weight = lambda p: mpmath.exp(T * p * (1 - p))  # noqa: E731
        mean = mpmath.quad(weight, [0, 0.5, 1])
        exact = mpmath.quad(lambda p: (weight(p) - mean) ** 2, [0, 0.25, 0.5, 0.75, 1])
    assert imae_variance(T) == pytest.approx(float(exact), rel=1e-13)


def test_imae_variance_at_its_ends():
    assert imae_variance(0) == 0
    assert imae_variance(1e-150) == pytest.approx(1e-300 / 180)  # T^2 var(p (1 - p))
    assert math.isfinite(imae_variance(1400))
    for T in (-1, 1401, math.nan):
        with pytest.raises(InputError, match=r"`T` must be in \[0, 1400\]"):
            imae_variance(T)


@given(st.floats(0, 100), st.floats(0.01, 5))
def test_imae_variance_rises_with_t(T, more):
    assert imae_variance(T + more) > imae_variance(T)


@pytest.mark.parametrize(
    ("beta", "lam", "g"),
    [(8, 0.5, "exp"), (2, 0, "exp"), (12, 1, "exp"), (24, 2, "exp"), (8, 0.1, "exp"),
     (0.01, 0.5, "exp"), (2, 0.7, "identity"), (3, 2.5, "identity")],
)  # fmt: skip
def test_the_spread_for_uniform_p_is_the_integral(beta, lam, g):
    def weight(p):
        scaled = beta * (p**lam if lam else 1) * (1 - p)
        return mpmath.exp(scaled) if g == "exp" else scaled

    spread = WeightCurve(beta, lam, g).spread()
    assert spread == pytest.approx(variance_by_quadrature(weight), rel=1e-9)


@pytest.mark.parametrize("lam", [0.5, 10, 1e3, 1e4])
def test_the_spread_of_nearly_equal_weights_is_that_of_their_exponents(lam):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spread = WeightCurve(beta=1e-6, lam=lam).spread()
    assert spread == pytest.approx(WeightCurve(1e-6, lam, "identity").spread(), rel=1e-5)


@pytest.mark.parametrize("curve", [WeightCurve(1000, 0.5), WeightCurve(1e200, 0.5, "identity")])
def test_a_spread_beyond_float64_is_refused(curve):
    with pytest.raises(InputError, match="beyond float64"):
        curve.spread()


def test_the_spread_of_a_batch_is_the_population_variance():
    p = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    curve = WeightCurve.cross_entropy()  # weights 2, 1, 0
    assert curve.spread(p) == pytest.approx(2 / 3)
    assert emphasis_spread(torch.tensor([3.0])) == 0
    many = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    for curve in (WeightCurve.mae(), WeightCurve.imae(8), WeightCurve(8, 0.5)):
        assert curve.spread(many) == pytest.approx(curve.spread(), rel=1e-3)


def test_large_weights_keep_the_digits_of_their_spread():
    weights = 1e6 + torch.tensor([0.0, 1.0])
    assert emphasis_spread(weights) == 0.25


@given(st.floats(0.1, 30), st.floats(0, 4), st.sampled_from(["exp", "identity"]))
def test_the_focus_is_where_the_weight_is_largest(beta, lam, g):
    curve = WeightCurve(beta, lam, g)
    p = torch.linspace(0, 1, 10_001, dtype=torch.float64)
    found = p[curve(p).argmax()].item()
    assert curve.focus == pytest.approx(found, abs=2e-4)
    assert emphasis_focus(beta, lam) == curve.focus


def test_the_published_focuses():
    assert WeightCurve.cross_entropy().focus == 0
    assert WeightCurve.mae().focus == 0.5
    assert 0 < WeightCurve.gce(0.7).focus < 0.5
    assert WeightCurve.imae(8).focus == 0.5
    assert 0.5 < WeightCurve(8, 2).focus < 1
    assert WeightCurve(0).focus is None


@pytest.mark.parametrize(
    "curve",
    [WeightCurve.cross_entropy(), WeightCurve.mae(), WeightCurve.gce(0.3), WeightCurve.imae(8)],
)
def test_a_curve_is_the_gradient_norm_of_its_loss(curve):
    logits = torch.tensor([[0.0, 2.0], [0.0, 0.0], [3.0, 0.0]], dtype=torch.float64)
    labels = torch.zeros(3, dtype=torch.long)
    p = logits.softmax(1)[:, 0]
    logits.requires_grad_()
    gr_cross_entropy(logits, labels, curve.beta, curve.lam, curve.g).sum().backward()
    torch.testing.assert_close(curve(p), logits.grad.abs().sum(1), rtol=1e-12, atol=0)


def test_arguments_outside_their_range_are_refused():
    with pytest.raises(InputError, match="`beta` must be in"):
        WeightCurve(-1)
    with pytest.raises(InputError, match="`g` must be one of"):
        WeightCurve(1, 0, "square")
    with pytest.raises(InputError, match=r"`q` must be in \[0, 1\]"):
        WeightCurve.gce(2)
    with pytest.raises(InputError, match=r"overflows torch.float64"):
        WeightCurve(1e4)
    with pytest.raises(InputError, match="at least one weight"):
        emphasis_spread(torch.zeros(0))
    with pytest.raises(InputError, match="`weights` must hold one loss per element"):
        emphasis_spread(torch.tensor(1.0))


def test_imae_refuses_too_large_a_t_in_its_own_name():
    logits, labels = torch.zeros(2, 3), torch.tensor([0, 1])
    with pytest.raises(InputError, match="`T` = 400 overflows"):
        imae(logits, labels, T=400)
    with pytest.raises(InputError, match="`T` = 4000 overflows"):
        WeightCurve.imae(4000)
    with pytest.raises(InputError, match="`T` must be in"):
        imae(logits, labels, T=-1)
