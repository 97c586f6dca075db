"""Sampled soft means: what is drawn has the right mean, and the bound holds as often as it says."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from bspml.statistics.sample_lists import SampleLists
from bspml.statistics.sampled_means import _Sampler, half_width, sampled_soft_means
from bspml.statistics.shells import Shells
from bspml.tensors.unit_rows import unit_rows


def test_draws_have_the_far_sum_as_their_mean_and_stay_within_their_range():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(8, 12, generator=generator, dtype=torch.float64).repeat(50, 1)
    E = unit_rows(centres + 0.4 * torch.randn(400, 12, generator=generator, dtype=torch.float64))
    weights = torch.rand(400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights[::5] = 0
    lists = SampleLists.of(E, 10, 0)
    shells = Shells.of(lists, weights, 4)
    sampler = _Sampler(shells, torch.ones(400).bool(), 5.0, 0.01, 0.99, 0)
    queries, is_far = shells.rows[:20], torch.arange(len(lists)) >= 3
    cosines, least = sampler._survey(queries, is_far)
    ceilings = shells.ceilings(cosines).sub(1).mul(5).exp()
    held = shells.shell_weights * ceilings
    held[~is_far[shells.parent]] = 0  # visited
    most = float(held.sum())
    draws = 200_000
    columns, scale = sampler._draw_positions(
        held, ceilings, most, draws, torch.Generator().manual_seed(1)
    )
    z = (5 * (queries @ shells.rows[columns].T - 1)).exp() * scale  # (20, m)
    far = slice(int(lists.starts[3]), None)
    expected = (5 * (queries @ shells.rows[far].T - 1)).exp() @ sampler.weights[far]
    assert float(z.max()) <= most
    np.testing.assert_allclose(z.mean(1), expected, atol=5 * most / math.sqrt(draws))
    sums, squares = sampler._far_sums(queries, columns, scale)
    np.testing.assert_allclose(sums, z.sum(1))
    np.testing.assert_allclose(squares, z.square().sum(1))
    assert (least <= expected).all()
    assert (least > 0.7 * expected).all()  # Jensen's bound says something
    assert (sampler.weights[columns] > 0).all()


def test_a_mean_of_draws_misses_its_bound_no_more_often_than_it_may():
    # Values in [0, 1] that are mostly near 0, for which the variance matters; then zeros and ones.
    rng = np.random.default_rng(0)
    draws, chance, trials = 200, 0.1, 4000
    uniform = rng.random((trials, draws))
    kinds = [(uniform**power, 1 / (power + 1)) for power in (1, 8, 40)]
    kinds += [(uniform < p, p) for p in (0.005, 0.01, 0.02, 0.3, 0.98)]
    for values, expected in kinds:
        square, variance = (values**2).mean(1), values.var(1, ddof=1)
        h = half_width(*map(torch.from_numpy, (square, variance)), draws, chance)
        missed = np.abs(values.mean(1) - expected) > h.numpy()
        assert missed.mean() <= chance


def test_half_widths_by_hand():
    def width(square, variance, draws, chance):
        square, variance = (torch.tensor([x], dtype=torch.float64) for x in (square, variance))
        return float(half_width(square, variance, draws, chance))

    # x = ln(8 / .08) = ln 100.  L = .9: psi = ln 10 - .9.
    psi = math.log(10) - 0.9
    assert width(0, 0, 100, 0.08) == pytest.approx(math.log(50) / 100 / 0.9)
    assert width(0.01, 0.01, 100, 0.08) == pytest.approx((math.log(50) / 100 + psi * 0.01) / 0.9)
    # Bernstein at variance 0: 7 ln(100) / (3 * 999) = .010756, below the other's .394.
    assert width(0.25, 0, 1000, 0.08) == pytest.approx(7 * math.log(100) / (3 * 999))


@given(y=st.floats(-1, 1e6))
def test_the_inequality_behind_the_bound_for_small_values(y):
    step, psi = 0.9, math.log(10) - 0.9
    assert math.log1p(step * y) >= step * y - psi * y**2 - 1e-9 * y**2 - 1e-15


def test_soft_means_lie_within_their_error_of_a_plain_sum():
    generator = torch.Generator().manual_seed(4)
    E = unit_rows(torch.randn(90, 6, generator=generator, dtype=torch.float64))
    weights = torch.rand(90, generator=generator, dtype=torch.float64)
    judged = torch.arange(90) % 3 != 0
    lists = SampleLists.of(E, 6, 0)
    found = sampled_soft_means(lists, weights, judged, 5.0, 0.01, 0.999, 0)
    assert torch.equal(found.values.isnan(), ~judged)
    terms = (5 * (E @ E.T)).exp().fill_diagonal_(0) * weights
    totals = weights.sum() - weights
    expected = (terms.sum(1) / totals).log() / 5
    off = (found.values - expected)[judged].abs()
    assert (off <= found.errors[judged] + 1e-12).all()
    assert (found.errors[judged] <= 0.01 * (1 + 1e-9)).all()
