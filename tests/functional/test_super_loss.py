"""SuperLoss against worked values, fifty digits of mpmath, its own minimisation, and its laws."""

import math

import mpmath
import pytest
import torch
from hypothesis import assume, given, strategies as st
from torch.autograd import gradcheck, gradgradcheck

from bspml.errors import InputError
from bspml.functional import lambertw, superloss, superloss_confidence
from helpers.draws import double

TAU = math.log(10)
CAP = 2 / math.e  # sigma is held at e for losses below tau - CAP lam
SIX_DIGITS = 1e-6  # hand-worked values are given with six digits
ULPS = 16  # few operations, each within a unit or two, and W within four


def exact(loss, tau, lam):
    """sigma and SL with fifty digits, from the definition."""
    with mpmath.workdps(50):
        excess, lam = mpmath.mpf(float(loss)) - mpmath.mpf(float(tau)), mpmath.mpf(float(lam))
        if excess / lam <= -2 / mpmath.e:
            sigma = mpmath.e
        else:
            sigma = mpmath.exp(-mpmath.lambertw(excess / lam / 2).real)
        return sigma, sigma * excess + lam * mpmath.log(sigma) ** 2


def test_worked_values():
    losses = double([2.0, 2.3, 4.0, 9.0])
    value = double([-0.329862, -0.002587, 1.279390, 3.439274])
    sigma = double([1.198871, 1.001295, 0.600637, 0.330563])
    torch.testing.assert_close(superloss(losses, TAU, 1), value, rtol=0, atol=SIX_DIGITS)
    torch.testing.assert_close(superloss_confidence(losses, TAU, 1), sigma, rtol=0, atol=SIX_DIGITS)


def test_worked_values_with_a_small_lambda():
    losses = double([2.0, 5.0, 0.0, 0.5])
    value = double([0.60804, 1.44756, -2.46828, -1.10914])
    sigma = double([0.42630, 0.20073, math.e, math.e])
    torch.testing.assert_close(superloss(losses, 1, 0.25), value, rtol=0, atol=1e-5)
    torch.testing.assert_close(superloss_confidence(losses, 1, 0.25), sigma, rtol=0, atol=1e-5)


def test_far_below_tau_sigma_is_held_at_e():
    loss = double([0.0], requires_grad=True)
    value = superloss(loss, TAU, 1)
    value.backward()
    assert value.item() == pytest.approx(-5.259075, abs=SIX_DIGITS)
    assert value.item() == pytest.approx(-math.e * TAU + 1, rel=1e-15)
    assert loss.grad.item() == math.e
    assert superloss_confidence(double([-10.0]), 0, 1).item() == math.e


def test_at_the_cap_sigma_is_e_and_the_loss_minus_lambda():
    at_cap = double([-CAP])
    assert superloss_confidence(at_cap, 0, 1).item() == math.e
    assert superloss(at_cap, 0, 1).item() == pytest.approx(-1, rel=1e-15)
    # sigma has a vertical tangent there: a rounding of the loss costs its square root.
    for tau, lam in ((TAU, 1.0), (0.3, 0.25), (-5.0, 7.0)):
        rounded = double([tau - CAP * lam])
        assert superloss_confidence(rounded, tau, lam).item() == pytest.approx(math.e, rel=1e-7)
        assert superloss(rounded, tau, lam).item() == pytest.approx(-lam, rel=1e-14)


def test_at_tau_the_confidence_is_one_and_the_loss_zero():
    for dtype in (torch.float32, torch.float64):
        loss = torch.full((3,), 0.7, dtype=dtype, requires_grad=True)
        value = superloss(loss, loss.detach(), 0.3)
        value.sum().backward()
        assert value.tolist() == [0, 0, 0]
        assert loss.grad.tolist() == [1, 1, 1]


def test_a_large_lambda_leaves_the_loss():
    """[Castells 2020, supplement lemma 1]."""
    losses = double([5.0], requires_grad=True)
    value = superloss(losses, 2.0, 1e6)
    value.backward()
    assert losses.grad.item() == pytest.approx(1 - 1.5e-6, abs=1e-11)
    assert value.item() == pytest.approx(3 - 9 / 4e6, abs=1e-11)  # (l - tau) - (l - tau)^2/(4 lam)
    for lam in (1e30, 1e300):
        for dtype in (torch.float32, torch.float64):
            excess = torch.tensor([-4.0, 0.5, 3.0], dtype=dtype)
            torch.testing.assert_close(superloss(excess + 1, 1.0, lam), excess, rtol=1e-6, atol=0)


