"""Unit rows: what becomes of the norm, of zero rows, of half precision and of NaN."""

import math

import pytest
import torch

from bspml.tensors.unit_rows import grid_unit_rows, unit_rows


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
)
def test_rows_have_norm_one_in_float64_or_float32(dtype, wide):
    x = torch.randn(50, 7, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[3] = 0
    unit = unit_rows(x.requires_grad_())
    assert unit.dtype == wide
    assert not unit.requires_grad
    norms = unit.double().norm(dim=1)
    assert norms[3] == 0
    assert (norms[torch.arange(50) != 3] - 1).abs().max() < 8 * torch.finfo(wide).eps


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_no_scale_overflows_or_vanishes(scale):
    unit = unit_rows(torch.tensor([[3.0, 4.0]]) * scale)
    torch.testing.assert_close(unit, torch.tensor([[0.6, 0.8]]))


@pytest.mark.parametrize("power", [-126, -135, -145])
def test_a_subnormal_row_has_the_direction_of_its_numbers(power):
    small = torch.randn(20, 8, generator=torch.Generator().manual_seed(1)) * 2.0**power
    large = (small.double() * 2.0**-power).float()  # exactly
    assert torch.equal(large.double() * 2.0**power, small.double())
    assert torch.equal(grid_unit_rows(small), grid_unit_rows(large))
    torch.testing.assert_close(unit_rows(small), unit_rows(large), atol=2e-7, rtol=0)


@pytest.mark.parametrize("form", [unit_rows, grid_unit_rows])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_not_finite_stays_visible_and_alone(form, bad):
    unit = form(torch.tensor([[bad, 4.0], [3.0, 4.0]]))
    assert unit[0].isnan().any()
    torch.testing.assert_close(unit[1], torch.tensor([0.6, 0.8]))


def test_grid_rows_have_norm_one_and_keep_zero_rows():
    x = torch.randn(5000, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[3] = 0
    x[4] *= 1e200
    unit = grid_unit_rows(x)
    assert unit.dtype == torch.float32
    norms = unit.double().norm(dim=1)
    assert norms[3] == 0
    # 7 entries off by at most 2^-25 each
    assert (norms[torch.arange(5000) != 3] - 1).abs().max() < 7 * 2.0**-25
    assert torch.equal(unit * 2**24, (unit * 2**24).round())


@pytest.mark.parametrize("factor", [1e-20, 0.1, 3.0, 1e20])
def test_grid_rows_of_equal_direction_and_unequal_length_become_equal(factor):
    x = torch.randn(50, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.equal(grid_unit_rows(x), grid_unit_rows(x * factor))
