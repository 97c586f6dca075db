"""The kernel of tau, and whole steps of SuperLoss by kernels, against the forms for the CPU."""

import math

import pytest
import torch
from pytorch_metric_learning import reducers as pml_reducers

from bspml.functional import lambert, super_loss
from bspml.losses.reducers import SuperLoss, tau
from bspml.losses.reducers.tau import RunningTau
from helpers.reducer_kit import FirstColumn
from helpers.triton_kernels import (
    DEVICE,
    both_types,
    close,
    compiler,
    compiles,
    here,
    needs_gpu,
    outside,
    passes_in_the_interpreter,
    use_kernels,
)

pytest.importorskip("triton")
BUFFERS = ("average", "total", "correction", "count")


@pytest.mark.slow
@outside
def test_in_the_interpreter(interpreted):
    passes_in_the_interpreter(__file__, interpreted)


@compiler
def test_tau_compiles_for_a_gpu_with_numbers_in_float64(tmp_path, monkeypatch):
    from bspml.tensors.kernels import tau_triton

    constants = {"COUNTED": True, "EXPONENTIAL": True, "TRAINING": True}
    compiles(tau_triton._learn, constants, "*fp64", tmp_path, monkeypatch)


@pytest.fixture
def by_kernels(monkeypatch):
    use_kernels(monkeypatch, lambert, super_loss, tau)


BATCHES = [[math.nan, 1.0], [1e16, 3.0], [1.0, 2.0, 5.0], [], [math.inf], [-1e16], [4.0, 4.0]]


@here
@pytest.mark.parametrize("mode", ["ema", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_tau_and_its_buffers_are_those_of_the_cpu(mode, weighted, monkeypatch):
    momentum = 0.7 if mode == "ema" else 0.9
    ours, expected = RunningTau(mode, momentum).to(DEVICE), RunningTau(mode, momentum)
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
            close(found, wanted, torch.float64, 1e-15)
            for name in BUFFERS:
                close(getattr(ours, name), getattr(expected, name), torch.float64, 1e-15)


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