LOSSES = st.floats(-50, 200)
LAMBDAS = st.floats(1e-3, 1e3)


@given(LOSSES, st.floats(-5, 5), LAMBDAS)
def test_the_loss_is_the_definition_in_float64(loss, tau, lam):
    sigma, value = exact(loss, tau, lam)
    eps = torch.finfo(torch.float64).eps
    got = superloss(double([loss]), tau, lam).item()
    # The rounding of l - tau enters the loss times sigma.
    slack = ULPS * eps * (abs(value) + float(sigma) * (abs(loss) + abs(tau)))
    assert abs(got - value) <= slack


@given(LOSSES, st.floats(-5, 5), LAMBDAS)
def test_the_confidence_is_the_definition_in_float64(loss, tau, lam):
    beta = (loss - tau) / lam
    assume(abs(beta + CAP) > 1e-6)
    sigma, _ = exact(loss, tau, lam)
    eps = torch.finfo(torch.float64).eps
    above = max(beta + CAP, 1e-6)
    blow_up = max(1, 1 / math.sqrt(above))
    relative = ULPS * eps * (1 + (abs(loss) + abs(tau)) / max(abs(loss - tau), 1e-300) * blow_up)
    assert abs(superloss_confidence(double([loss]), tau, lam).item() - sigma) <= (
        relative * sigma * max(1.0, min(abs(beta), 4))
    )


def test_it_is_the_definition_in_float32():
    generator = torch.Generator().manual_seed(0)
    losses = 20 * torch.rand(500, generator=generator) - 4
    eps = torch.finfo(torch.float32).eps
    for tau, lam in ((TAU, 1.0), (0.5, 0.25), (0.0, 10.0)):
        values = superloss(losses, tau, lam).tolist()
        sigmas = superloss_confidence(losses, tau, lam).tolist()
        for loss, value, sigma in zip(losses.tolist(), values, sigmas, strict=True):
            true_sigma, true_value = exact(loss, tau, lam)
            assert abs(value - true_value) <= ULPS * eps * (abs(true_value) + abs(loss - tau) * 2)
            near_cap = max((loss - tau) / lam + CAP, eps)
            assert abs(sigma - true_sigma) <= ULPS * eps * true_sigma / min(1, near_cap) ** 0.5


def test_tau_keeps_its_digits_beside_float32_losses():
    """log 10 is not a float32; the difference l - tau is small and must not carry its rounding."""
    loss = torch.tensor([2.3025851])
    expected = float(exact(loss.item(), TAU, 1)[1])
    assert abs(expected) < 1e-7
    assert superloss(loss, TAU, 1).item() == pytest.approx(expected, rel=1e-5)
    for tau in (double(TAU), double([TAU])):
        assert superloss(loss, tau, 1).item() == pytest.approx(expected, rel=1e-5)


@given(st.floats(-0.7, 60), st.floats(0.01, 100))
def test_sigma_is_where_the_derivative_vanishes(beta, lam):
    sigma = superloss_confidence(double([beta * lam]), 0, lam).item()
    assert beta * lam + 2 * lam * math.log(sigma) / sigma == pytest.approx(0, abs=1e-9 * lam)


@given(st.floats(-0.7, 30), st.floats(0.01, 10), st.floats(-0.5, 0.5))
def test_no_sigma_nearby_gives_a_smaller_loss(beta, lam, shift):
    sigma = superloss_confidence(double([beta * lam]), 0, lam).item()
    value = superloss(double([beta * lam]), 0, lam).item()
    # Left of beta = 0 it is a local minimum: other sigmas up to where the barrier lies.
    other = sigma * math.exp(shift if beta >= 0 else -abs(shift))
    elsewhere = other * beta * lam + lam * math.log(other) ** 2
    assert value <= elsewhere + 1e-12 * (1 + abs(elsewhere))


@given(LOSSES, LAMBDAS, st.floats(1e-2, 1e2))
def test_it_is_homogeneous(loss, lam, gamma):
    """[Castells 2020, supplement lemma 2], tau being in the units of the loss."""
    assume(abs(loss / lam + CAP) > 1e-3)
    tau = 0.0
    scaled = superloss(double([gamma * loss]), gamma * tau, gamma * lam)
    torch.testing.assert_close(
        scaled, gamma * superloss(double([loss]), tau, lam), rtol=1e-12, atol=1e-12 * gamma * lam
    )
    torch.testing.assert_close(
        superloss_confidence(double([gamma * loss]), gamma * tau, gamma * lam),
        superloss_confidence(double([loss]), tau, lam),
        rtol=1e-11,
        atol=0,
    )


