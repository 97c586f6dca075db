"""The kernel of SuperLoss against fifty digits of mpmath and against the forms for the CPU."""

import math

import mpmath
import pytest
import torch

from bspml.functional import lambert, super_loss, superloss, superloss_confidence
from helpers.triton_kernels import (
    DEVICE,
    both_types,
    close,
    compiler,
    compiles,
    draw_losses,
    here,
    outside,
    passes_in_the_interpreter,
    tolerance,
    use_kernels,
)

pytest.importorskip("triton")
from bspml.tensors.kernels import super_loss_triton


@pytest.mark.slow
@outside
def test_in_the_interpreter(interpreted):
    passes_in_the_interpreter(__file__, interpreted)


@compiler
@pytest.mark.parametrize("pointer", ["*fp32", "*fp64"])
def test_it_compiles_for_a_gpu_with_numbers_in_float64(pointer, tmp_path, monkeypatch):
    constants = {"TAU": 1, "SLOPE": False, "SIZE": 256}
    compiles(super_loss_triton._minimise, constants, pointer, tmp_path, monkeypatch)


@pytest.fixture
def by_kernels(monkeypatch):
    use_kernels(monkeypatch, lambert, super_loss)


def draw_tau(kind, count):
    each = 3 * torch.rand(count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return {
        "number": math.log(10),
        "tensor": torch.tensor(math.log(10), dtype=torch.float64),
        "float32": torch.tensor([1.3]),
        "each": each,
    }[kind]


def on_device(value):
    return value.to(DEVICE) if isinstance(value, torch.Tensor) else value


@here
@both_types
@pytest.mark.parametrize("kind", ["number", "tensor", "float32", "each"])
@pytest.mark.parametrize("lam", [1e-3, 0.1, 1.0, 1e30])
def test_values_confidences_and_their_slopes_are_those_of_the_cpu(dtype, kind, lam):
    losses = draw_losses(dtype)
    tau = draw_tau(kind, len(losses))
    exact = losses.double()
    value, sigma = super_loss_triton.value_and_sigma(losses.to(DEVICE), on_device(tau), lam)
    slope, again = super_loss_triton.slope_and_sigma(losses.to(DEVICE), on_device(tau), lam)
    expected_value, expected = super_loss._value_and_sigma(exact, tau, lam)
    close(value, expected_value, dtype)
    close(sigma, expected, dtype)
    close(slope, super_loss._slope_and_sigma(exact, tau, lam)[0], dtype, 2 * tolerance(dtype))
    assert torch.equal(sigma.nan_to_num(), again.nan_to_num())


@here
@both_types
def test_superloss_is_its_definition(dtype):
    losses = draw_losses(dtype)[:60]
    tau, lam = math.log(10), 0.7
    found = super_loss_triton.value_and_sigma(losses.to(DEVICE), tau, lam)
    with mpmath.workdps(50):
        for loss, value, sigma in zip(losses.tolist(), *(f.tolist() for f in found), strict=True):
            excess, strength = mpmath.mpf(loss) - mpmath.mpf(tau), mpmath.mpf(lam)
            true_sigma = mpmath.e
            if excess / strength > -2 / mpmath.e:
                true_sigma = mpmath.exp(-mpmath.lambertw(excess / strength / 2).real)
            true_value = true_sigma * excess + strength * mpmath.log(true_sigma) ** 2
            assert abs(sigma - true_sigma) <= 4 * tolerance(dtype) * true_sigma
            assert abs(value - true_value) <= 4 * tolerance(dtype) * abs(true_value)


@here
def test_at_the_cap_sigma_is_e():
    at_cap = torch.tensor([-2 / math.e], dtype=torch.float64, device=DEVICE)
    value, sigma = super_loss_triton.value_and_sigma(at_cap, 0.0, 1.0)
    assert sigma.item() == math.e
    assert value.item() == pytest.approx(-1, rel=1e-15)
    assert super_loss_triton.slope_and_sigma(at_cap, 0.0, 1.0)[0].item() == 0


@here
def test_a_number_keeps_all_its_digits():
    """Triton takes a Python number for a float32 unless it is told otherwise."""
    tau, lam = 1 + 2**-40, 1 + 2**-41
    losses = torch.tensor([1.0, 2.0], dtype=torch.float64)
    value, _ = super_loss_triton.value_and_sigma(losses.to(DEVICE), tau, lam)
    close(value, super_loss._value_and_sigma(losses, tau, lam)[0], torch.float64)


@here
@both_types
def test_the_public_functions_and_two_derivatives(dtype, by_kernels):
    losses = draw_losses(dtype)[:40].to(DEVICE).requires_grad_()
    threshold = torch.tensor(1.3, dtype=torch.float64, device=DEVICE)
    value = superloss(losses, threshold, 0.7)
    (first,) = torch.autograd.grad(value.sum(), losses, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), losses)
    exact = losses.detach().cpu().double()
    close(value.detach(), super_loss._value_and_sigma(exact, 1.3, 0.7)[0], dtype)
    slope, sigma = super_loss._slope_and_sigma(exact, 1.3, 0.7)
    close(first.detach(), sigma, dtype)
    close(second, slope, dtype, 2 * tolerance(dtype))
    assert torch.equal(superloss_confidence(losses, threshold, 0.7), first.detach())


@here
def test_no_losses_give_no_values(by_kernels):
    losses = torch.zeros(0, device=DEVICE, requires_grad=True)
    superloss(losses, 1.0, 1.0).sum().backward()
    assert losses.grad.shape == (0,)
