"""The kernel of W against fifty digits of mpmath and against the forms for the CPU."""

import math

import mpmath
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from bspml.functional import lambert, lambertw
from helpers.triton_kernels import (
    DEVICE,
    both_types,
    branch_kernel,
    close,
    compiler,
    compiles,
    here,
    outside,
    passes_in_the_interpreter,
    use_kernels,
)

pytest.importorskip("triton")


@pytest.mark.slow
@outside
def test_in_the_interpreter(interpreted):
    passes_in_the_interpreter(__file__, interpreted)


@compiler
@pytest.mark.parametrize("pointer", ["*fp32", "*fp64"])
def test_it_compiles_for_a_gpu_with_numbers_in_float64(pointer, tmp_path, monkeypatch):
    from bspml.tensors.kernels import lambert_triton

    constants = {"GIVEN": False}
    compiles(lambert_triton._fill, constants, pointer, tmp_path, monkeypatch)


def arguments(dtype):
    """From below -1/e to infinity: close to it, where the method changes, subnormal, huge, NaN."""
    lowest, limits = lambert.BRANCH_POINT[dtype][0], torch.finfo(dtype)
    x = torch.cat(
        [
            lowest + torch.logspace(-15, -1, 150, dtype=torch.float64),
            torch.linspace(-0.3101, -0.3099, 41, dtype=torch.float64),
            -torch.logspace(-320, -0.5, 100, dtype=torch.float64),
            torch.logspace(-320, 308, 300, dtype=torch.float64),
            torch.tensor(
                [lowest, 0.0, -0.0, limits.tiny, limits.max, 2.0**64, math.inf, math.nan],
                dtype=torch.float64,
            ),
            torch.tensor([lowest - 1e-3, -1e30, -math.inf], dtype=torch.float64),
        ]
    )
    return x.to(dtype)


@here
@both_types
@pytest.mark.parametrize("given", [False, True])
def test_w_and_one_plus_w_are_those_of_the_cpu(dtype, given):
    x = arguments(dtype)
    log_x = torch.linspace(50, 1e4, len(x), dtype=dtype) if given else None
    found = branch_kernel(x.to(DEVICE), None if log_x is None else log_x.to(DEVICE))
    expected = lambert._number_by_number(x, log_x)
    for got, wanted in zip(found, expected, strict=True):
        close(got, wanted.double(), dtype, 4 * torch.finfo(dtype).eps)
    negative_zero = found[0][-9].item()
    assert negative_zero == 0
    assert math.copysign(1, negative_zero) == -1


@here
@both_types
def test_w_and_one_plus_w_each_have_their_own_digits(dtype):
    x = arguments(dtype)[:-11:3]
    x = x[(x > lambert.BRANCH_POINT[dtype][0]) & x.isfinite()]
    w, one_plus_w = branch_kernel(x.to(DEVICE))
    with mpmath.workdps(50):
        exact = [mpmath.lambertw(mpmath.mpf(value)).real for value in x.tolist()]
        rows = zip(x.tolist(), w.tolist(), one_plus_w.tolist(), exact, strict=True)
        limits = torch.finfo(dtype)
        for at, found, above, truth in rows:
            assert abs(found - truth) <= 4 * limits.eps * abs(truth) + limits.smallest_normal, at
            assert abs(above - (1 + truth)) <= 4 * limits.eps * abs(1 + truth), at


@here
def test_shapes_and_gaps():
    x = torch.rand(6, 8, dtype=torch.float64).to(DEVICE)[::2, ::3]
    assert branch_kernel(x)[0].shape == x.shape
    close(branch_kernel(x)[0], lambert._all_at_once(x.cpu(), None)[0], x.dtype)
    assert branch_kernel(x[:0])[1].shape == (0, 3)
    assert branch_kernel(x[0, 0])[0].shape == ()


@here
def test_derivatives_of_w(monkeypatch):
    use_kernels(monkeypatch, lambert)
    x = torch.tensor([-0.36, -0.3101, -0.1, 0.0, 0.5, 100.0], dtype=torch.float64, device=DEVICE)
    assert gradcheck(lambertw, x.requires_grad_(), eps=1e-7, atol=1e-6, rtol=1e-6)
    assert gradgradcheck(lambertw, x, eps=1e-7, atol=1e-4, rtol=1e-4)
