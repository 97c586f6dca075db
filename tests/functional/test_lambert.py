"""W against fifty digits of mpmath, its derivatives, and the edge of its domain."""

import math

import mpmath
import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given, strategies as st
from torch.autograd import gradcheck, gradgradcheck

from bspml.errors import InputError
from bspml.functional import lambertw
from bspml.functional.lambert import principal_branch
from bspml.tensors.kernels.lambert import BRANCH_POINT

FLOAT32_ULP, FLOAT64_RELATIVE = 4, 1e-14  # what the function promises
BRANCH = -1 / math.e


def exact(values):
    """W of each value, fifty digits."""
    with mpmath.workdps(50):
        return [mpmath.lambertw(mpmath.mpf(float(x))).real for x in values]


def spread_out(dtype, count=600):
    """Arguments on every scale of the domain, above -1/e, most of them where digits get lost."""
    rng = np.random.default_rng(3)
    lowest = BRANCH_POINT[dtype][0]
    values = np.concatenate(
        [
            lowest + 10 ** rng.uniform(-17, -0.5, count),
            rng.uniform(lowest, 0, count),
            -(10 ** rng.uniform(-30, -0.5, count)),
            10 ** rng.uniform(-30, 2, count),
            10 ** rng.uniform(2, 38, count),
            # On both sides of where the method changes, and the ends of the range.
            [-0.31, -0.3100001, -0.3099999, 2.0**64, 1.0001 * 2.0**64, 1e-38, -1e-38, 3.4e38],
        ]
    )
    x = torch.as_tensor(values).to(dtype)
    return x[x.double() > BRANCH + 1e-16 * (dtype == torch.float64)]


def test_float64_is_right_to_1e_14():
    x = spread_out(torch.float64)
    assert len(x) > 2900
    for value, truth in zip(lambertw(x).tolist(), exact(x), strict=True):
        assert abs(value - truth) <= FLOAT64_RELATIVE * abs(truth)


