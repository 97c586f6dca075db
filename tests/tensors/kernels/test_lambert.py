"""The loop for the CPU against the operations on whole tensors, below the domain, and on gaps."""

import math

import numpy as np
import pytest
import torch

from bspml.functional import lambert
from bspml.functional.lambert import principal_branch
from bspml.tensors.kernels.lambert import BRANCH_POINT, fill_branch


def test_below_the_domain_the_kernel_gives_nan():
    """What an accelerator, where nothing is looked at, returns."""
    w, _ = principal_branch(torch.tensor([-0.4, -1e30, -math.inf]))
    assert w.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_one_by_one_and_all_at_once_agree(dtype):
    """The CPU has its own loop; other devices the operations on tensors, run here on the CPU."""
    limits, lowest = torch.finfo(dtype), BRANCH_POINT[dtype][0]
    above = lowest + torch.logspace(-16, -1, 400, dtype=torch.float64)
    x = torch.cat(
        [
            above.clamp(min=lowest),
            -torch.logspace(-320, -0.5, 300, dtype=torch.float64),
            torch.logspace(-320, 300, 1000, dtype=torch.float64),
            torch.tensor(
                [0.0, -0.31, lowest, limits.tiny, limits.max, math.inf], dtype=torch.float64
            ),
            torch.tensor([math.nan, lowest - 1e-3, -math.inf], dtype=torch.float64),
        ]
    ).to(dtype)
    x[(x < lowest) & (x > lowest - 1e-6)] = lowest
    log_x = torch.linspace(50, 1e4, len(x), dtype=dtype)
    bound = 8 * limits.eps
    for logarithms in (None, log_x):
        one_by_one = lambert._number_by_number(x, logarithms)
        for found, expected in zip(one_by_one, lambert._all_at_once(x, logarithms), strict=True):
            torch.testing.assert_close(
                found, expected, rtol=bound, atol=limits.tiny, equal_nan=True
            )


def test_a_matrix_with_gaps_keeps_its_shape_on_the_cpu():
    x = torch.rand(6, 8, dtype=torch.float64)[::2, ::3]
    w, one_plus_w = principal_branch(x)
    assert w.shape == one_plus_w.shape == x.shape
    torch.testing.assert_close(w * w.exp(), x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logarithms_are_used_where_x_is_huge_only(dtype):
    x = np.array([0.5, 2.0**65], dtype)
    w, one_plus_w = np.empty_like(x), np.empty_like(x)
    fill_branch(x, np.array([1e6, 1 + math.e], dtype), -1 / math.e, w, one_plus_w)
    assert w == pytest.approx([0.3517337112491958, math.e], rel=1e-6)  # w + log w = log x
    assert one_plus_w == pytest.approx(1 + w)


def test_the_branch_point_is_minus_one_and_below_it_nothing():
    x = np.array([BRANCH_POINT[torch.float64][0], -0.4, math.nan])
    w, one_plus_w = np.empty_like(x), np.empty_like(x)
    fill_branch(x, np.empty(0), x[0], w, one_plus_w)
    assert (w[0], one_plus_w[0]) == (-1, 0)
    assert np.isnan(w[1:]).all()
    assert np.isnan(one_plus_w[1:]).all()
