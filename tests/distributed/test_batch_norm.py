"""Batch normalisation over ranks against torch's own over the whole batch."""

import pytest
import torch
from torch import nn

from bspml.distributed import add_gradients, gather_rows, ranks, share_of, synchronize_batch_norm
from bspml.networks import freeze_batchnorm

LAYERS = {
    "flat": (lambda: nn.BatchNorm1d(3), (7, 3)),
    "sequence": (lambda: nn.BatchNorm1d(3, momentum=None), (7, 3, 4)),
    "images": (lambda: nn.BatchNorm2d(3, momentum=0.3), (7, 3, 2, 5)),
    "volumes, no scale": (lambda: nn.BatchNorm3d(3, affine=False), (7, 3, 2, 1, 2)),
    "no memory": (lambda: nn.BatchNorm1d(3, track_running_stats=False), (7, 3)),
}


def passed(make, shape):
    """Outputs, input gradients, parameter gradients and state after two batches and eval mode."""
    generator = torch.Generator().manual_seed(1)
    layer = make().double()
    for p in layer.parameters():
        nn.init.normal_(p, generator=generator)
    network = nn.Sequential(layer)
    changed = synchronize_batch_norm(network)
    found = []
    for _ in range(2):
        batch = 2 + 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
        direction = torch.randn(shape, generator=generator, dtype=torch.float64)
        part = batch[share_of(len(batch))].requires_grad_()
        out = network(part)
        (out * direction[share_of(len(batch))]).sum().backward()
        found += [gather_rows(out), gather_rows(part.grad)]
    add_gradients(layer.parameters())
    found += [p.grad for p in layer.parameters()]
    found += [v.clone() for v in layer.state_dict().values()]
    if layer.running_mean is not None:
        network.eval()
        found.append(network(torch.ones(1 + ranks(), *shape[1:], dtype=torch.float64))[0].detach())
    return [changed, list(layer.state_dict()), found]


def on_a_rank():
    frozen = nn.Sequential(nn.BatchNorm1d(2).double())
    freeze_batchnorm(frozen)
    synchronize_batch_norm(frozen)
    frozen.train()
    found = {name: passed(*layer) for name, layer in LAYERS.items()}
    # A frozen layer asks nobody: only one rank comes here.
    found["frozen"] = frozen(torch.full((1, 2), 5.0, dtype=torch.float64)).detach()
    return found


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LAYERS)
def test_outputs_gradients_and_statistics_are_those_of_torch_on_the_whole_batch(
    everyone, size, name
):
    _, keys, alone = passed(*LAYERS[name])  # torch's own layer: nothing is changed without ranks
    for found in everyone(__file__, size):
        changed, theirs, values = found[name]
        assert changed == 1
        assert theirs == keys
        for value, expected in zip(values, alone, strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-11)


def test_a_frozen_layer_keeps_its_running_statistics(everyone):
    expected = torch.full((1, 2), 5.0, dtype=torch.float64) / (1 + 1e-5) ** 0.5
    for found in everyone(__file__, 2):
        torch.testing.assert_close(found["frozen"], expected)


def test_without_ranks_nothing_is_changed():
    network = nn.Sequential(nn.BatchNorm1d(2))
    assert synchronize_batch_norm(network) == 0
    assert type(network[0]) is nn.BatchNorm1d
