"""The residual networks for small images."""

import pytest
import torch

from bspml.errors import InputError
from bspml.experiment.classification.resnet import DEPTHS, CifarResNet


@pytest.mark.parametrize(("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85)])
def test_parameters_are_as_many_as_he_et_al_print(depth, millions):
    network = CifarResNet(depth, 10)
    assert sum(p.numel() for p in network.parameters()) / 1e6 == pytest.approx(millions, abs=0.006)


def test_it_has_as_many_weighted_layers_as_its_name_says():
    kinds = (torch.nn.Conv2d, torch.nn.Linear)
    for depth in DEPTHS:
        layers = [m for m in CifarResNet(depth, 10).modules() if isinstance(m, kinds)]
        assert len(layers) == depth


@pytest.mark.parametrize("size", [8, 32, 33])
def test_it_takes_small_images_of_any_size_and_channels(size):
    assert CifarResNet(20, 7, in_channels=1)(torch.rand(2, 1, size, size)).shape == (2, 7)


def test_a_shortcut_passes_the_input_where_the_convolutions_are_silent():
    network = CifarResNet(20, 10).eval()
    block = network.blocks[3]  # the first of 32 channels: halves the map, pads 8 + 8 channels
    torch.nn.init.zeros_(block.second[0].weight)
    maps = torch.rand(2, 16, 8, 8)
    out = block(maps)
    torch.testing.assert_close(out[:, 8:24], maps[:, :, ::2, ::2])
    assert (out[:, :8] == 0).all()
    assert (out[:, 24:] == 0).all()


@pytest.mark.parametrize("depth", [2, 21])
def test_another_depth_is_refused(depth):
    with pytest.raises(InputError, match=rf"`depth` must be 6 n \+ 2, such as 20.*got {depth}"):
        CifarResNet(depth, 10)
