"""Networks by name, from the seed alone."""

import pytest
import torch

from bspml.errors import ConfigError
from bspml.experiment.classification.networks import Standardised, make_network
from bspml.experiment.config import load_experiment

GREY, RGB = (1, 8, 8), (3, 32, 32)


def network(name, shape=GREY, outputs=10, seed=0):
    config = load_experiment(None, ["task=classification", f"network.name={name}", f"seed={seed}"])
    channels = shape[0]
    return make_network(config, shape, outputs, [0.5] * channels, [0.25] * channels)


def same(a, b):
    return all(
        torch.equal(x, y)
        for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("name", ["mlp", "small-conv", "resnet20"])
def test_the_seed_alone_decides_the_initial_weights(name):
    torch.rand(3)  # the global generator is somewhere else
    before = torch.get_rng_state()
    first = network(name)
    assert torch.equal(torch.get_rng_state(), before)
    assert same(first, network(name))
    assert not same(first, network(name, seed=1))


@pytest.mark.parametrize(
    ("name", "shape"),
    [("mlp", GREY), ("small-conv", GREY), ("resnet20", RGB), ("torchvision:resnet18", RGB)],
)
def test_outputs_are_logits_or_one_number(name, shape):
    images = torch.rand(2, *shape)
    assert network(name, shape)(images).shape == (2, 10)
    assert network(name, shape, outputs=1)(images).shape == (2,)


def test_pixels_are_standardised_channel_by_channel():
    net = Standardised(torch.nn.Identity(), [0.5, 0.0], [0.25, 2.0])
    images = torch.tensor([[[[1.0]], [[1.0]]]])
    assert net(images).flatten().tolist() == [2.0, 0.5]
    assert not net.state_dict()  # constants of the data


def test_an_unknown_torchvision_model_is_named():
    with pytest.raises(ConfigError, match=r"`network\.name`: torchvision has no classifier 'x'"):
        network("torchvision:x", RGB)