@given(st.lists(LOSSES, min_size=2, max_size=20), LAMBDAS)
def test_the_loss_rises_and_the_confidence_falls_with_the_loss(losses, lam):
    ordered = double(sorted(losses))
    value, sigma = superloss(ordered, 0.5, lam), superloss_confidence(ordered, 0.5, lam)
    assert (value.diff() >= -1e-13 * (1 + value[1:].abs())).all()
    assert (sigma.diff() <= 1e-14).all()
    assert ((sigma > 0) & (sigma <= math.e)).all()


def test_gradcheck_around_and_at_the_cap():
    lam, tau = 0.5, 1.0
    cap = tau - CAP * lam
    losses = double([cap - 1, cap - 1e-3, cap, cap + 1e-3, cap + 0.1, tau, 2.0, 30.0])
    assert gradcheck(lambda x: superloss(x, tau, lam), losses.requires_grad_(), eps=1e-8, atol=1e-3)


def test_second_derivative_passes_gradgradcheck_away_from_the_cap():
    losses = double([-4.0, 0.7, 1.0, 2.0, 30.0], requires_grad=True)
    assert gradcheck(lambda x: superloss(x, 1.0, 0.5), losses, eps=1e-7, atol=1e-7)
    assert gradgradcheck(lambda x: superloss(x, 1.0, 0.5), losses, eps=1e-7, atol=1e-6)


def test_second_derivative_is_zero_where_sigma_is_held():
    losses = double([-4.0, -CAP], requires_grad=True)
    (first,) = torch.autograd.grad(superloss(losses, 0, 1).sum(), losses, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), losses)
    assert second.tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_is_the_confidence_bit_for_bit(dtype):
    losses = torch.linspace(-3, 40, 997, dtype=dtype).requires_grad_()
    superloss(losses, 1.3, 0.7).sum().backward()
    assert torch.equal(losses.grad, superloss_confidence(losses, 1.3, 0.7))


def test_neither_tau_nor_the_confidence_carry_a_gradient():
    losses, tau = double([1.0, 2.0], requires_grad=True), double(1.5, requires_grad=True)
    superloss(losses, tau, 1.0).sum().backward()
    assert tau.grad is None
    assert not superloss_confidence(losses, tau, 1.0).requires_grad


def test_agrees_with_the_textbook_formula_away_from_the_cap():
    losses = torch.linspace(1, 20, 50, dtype=torch.float64)
    w = lambertw((losses - 1.2) / 0.6 / 2)
    sigma = torch.exp(-w)
    textbook = sigma * (losses - 1.2) + 0.6 * sigma.log() ** 2
    torch.testing.assert_close(superloss(losses, 1.2, 0.6), textbook, rtol=1e-13, atol=1e-14)


EXTREMES = [
    0.0,
    -0.0,
    1e-45,
    -1e-45,
    1e-38,
    1e-3,
    -1e-3,
    1.0,
    -1.0,
    1e10,
    -1e10,
    1e38,
    -1e38,
    3.4e38,
    -3.4e38,
]


@pytest.mark.parametrize("lam", [5e-324, 1e-300, 1e-45, 1e-38, 1e-3, 0.1, 1.0, 1e38, 1e45, 1e300])
@pytest.mark.parametrize("tau", [0.0, 2.0, -3.4e38, 3.4e38])
def test_extreme_losses_give_numbers_and_right_ones(lam, tau):
    losses = torch.tensor(EXTREMES, requires_grad=True)
    values = superloss(losses, tau, lam)
    values.sum().backward()
    sigmas = superloss_confidence(losses, tau, lam)
    top, tiny = torch.finfo(torch.float32).max, torch.finfo(torch.float32).tiny
    assert not values.isnan().any()
    assert torch.equal(losses.grad, sigmas)
    finite = 0
    for loss, value, sigma in zip(losses.tolist(), values.tolist(), sigmas.tolist(), strict=True):
        true_sigma, true_value = exact(loss, tau, lam)
        assert abs(sigma - true_sigma) <= 1e-5 * true_sigma + tiny
        if abs(true_value) < top:
            finite += 1
            assert abs(value - true_value) <= 1e-5 * abs(true_value) + tiny
        elif abs(true_value) > 1.0001 * top:
            assert math.isinf(value)
    assert finite


