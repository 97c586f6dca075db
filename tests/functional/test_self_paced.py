"""Hard self-paced weights against brute force, and the rescaled hinge."""

import itertools
import math

import mpmath
import pytest
import torch
from hypothesis import given, strategies as st
from torch.autograd import gradcheck, gradgradcheck

from bspml.errors import InputError
from bspml.functional import rescaled_hinge, self_paced_weights


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6), st.floats(-6, 6))
def test_the_weights_minimise_the_self_paced_objective(losses, age):
    """Linear in w, so a corner of the box is best: try all of them."""
    weights = self_paced_weights(torch.tensor(losses, dtype=torch.float64), age).tolist()
    objective = lambda w: sum(v * (x - age) for v, x in zip(w, losses, strict=True))  # noqa: E731
    best = min(map(objective, itertools.product((0, 1), repeat=len(losses))))
    assert objective(weights) == pytest.approx(best, abs=1e-12)


def test_a_loss_equal_to_the_age_is_taken():
    assert self_paced_weights(torch.tensor([0.1, 0.2]), 0.1).tolist() == [1, 0]
    assert self_paced_weights(torch.tensor([[1.0], [2.0]]), 1).tolist() == [[1], [0]]


def test_infinite_ages_take_all_and_none():
    losses = torch.tensor([-1e38, 0.0, 1e38, math.nan])
    assert self_paced_weights(losses, math.inf).tolist() == [1, 1, 1, 0]
    assert self_paced_weights(losses, -math.inf).tolist() == [0, 0, 0, 0]


def test_the_weights_carry_no_gradient_and_are_float32_at_least():
    losses = torch.tensor([1.0], requires_grad=True)
    assert not self_paced_weights(losses, 2).requires_grad
    assert self_paced_weights(losses.detach().half(), 2).dtype == torch.float32


def test_unusable_losses_and_ages_are_refused():
    with pytest.raises(InputError, match="reduction='none'"):
        self_paced_weights(torch.tensor(1.0), 1)
    with pytest.raises(InputError, match="`age` must be"):
        self_paced_weights(torch.ones(2), math.nan)


@pytest.mark.parametrize("eta", [0.0, 5e-324, 1e-40, 1e-8, 0.5, 3.0, 50.0, 1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_rescaled_hinge_is_its_formula(eta, dtype):
    hinge = torch.tensor([0.0, 1e-6, 0.3, 1.0, 7.0, 1e4], dtype=dtype, requires_grad=True)
    value = rescaled_hinge(hinge, eta)
    value.sum().backward()
    with mpmath.workdps(400):
        for h, got, slope in zip(hinge.tolist(), value.tolist(), hinge.grad.tolist(), strict=True):
            x, e = mpmath.mpf(h), mpmath.mpf(eta)
            scale = 1 / -mpmath.expm1(-e) if eta else mpmath.mpf(1)
            exact = -mpmath.expm1(-e * x) * scale if eta else x
            exact_slope = e * mpmath.exp(-e * x) * scale if eta else mpmath.mpf(1)
            relative = 200 * torch.finfo(dtype).eps
            assert abs(got - exact) <= relative * exact
            assert abs(slope - exact_slope) <= relative * exact_slope + 1e-37


@given(st.lists(st.floats(0, 100), min_size=2, max_size=10), st.floats(1e-3, 20))
def test_the_rescaled_hinge_rises_and_is_bounded(hinges, eta):
    value = rescaled_hinge(torch.tensor(sorted(hinges), dtype=torch.float64), eta)
    assert (value.diff() >= -1e-15).all()
    assert value.max() <= (1 + 1e-12) / -math.expm1(-eta)


def test_the_rescaled_hinge_passes_gradcheck_twice():
    hinge = torch.tensor([0.2, 1.0, 4.0], dtype=torch.float64, requires_grad=True)
    for eta in (0.0, 1e-5, 0.5, 3.0):
        assert gradcheck(lambda h, eta=eta: rescaled_hinge(h, eta), hinge)
        assert gradgradcheck(lambda h, eta=eta: rescaled_hinge(h, eta), hinge)


@pytest.mark.parametrize("eta", [0.5, 1e4])
def test_huge_and_infinite_hinges_reach_the_bound(eta):
    hinge = torch.tensor([math.inf, 3e38, 0.0], requires_grad=True)
    value = rescaled_hinge(hinge, eta)
    value.sum().backward()
    assert value[:2].tolist() == pytest.approx([1 / -math.expm1(-eta)] * 2)
    assert hinge.grad[:2].tolist() == [0, 0]


def test_a_negative_hinge_and_eta_are_refused():
    with pytest.raises(InputError, match=r"`hinge` must be at least 0; got -1 .*relu"):
        rescaled_hinge(torch.tensor([0.0, -1.0]), 0.5)
    with pytest.raises(InputError, match="`eta` must be in"):
        rescaled_hinge(torch.ones(2), -0.5)
