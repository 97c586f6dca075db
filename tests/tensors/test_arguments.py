"""Nothing here looks at values off the CPU, and everything is named in the package."""

import math

import pytest
import torch

import bspml.functional
from bspml import functional as bf
from bspml.errors import InputError

LOGITS, LABELS, LOSSES = torch.zeros(4, 3), torch.zeros(4, dtype=torch.long), torch.ones(4)
CALLS = {
    "lambertw": lambda z, y, x: bf.lambertw(x),
    "superloss": lambda z, y, x: bf.superloss(x, math.log(10), 0.25),
    "superloss, tau a tensor": lambda z, y, x: bf.superloss(x, x.detach().mean(), 0.25),
    "superloss, tau float64": lambda z, y, x: bf.superloss(x, x.detach().double().mean(), 0.25),
    "superloss, tau per element": lambda z, y, x: bf.superloss(x, x.detach() / 2, 0.25),
    "superloss_confidence": lambda z, y, x: bf.superloss_confidence(x, 1.0, 0.25),
    "gr_weight": lambda z, y, x: bf.gr_weight(x, 8, 0.5),
    "gr_cross_entropy": lambda z, y, x: bf.gr_cross_entropy(z, y, 8, 0.5),
    "imae": lambda z, y, x: bf.imae(z, y),
    "mae": lambda z, y, x: bf.mae(z, y),
    "gce": lambda z, y, x: bf.gce(z, y),
    "truncated_gce": lambda z, y, x: bf.truncated_gce(z, y),
    "self_paced_weights": lambda z, y, x: bf.self_paced_weights(x, 1.0),
    "rescaled_hinge": lambda z, y, x: bf.rescaled_hinge(x, 0.5),
    "introspection_loss": lambda z, y, x: bf.introspection_loss(x, x.detach().sign(), x),
    "reliability_loss": lambda z, y, x: bf.reliability_loss(x, x),
    "data_parameters_loss": lambda z, y, x: bf.data_parameters_loss(z, y, x, 0.1),
    "multi_task_loss": lambda z, y, x: bf.multi_task_loss(x, x),
    "WeightCurve": lambda z, y, x: bf.WeightCurve.imae(8)(x),
}
NUMBERS_ONLY = {"emphasis_focus", "emphasis_spread", "imae_variance"}  # they return floats


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nothing_waits_for_the_device(name, dtype):
    """The meta device has shapes and no values: whatever looks at one fails there.

    That is what makes an accelerator wait: `.item()`, `bool(...)`, `nonzero`.
    """
    z = LOGITS.to("meta", dtype).requires_grad_()
    x = LOSSES.to("meta", dtype).requires_grad_()
    value = CALLS[name](z, LABELS.to("meta"), x)
    assert value.device.type == "meta"
    assert value.dtype == torch.float32
    if value.requires_grad:
        inputs = [v for v in (z, x) if name]
        grads = torch.autograd.grad(value.sum(), inputs, create_graph=True, allow_unused=True)
        second = sum(g.float().sum() for g in grads if g is not None)
        if second.requires_grad:
            second.backward()


def test_the_meta_device_would_notice():
    with pytest.raises(RuntimeError):
        float(LOSSES.to("meta").sum())
    with pytest.raises(NotImplementedError):
        LOSSES.to("meta").nonzero()


def test_every_public_function_is_tried_on_the_meta_device():
    tried = {name.split(",")[0] for name in CALLS}
    offered = {n for n, value in vars(bspml.functional).items() if callable(value)}
    assert tried | NUMBERS_ONLY == offered


def test_inputs_are_left_as_they_were():
    generator = torch.Generator().manual_seed(0)
    z, x = torch.randn(4, 3, generator=generator), torch.rand(4, generator=generator)
    before = z.clone(), x.clone()
    for call in CALLS.values():
        call(z, LABELS, x)
    assert torch.equal(z, before[0])
    assert torch.equal(x, before[1])


@pytest.mark.parametrize("name", [n for n in CALLS if "tau" not in n and n != "gr_weight"])
def test_the_result_may_be_changed_in_place_before_backward(name):
    """pytorch-metric-learning's trainers scale the loss they get in place."""
    z = torch.tensor([[0.3, -1.0, 2.0]] * 4, requires_grad=True)
    x = torch.tensor([0.2, 0.4, 0.6, 0.9], requires_grad=True)
    value = CALLS[name](z, LABELS, x)
    if value.requires_grad:
        value *= 2
        value.sum().backward()


def test_what_is_no_tensor_is_refused():
    from bspml.tensors.arguments import at_least_float32, unreduced

    for value in ([1.0, 2.0], 3.0, None):
        with pytest.raises(InputError, match=r"`losses` must be a tensor of floats; got"):
            unreduced(value)
    with pytest.raises(InputError, match=r"got torch\.complex64"):
        at_least_float32(torch.ones(2, dtype=torch.complex64), "x")
    with pytest.raises(InputError, match=r"got torch\.float8_e4m3fn"):
        at_least_float32(torch.ones(2).to(torch.float8_e4m3fn), "x")