def test_extreme_losses_in_float64():
    losses = double([1.7e308, -1e308, 1e300, -1e-320, 0.0], requires_grad=True)
    infinite = []
    for lam in (1e-300, 1e-3, 1.0, 1e300):
        for tau in (-1.7e308, 0.0, 1.7e308):
            losses.grad = None
            values = superloss(losses, tau, lam)
            values.sum().backward()
            for loss, value, sigma in zip(
                losses.tolist(), values.tolist(), losses.grad.tolist(), strict=True
            ):
                true_sigma, true_value = exact(loss, tau, lam)
                assert abs(sigma - true_sigma) <= 1e-12 * true_sigma + 1e-307
                infinite.append(abs(true_value) >= 1.79e308)
                if infinite[-1]:
                    assert math.isinf(value)
                else:
                    assert abs(value - true_value) <= 1e-12 * abs(true_value) + 1e-307
    assert (len(infinite), sum(infinite)) == (60, 20)


def test_infinite_losses_have_their_limits_and_nan_stays_nan():
    losses = torch.tensor([math.inf, -math.inf, math.nan])
    assert superloss(losses, 1.0, 0.5)[:2].tolist() == [math.inf, -math.inf]
    assert superloss_confidence(losses, 1.0, 0.5)[:2].tolist() == [
        0.0,
        pytest.approx(math.e),
    ]
    assert superloss(losses, 1.0, 0.5)[2].isnan()
    assert superloss_confidence(losses, 1.0, 0.5)[2].isnan()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_and_returned_in_float32(dtype):
    losses = torch.tensor([0.0, 2.3, 9.0, 60000.0], dtype=dtype, requires_grad=True)
    value = superloss(losses, TAU, 1)
    value.sum().backward()
    assert value.dtype == superloss_confidence(losses, TAU, 1).dtype == torch.float32
    assert torch.equal(value, superloss(losses.detach().float(), TAU, 1))
    assert losses.grad.dtype == dtype
    assert value.isfinite().all()


def test_autocast_changes_nothing():
    losses = torch.rand(64, generator=torch.Generator().manual_seed(1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = superloss(losses, 0.5, 0.25)
    assert torch.equal(inside, superloss(losses, 0.5, 0.25))


def test_tau_may_differ_between_elements():
    losses = double([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    taus = double([[0.5], [3.0]])
    together = superloss(losses, taus, 0.5)
    for row, tau in enumerate((0.5, 3.0)):
        assert torch.equal(together[row], superloss(losses[row], tau, 0.5))


def test_repeating_a_batch_leaves_its_mean():
    losses = 5 * torch.rand(40, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    once = superloss(losses, losses.mean(), 0.25).mean()
    torch.testing.assert_close(superloss(losses.repeat(2), losses.mean(), 0.25).mean(), once)


def test_no_element_looks_at_another():
    losses = 9 * torch.rand(30, generator=torch.Generator().manual_seed(3))
    order = torch.randperm(30, generator=torch.Generator().manual_seed(4))
    whole = superloss(losses, 1.0, 0.25)
    assert torch.equal(superloss(losses[order], 1.0, 0.25), whole[order])
    assert torch.equal(superloss(losses[:1], 1.0, 0.25), whole[:1])


def test_an_empty_batch_gives_an_empty_loss_with_a_graph():
    losses = torch.zeros(0, requires_grad=True)
    superloss(losses, 1.0, 1.0).sum().backward()
    assert losses.grad.shape == (0,)


@pytest.mark.parametrize("function", [superloss, superloss_confidence])
def test_what_cannot_be_weighted_is_refused(function):
    losses = torch.ones(4)
    with pytest.raises(InputError, match=r"already\s+reduced.*reduction='none'"):
        function(losses.mean(), 1.0, 1.0)
    with pytest.raises(InputError, match=r"`losses` must be floats; got torch.int64"):
        function(losses.long(), 1.0, 1.0)
    for lam in (0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="`lam` must be"):
            function(losses, 1.0, lam)
    for tau in (math.nan, math.inf):
        with pytest.raises(InputError, match="`tau` must be"):
            function(losses, tau, 1.0)
    with pytest.raises(InputError, match=r"`tau` must be finite in torch.float32.*1e\+40"):
        function(losses, 1e40, 1.0)
    with pytest.raises(InputError, match=r"`tau` must be finite; got nan .*positions 1"):
        function(losses, torch.tensor([1.0, math.nan, 1.0, 1.0]), 1.0)
    with pytest.raises(InputError, match=r"`tau` .* broadcast to `losses`, \(4,\); got \(4, 1\)"):
        function(losses, torch.ones(4, 1), 1.0)
    with pytest.raises(InputError, match=r"got \(3,\)"):
        function(losses, torch.ones(3), 1.0)
    with pytest.raises(InputError, match=r"`tau` must be real numbers; got torch.bool"):
        function(losses, torch.tensor(True), 1.0)
