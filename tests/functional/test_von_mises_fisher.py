"""The von Mises-Fisher density against mpmath, its integral, and what is known of its estimate."""

import math

import mpmath
import pytest
import torch
from hypothesis import given, strategies as st

from bspml.functional.von_mises_fisher import concentration, log_density

# Three terms after the first of a series in 1 / order, at order 20 or more.
DEBYE = 3e-7


def slow(cosine, kappa, dim):
    """By arbitrary precision, term by term as printed."""
    with mpmath.workdps(60):
        order, k = mpmath.mpf(dim) / 2 - 1, mpmath.mpf(kappa)
        log_c = order * mpmath.log(k) - mpmath.mpf(dim) / 2 * mpmath.log(2 * mpmath.pi)
        return float(log_c - mpmath.log(mpmath.besseli(order, k)) + k * mpmath.mpf(cosine))


@pytest.mark.parametrize("dim", [1, 2, 3, 16, 41, 42, 64, 512])
@pytest.mark.parametrize("kappa", [1e-5, 0.3, 7.0, 180.0, 2e4])
def test_it_is_the_density_of_arbitrary_precision(dim, kappa):
    cosine = torch.tensor([[0.7], [-0.2]], dtype=torch.float64)
    found = log_density(cosine, torch.tensor([kappa], dtype=torch.float64), dim)
    for mine, c in zip(found[:, 0].tolist(), cosine[:, 0].tolist(), strict=True):
        assert mine == pytest.approx(slow(c, kappa, dim), rel=1e-9, abs=DEBYE)


@given(kappa=st.floats(0, 50), dim=st.sampled_from([2, 3, 10, 30]))
def test_it_integrates_to_1_over_the_sphere(kappa, dim):
    # The angle to the mean direction has the density  area(D-1) sin^(D-2).
    angle = torch.linspace(0, math.pi, 20_001, dtype=torch.float64)
    log_f = log_density(angle.cos()[:, None], torch.tensor([kappa], dtype=torch.float64), dim)[:, 0]
    area = math.log(2) + (dim - 1) / 2 * math.log(math.pi) - math.lgamma((dim - 1) / 2)
    density = (log_f + area).exp() * angle.sin() ** (dim - 2)
    assert torch.trapezoid(density, angle).item() == pytest.approx(1, abs=1e-5)


def test_no_gathering_is_uniform_and_copies_stay_finite():
    flat = log_density(torch.tensor([[-1.0], [1.0]]), torch.zeros(1), 3)
    assert flat.flatten().tolist() == pytest.approx([-math.log(4 * math.pi)] * 2, abs=1e-5)
    assert concentration(torch.tensor([-0.1, 1.0]), 8).tolist() == pytest.approx(
        [0, math.sqrt(0.999) * 7.001 / 0.001], rel=1e-4
    )


def test_the_estimate_gives_back_the_mean_length_it_came_from():
    # E <mu, x> = I_{nu+1}(kappa) / I_nu(kappa); [Banerjee 2005] approximates its inverse.
    for dim in (8, 128):
        for length in (0.1, 0.5, 0.9):
            kappa = concentration(torch.tensor([length**2], dtype=torch.float64), dim).item()
            with mpmath.workdps(40):
                ratio = mpmath.besseli(dim / 2, kappa) / mpmath.besseli(dim / 2 - 1, kappa)
            assert float(ratio) == pytest.approx(length, abs=0.01)