def test_float32_is_right_to_four_units_in_the_last_place():
    x = spread_out(torch.float32, 1200)
    assert len(x) > 5000
    for value, truth in zip(lambertw(x).tolist(), exact(x), strict=True):
        assert abs(value - truth) <= FLOAT32_ULP * float(np.spacing(np.float32(abs(truth))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_plus_w_keeps_its_own_digits_at_the_branch_point(dtype):
    step = torch.finfo(dtype).eps / 4  # a unit in the last place of -1/e
    x = BRANCH_POINT[dtype][0] + step * torch.tensor([1.0, 2, 3, 10, 1e3, 1e5], dtype=dtype)
    _, one_plus_w = principal_branch(x)
    for value, truth in zip(one_plus_w.tolist(), exact(x), strict=True):
        assert abs(value - (1 + truth)) <= 4 * torch.finfo(dtype).eps * abs(1 + truth)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_number_nearest_to_the_branch_point_counts_as_it(dtype):
    x = torch.tensor(BRANCH, dtype=dtype)
    expected = -1.0 if float(x) < BRANCH else float(exact([float(x)])[0])  # bfloat16 rounds up
    assert float(lambertw(x)) == pytest.approx(expected, abs=1e-6 if dtype != torch.float64 else 0)
    assert float(lambertw(x)) >= -1


def test_it_agrees_with_scipy_away_from_the_branch_point():
    x = torch.linspace(-0.36, 50, 1001, dtype=torch.float64)
    theirs = scipy.special.lambertw(x.numpy()).real
    torch.testing.assert_close(lambertw(x), torch.from_numpy(theirs), rtol=1e-14, atol=0)


@given(st.floats(-1, 80).filter(lambda w: w * math.exp(w) > BRANCH))
def test_it_inverts_w_exp_w(w):
    again = float(lambertw(torch.tensor(w * math.exp(w), dtype=torch.float64)))
    # Conditioned like 1/(1 + W): an ulp of x is worth that many ulps of W.
    assert again == pytest.approx(w, rel=1e-14, abs=3e-16 * abs(w) / max(w + 1, 1e-8))


@given(st.lists(st.floats(BRANCH + 1e-15, 1e300), min_size=2, max_size=20))
def test_it_rises_with_x(values):
    x = torch.tensor(sorted(values), dtype=torch.float64)
    w = lambertw(x)
    assert (w[1:] - w[:-1] >= -4 * torch.finfo(torch.float64).eps * w[1:].abs()).all()


def test_known_values():
    x = torch.tensor([0.0, 1.0, math.e, 2 * math.e**2, -math.log(2) / 2], dtype=torch.float64)
    omega = 0.5671432904097838
    w = torch.tensor([0.0, omega, 1.0, 2.0, -math.log(2)], dtype=torch.float64)
    torch.testing.assert_close(lambertw(x), w, rtol=1e-15, atol=0)


def test_zero_infinity_and_nan_pass_through():
    w = lambertw(torch.tensor([0.0, -0.0, math.inf, math.nan]))
    assert w[:3].tolist() == [0, 0, math.inf]
    assert w[3].isnan()
    assert math.copysign(1, w[1]) == -1


def test_the_smallest_numbers_are_their_own_w():
    tiny = torch.tensor([5e-324, -5e-324, 1e-300], dtype=torch.float64)
    assert torch.equal(lambertw(tiny), tiny)


def test_half_precision_is_computed_in_float32():
    x = torch.tensor([-0.3, 0.5, 300.0])
    for dtype in (torch.float16, torch.bfloat16):
        w = lambertw(x.to(dtype))
        assert w.dtype == torch.float32
        assert torch.equal(w, lambertw(x.to(dtype).float()))


def test_any_shape_comes_back():
    assert lambertw(torch.ones(2, 0, 3)).shape == (2, 0, 3)
    assert lambertw(torch.ones(())).shape == ()


def test_first_and_second_derivative_pass_gradcheck():
    x = torch.tensor(
        [-0.36, -0.32, -0.3101, -0.3099, -0.1, 0.0, 0.5, 3.0, 100.0],
        dtype=torch.float64,
        requires_grad=True,
    )
    assert gradcheck(lambertw, x, eps=1e-7, atol=1e-6, rtol=1e-6)
    assert gradgradcheck(lambertw, x, eps=1e-7, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_the_derivative_is_right_to_the_last_digits(dtype, tolerance):
    x = spread_out(dtype, 100).requires_grad_()
    assert len(x) > 400
    (slope,) = torch.autograd.grad(lambertw(x).sum(), x)
    with mpmath.workdps(50):
        for value, at, w in zip(slope.tolist(), x.tolist(), exact(x.detach()), strict=True):
            truth = 1 / (mpmath.exp(w) * (1 + w))  # at x = 0 too
            assert abs(value - truth) <= tolerance * truth, at


def test_the_derivative_is_infinite_at_the_branch_point_and_zero_at_infinity():
    x = torch.tensor([BRANCH, math.inf, 0.0], dtype=torch.float64, requires_grad=True)
    lambertw(x).sum().backward()
    assert x.grad.tolist() == [math.inf, 0, 1]


def test_values_below_the_domain_are_named():
    with pytest.raises(InputError, match=r"`x` must be at least -1/e.*got -0.5 \(.*1, 2\)"):
        lambertw(torch.tensor([0.0, -0.5, -1.0]))
    with pytest.raises(InputError, match="-1/e"):
        lambertw(torch.tensor([-math.inf]))
    with pytest.raises(InputError, match="-1/e"):  # one unit below the nearest number
        lambertw(torch.tensor([math.nextafter(BRANCH, -1)], dtype=torch.float64))


def test_integers_are_refused():
    with pytest.raises(InputError, match=r"`x` must be floats; got torch.int64.*\.float\(\)"):
        lambertw(torch.tensor([1, 2]))
