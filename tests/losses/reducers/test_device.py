"""On a GPU: no forward or backward pass of a transform waits for the device."""

import pytest
import torch
from pytorch_metric_learning import reducers as pml_reducers

from bspml.losses.reducers import GradientRescaling, SuperLoss
from bspml.weights.state import SampleWeights
from helpers.reducer_kit import FirstColumn

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def no_waiting():
    """Any wait for the device is an error."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


REDUCERS = [
    pml_reducers.MeanReducer(),
    pml_reducers.SumReducer(),
    pml_reducers.AvgNonZeroReducer(),
    pml_reducers.DivisorReducer(),
]


@needs_gpu
@pytest.mark.parametrize("smoothing", ["none", "sample", "class"])
@pytest.mark.parametrize("tau", ["ema", "mean", 1.0])
@pytest.mark.parametrize("reducer", REDUCERS, ids=lambda r: type(r).__name__)
def test_superloss_does_not_wait(reducer, tau, smoothing, request):
    weights = SampleWeights(torch.arange(8) // 2)
    loss = SuperLoss(
        FirstColumn(reducer=reducer), tau=tau, smoothing=smoothing, sample_weights=weights
    ).cuda()
    embeddings = torch.rand(8, 2, device="cuda", requires_grad=True)
    rows = torch.arange(8, device="cuda")
    loss(embeddings, sample_index=rows).backward()  # buffers, kernels
    request.getfixturevalue("no_waiting")
    loss(embeddings, sample_index=rows).backward()


@needs_gpu
@pytest.mark.parametrize("kind", ["log-probability", "softplus", "hinge"])
@pytest.mark.parametrize("reducer", REDUCERS, ids=lambda r: type(r).__name__)
def test_gradient_rescaling_does_not_wait(reducer, kind, request):
    loss = GradientRescaling(FirstColumn(reducer=reducer), kind=kind).cuda()
    embeddings = torch.rand(8, 2, device="cuda", requires_grad=True)
    loss(embeddings).backward()
    request.getfixturevalue("no_waiting")
    loss(embeddings).backward()


@needs_gpu
def test_the_values_are_those_of_the_cpu():
    embeddings = torch.rand(64, 2)
    for name in ("ema", "mean"):
        there = SuperLoss(FirstColumn(), tau=name).cuda()(embeddings.cuda())
        torch.testing.assert_close(there.cpu(), SuperLoss(FirstColumn(), tau=name)(embeddings))
