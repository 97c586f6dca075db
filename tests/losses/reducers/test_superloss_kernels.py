"""The kernels of W, SuperLoss and tau: in Triton's interpreter, and on a GPU.

Against fifty digits of mpmath and against the forms for the CPU.  The interpreter is chosen by an
environment variable before Triton is imported, so without a GPU these tests run in a process of
their own: `pytest` of this very file.
"""

import math
import os
import subprocess
import sys
from pathlib import Path

import mpmath
import pytest
import torch
from pytorch_metric_learning import reducers as pml_reducers
from torch.autograd import gradcheck, gradgradcheck

from bspml.functional import lambert, lambertw, super_loss, superloss, superloss_confidence
from bspml.losses.reducers import SuperLoss, tau
from bspml.losses.reducers.tau import RunningTau
from helpers.reducer_kit import FirstColumn

pytest.importorskip("triton")
GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if GPU and not INTERPRETED else "cpu"
here = pytest.mark.skipif(not (GPU or INTERPRETED), reason="runs in a process of its own")
needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
both_types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
BUFFERS = ("average", "total", "correction", "count")


@pytest.mark.skipif(GPU or INTERPRETED, reason="the kernels run in this process")
def test_in_the_interpreter():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__))]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, cwd=Path.cwd()
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


@pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
@pytest.mark.parametrize("losses", ["*fp32", "*fp64"])
def test_they_compile_for_a_gpu_with_numbers_in_float64(losses, tmp_path, monkeypatch):
    """The compiler needs no GPU.  A number is a float32 there unless its annotation says other."""
    from triton import compile as compiled
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from bspml.tensors.kernels import lambert_triton, super_loss_triton, tau_triton

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for kernel, constants in (
        (lambert_triton._fill, {"GIVEN": False, "SIZE": 256}),
        (super_loss_triton._minimise, {"TAU": 1, "SLOPE": False, "SIZE": 256}),
        (tau_triton._learn, {"COUNTED": True, "EXPONENTIAL": True, "TRAINING": True}),
    ):
        signature = {}
        for given in kernel.params:
            pointer = "*fp64" if kernel is tau_triton._learn else losses
            unsaid = pointer if given.name.endswith("_ptr") else "i32"
            signature[given.name] = given.annotation_type or given.annotation or unsaid
        numbers = [name for name, kind in signature.items() if kind == "i32"]
        assert numbers in ([], ["n"])
        source = ASTSource(kernel, signature, constants)
        assert compiled(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


@pytest.fixture
def by_kernels(monkeypatch):
    """Public functions use the kernels, whatever the device and the switch, and hide no failure."""
    for module in (lambert, super_loss, tau):
        monkeypatch.setattr(module, "runs_triton", lambda *tensors: True)
        monkeypatch.setattr(module, "by_kernel", lambda kernel, otherwise, *args: kernel(*args))
    # On the CPU principal_branch would not ask.
    monkeypatch.setattr(lambert, "_number_by_number", branch_kernel)


def branch_kernel(x, log_x=None):
    from bspml.tensors.kernels import lambert_triton

    return lambert_triton.principal_branch(x, log_x)


def tolerance(dtype):
    """A unit in the last place of float32; in float64 a few, as every step has a rounding there."""
    return 1.2e-7 if dtype == torch.float32 else 1e-14


def same(found, expected, dtype, rtol=None):
    """`expected` is float64, from the CPU."""
    torch.testing.assert_close(
        found.cpu(),
        expected.to(dtype),
        rtol=rtol or tolerance(dtype),
        atol=4 * 5e-324 if dtype == torch.float64 else 3e-45,  # units of the subnormal numbers
        equal_nan=True,
    )


# ---------------------------------------------------------------------- Lambert's W


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
        same(got, wanted.double(), dtype, 4 * torch.finfo(dtype).eps)
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
def test_shapes_and_gaps(by_kernels):
    x = torch.rand(6, 8, dtype=torch.float64).to(DEVICE)[::2, ::3]
    assert branch_kernel(x)[0].shape == x.shape
    same(branch_kernel(x)[0], lambert._all_at_once(x.cpu(), None)[0], x.dtype)
    assert branch_kernel(x[:0])[1].shape == (0, 3)
    assert branch_kernel(x[0, 0])[0].shape == ()


@here
def test_derivatives_of_w(by_kernels):
    x = torch.tensor([-0.36, -0.3101, -0.1, 0.0, 0.5, 100.0], dtype=torch.float64, device=DEVICE)
    assert gradcheck(lambertw, x.requires_grad_(), eps=1e-7, atol=1e-6, rtol=1e-6)
    assert gradgradcheck(lambertw, x, eps=1e-7, atol=1e-4, rtol=1e-4)


# ---------------------------------------------------------------------- SuperLoss


def draw_losses(dtype):
    losses = 20 * torch.rand(300, generator=torch.Generator().manual_seed(0)) - 4
    edges = [0.0, -0.0, 1e-38, -1e-38, 1e-3, 1e10, -1e10, 1e38, -1e38, 3.4e38, -3.4e38]
    edges += [math.inf, -math.inf, math.nan]
    return torch.cat([losses, torch.tensor(edges)]).to(dtype)


def draw_tau(kind, count):
    each = 3 * torch.rand(count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return {
        "number": math.log(10),
        "tensor": torch.tensor(math.log(10), dtype=torch.float64),
        "float32": torch.tensor([1.3]),
        "each": each,
    }[kind]


def there(value):
    return value.to(DEVICE) if isinstance(value, torch.Tensor) else value


@here
@both_types
@pytest.mark.parametrize("kind", ["number", "tensor", "float32", "each"])
@pytest.mark.parametrize("lam", [1e-3, 0.1, 1.0, 1e30])
def test_values_confidences_and_their_slopes_are_those_of_the_cpu(dtype, kind, lam):
    from bspml.tensors.kernels import super_loss_triton

    losses = draw_losses(dtype)
    tau = draw_tau(kind, len(losses))
    exact = losses.double()
    value, sigma = super_loss_triton.value_and_sigma(losses.to(DEVICE), there(tau), lam)
    slope, again = super_loss_triton.slope_and_sigma(losses.to(DEVICE), there(tau), lam)
    expected_value, expected = super_loss._value_and_sigma(exact, tau, lam)
    same(value, expected_value, dtype)
    same(sigma, expected, dtype)
    same(slope, super_loss._slope_and_sigma(exact, tau, lam)[0], dtype, 2 * tolerance(dtype))
    assert torch.equal(sigma.nan_to_num(), again.nan_to_num())


@here
@both_types
def test_superloss_is_its_definition(dtype):
    from bspml.tensors.kernels import super_loss_triton

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
    from bspml.tensors.kernels import super_loss_triton

    value, sigma = super_loss_triton.value_and_sigma(at_cap, 0.0, 1.0)
    assert sigma.item() == math.e
    assert value.item() == pytest.approx(-1, rel=1e-15)
    assert super_loss_triton.slope_and_sigma(at_cap, 0.0, 1.0)[0].item() == 0


@here
def test_a_number_keeps_all_its_digits():
    """Triton takes a Python number for a float32 unless it is told otherwise."""
    from bspml.tensors.kernels import super_loss_triton

    tau, lam = 1 + 2**-40, 1 + 2**-41
    losses = torch.tensor([1.0, 2.0], dtype=torch.float64)
    value, _ = super_loss_triton.value_and_sigma(losses.to(DEVICE), tau, lam)
    same(value, super_loss._value_and_sigma(losses, tau, lam)[0], torch.float64)


@here
@both_types
def test_the_public_functions_and_two_derivatives(dtype, by_kernels):
    losses = draw_losses(dtype)[:40].to(DEVICE).requires_grad_()
    threshold = torch.tensor(1.3, dtype=torch.float64, device=DEVICE)
    value = superloss(losses, threshold, 0.7)
    (first,) = torch.autograd.grad(value.sum(), losses, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), losses)
    exact = losses.detach().cpu().double()
    same(value.detach(), super_loss._value_and_sigma(exact, 1.3, 0.7)[0], dtype)
    slope, sigma = super_loss._slope_and_sigma(exact, 1.3, 0.7)
    same(first.detach(), sigma, dtype)
    same(second, slope, dtype, 2 * tolerance(dtype))
    assert torch.equal(superloss_confidence(losses, threshold, 0.7), first.detach())


@here
def test_no_losses_give_no_values(by_kernels):
    losses = torch.zeros(0, device=DEVICE, requires_grad=True)
    superloss(losses, 1.0, 1.0).sum().backward()
    assert losses.grad.shape == (0,)


# ---------------------------------------------------------------------- tau, and the whole step

BATCHES = [[math.nan, 1.0], [1e16, 3.0], [1.0, 2.0, 5.0], [], [math.inf], [-1e16], [4.0, 4.0]]


@here
@pytest.mark.parametrize("mode", ["ema", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_tau_and_its_buffers_are_those_of_the_cpu(mode, weighted, monkeypatch):
    ours, expected = RunningTau(mode, 0.7).to(DEVICE), RunningTau(mode, 0.7)
    for losses in map(torch.tensor, BATCHES):
        weights = torch.linspace(0.25, 1, len(losses)) if weighted else None
        for training in (True, False):
            wanted = expected.train(training).update(losses, weights)
            with monkeypatch.context() as patch:
                patch.setattr(tau, "runs_triton", lambda *tensors: True)
                patch.setattr(tau, "by_kernel", lambda kernel, otherwise, *args: kernel(*args))
                found = ours.train(training).update(
                    losses.to(DEVICE), None if weights is None else weights.to(DEVICE)
                )
            same(found, wanted, torch.float64, 1e-15)
            for name in BUFFERS:
                same(getattr(ours, name), getattr(expected, name), torch.float64, 1e-15)


REDUCERS = [pml_reducers.MeanReducer(), pml_reducers.AvgNonZeroReducer()]


def steps(device, threshold, reducer, dtype):
    """Losses and gradients of three steps, float64 at the end."""
    loss, found = SuperLoss(FirstColumn(reducer=reducer), tau=threshold).to(device), []
    for step in range(3):
        draw = torch.Generator().manual_seed(step)
        embeddings = (3 * torch.rand(40, 2, generator=draw) - 0.5).to(device, dtype)
        embeddings.requires_grad_()
        value = loss(embeddings)
        value.backward()
        found += [value.detach().cpu().double(), embeddings.grad.cpu().double()]
    return found


@here
@both_types
@pytest.mark.parametrize("threshold", ["ema", "mean", 1.0])
@pytest.mark.parametrize("reducer", REDUCERS, ids=lambda r: type(r).__name__)
def test_steps_are_those_of_the_cpu(dtype, threshold, reducer, request):
    expected = steps("cpu", threshold, reducer, dtype)
    request.getfixturevalue("by_kernels")
    rtol, atol = (1e-5, 1e-6) if dtype == torch.float32 else (1e-13, 1e-14)
    for got, wanted in zip(steps(DEVICE, threshold, reducer, dtype), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=rtol, atol=atol)


@needs_gpu
@pytest.mark.parametrize("threshold", ["ema", "mean", 1.0])
def test_a_step_by_kernels_does_not_wait(threshold, by_kernels):
    loss = SuperLoss(FirstColumn(), tau=threshold).cuda()
    embeddings = torch.rand(8, 2, device="cuda", requires_grad=True)
    loss(embeddings).backward()  # buffers, kernels
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss(embeddings).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
