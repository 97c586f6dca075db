"""The four confidence losses against their formulas, their minima and their gradients."""

import math

import mpmath
import pytest
import torch
from hypothesis import given, strategies as st
from torch.autograd import gradcheck, gradgradcheck

from bspml.errors import InputError
from bspml.functional import (
    data_parameters_loss,
    introspection_loss,
    multi_task_loss,
    reliability_loss,
)
from helpers.draws import double


@pytest.mark.parametrize(
    "sigma", [1e-30, 1e-8, 1e-3, 0.3, 0.999, 1.0, 1.001, 3.0, 30.0, 700.0, 1e5]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_introspection_is_its_formula_at_every_scale(sigma, dtype):
    confidence = torch.tensor([sigma], dtype=dtype, requires_grad=True)
    zero, one = torch.zeros(1, dtype=dtype), torch.ones(1, dtype=dtype)
    value = introspection_loss(zero, one, confidence)  # the logarithm alone
    value.backward()
    with mpmath.workdps(80):
        x = mpmath.mpf(confidence.item())
        exact = mpmath.log(mpmath.expm1(x) / x)
        slope = 1 / -mpmath.expm1(-x) - 1 / x
    relative = 8 * torch.finfo(dtype).eps
    assert abs(value.item() - exact) <= relative * exact
    assert abs(confidence.grad.item() - slope) <= relative * slope


def test_introspection_is_a_density():
    """e^-loss integrates to 1 over y s in [0, 1]: it is a negative log-likelihood."""
    for sigma in (0.1, 1.0, 5.0):
        s = torch.linspace(0, 1, 2001, dtype=torch.float64)
        density = torch.exp(-introspection_loss(s, torch.ones(()), double([sigma])))
        assert torch.trapezoid(density, s).item() == pytest.approx(1, rel=1e-6)


def test_introspection_of_a_wrong_pair_is_best_at_no_confidence():
    sigma = double([1e-6, 0.5, 1.0, 2.0])
    loss = introspection_loss(double([0.5]), double([-1.0]), sigma)
    assert (loss.diff() > 0).all()


def test_introspection_passes_gradcheck_on_both_sides_of_one():
    s = double([0.2, 0.9, 0.5], requires_grad=True)
    sigma = double([0.01, 0.7, 4.0], requires_grad=True)
    y = torch.tensor([1, -1, 1])
    assert gradcheck(lambda a, b: introspection_loss(a, y, b), (s, sigma))
    assert gradgradcheck(lambda a, b: introspection_loss(a, y, b), (s, sigma))


def test_introspection_refuses_values_outside_its_domain():
    one = torch.ones(2)
    with pytest.raises(InputError, match=r"`similarity` must lie in \[0, 1\]; got -0.5"):
        introspection_loss(torch.tensor([0.5, -0.5]), one, one)
    with pytest.raises(InputError, match=r"`confidence` must be positive; got 0 .*exp"):
        introspection_loss(one, one, torch.tensor([1.0, 0.0]))
    with pytest.raises(InputError, match=r"`sign` must be 1 or -1; got 0 .*classes 0 and 1"):
        introspection_loss(one, torch.tensor([1, 0]), one)
    with pytest.raises(InputError, match=r"`sign` must be 1 or -1; got 0 .*classes 0 and 1"):
        introspection_loss(one, torch.tensor([True, False]), one)
    with pytest.raises(InputError, match=r"`sign` must be a tensor of 1 and -1; got .*complex64"):
        introspection_loss(one, one + 0j, one)


@pytest.mark.parametrize("place", range(3))
def test_shapes_that_do_not_broadcast_are_named(place):
    given = [torch.ones(2, 1), torch.ones(2), torch.ones(1)]
    assert introspection_loss(*given).shape == (2, 2)
    given[place] = torch.ones(3, 3)
    with pytest.raises(InputError, match=r"broadcast to one shape; got `similarity`.*\(3, 3\)"):
        introspection_loss(*given)
    with pytest.raises(InputError, match=r"`average_precision` \(2,\), `reliability` \(3,\)"):
        reliability_loss(torch.ones(2), torch.ones(3))


@given(st.floats(0, 1), st.floats(0, 1))
def test_reliability_is_its_formula_and_extreme_at_best(ap, sigma):
    value = reliability_loss(double([ap]), double([sigma])).item()
    assert value == pytest.approx(sigma * (1 - ap) + (1 - sigma) / 2, abs=1e-15)
    best = min(reliability_loss(double([ap]), double([s])).item() for s in (0.0, 1.0))
    assert best <= value + 1e-15
    assert best == pytest.approx(min(0.5, 1 - ap), abs=1e-15)


def test_reliability_passes_gradcheck_and_refuses_values_outside():
    ap, sigma = double([0.2, 0.8], requires_grad=True), double([0.5, 0.1], requires_grad=True)
    assert gradcheck(reliability_loss, (ap, sigma))
    with pytest.raises(InputError, match=r"`average_precision` must lie in \[0, 1\]; got 1.2"):
        reliability_loss(torch.tensor([1.2]), torch.tensor([0.5]))
    with pytest.raises(InputError, match=r"`reliability` must lie in \[0, 1\]; got nan"):
        reliability_loss(torch.tensor([0.2]), torch.tensor([math.nan]))


def random_batch():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(8, 4, dtype=torch.float64, generator=generator)
    labels = torch.randint(4, (8,), generator=generator)
    sigma = torch.rand(8, dtype=torch.float64, generator=generator) * 3 + 0.1
    return logits, labels, sigma


def test_data_parameters_are_a_temperature_per_sample():
    logits, labels, sigma = random_batch()
    expected = torch.nn.functional.cross_entropy(logits * sigma[:, None], labels, reduction="none")
    torch.testing.assert_close(data_parameters_loss(logits, labels, sigma), expected)
    torch.testing.assert_close(
        data_parameters_loss(logits, labels, sigma, lam=0.3), expected + 0.3 * sigma.log() ** 2
    )


def test_data_parameters_become_a_step_as_the_confidence_grows():
    logits, sigma = double([[1.0, 0.9], [0.9, 1.0]]), double([1e4, 1e4])
    right, wrong = data_parameters_loss(logits, torch.tensor([0, 0]), sigma).tolist()
    assert right < 1e-300
    assert wrong == pytest.approx(1e3)


def test_data_parameters_pass_gradcheck_twice():
    logits, labels, sigma = random_batch()
    inputs = (logits.requires_grad_(), sigma.requires_grad_())
    loss = lambda z, s: data_parameters_loss(z, labels, s, lam=0.3)  # noqa: E731
    assert gradcheck(loss, inputs)
    assert gradgradcheck(loss, inputs)


def test_data_parameters_refuse_what_does_not_fit():
    logits, labels, sigma = random_batch()
    with pytest.raises(
        InputError, match=r"`confidence` must be one per sample.*\(8,\); got \(1,\)"
    ):
        data_parameters_loss(logits, labels, sigma[:1])
    with pytest.raises(InputError, match="`confidence` must be positive; got -1"):
        data_parameters_loss(logits, labels, -torch.ones(8))
    with pytest.raises(InputError, match="`lam` must be in"):
        data_parameters_loss(logits, labels, sigma, lam=-1)
    with pytest.raises(InputError, match=r"`labels` must lie in \[0, 4\)"):
        data_parameters_loss(logits, labels + 4, sigma)


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.05, 20)), min_size=1, max_size=5))
def test_multi_task_is_the_printed_sum(pairs):
    losses, sigmas = zip(*pairs, strict=True)
    value = multi_task_loss(double(losses), 2 * double(sigmas).log())
    printed = sum(x / (2 * s * s) + math.log(s) for x, s in pairs)
    assert value.item() == pytest.approx(printed, rel=1e-9, abs=1e-9)


def test_multi_task_is_smallest_where_the_variance_is_the_loss():
    losses = double([0.3, 2.0, 50.0])
    s = losses.log().requires_grad_()
    value = multi_task_loss(losses, s)
    value.backward()
    assert s.grad.abs().max() < 1e-14
    assert value.item() == pytest.approx(((1 + losses.log()) / 2).sum().item())


def test_multi_task_passes_gradcheck_and_refuses_what_does_not_fit():
    inputs = (double([0.3, 2.0], requires_grad=True), double([0.1, -1.0], requires_grad=True))
    assert gradcheck(multi_task_loss, inputs)
    with pytest.raises(InputError, match=r"`losses` must be at least 0; got -1 .*no minimum"):
        multi_task_loss(torch.tensor([-1.0]), torch.zeros(1))
    with pytest.raises(InputError, match=r"both be \(n,\).*\(2,\) and \(3,\)"):
        multi_task_loss(torch.ones(2), torch.ones(3))
