import pytest
import torch
from torch import nn

from bspml.errors import InputError
from bspml.networks import SmallConvNet
from helpers.draws import pixels


@pytest.mark.parametrize("size", [(24, 24), (28, 28), (8, 8), (33, 40), (64, 64)])
def test_small_conv_net_takes_any_image_of_at_least_8_pixels(size):
    net = SmallConvNet(embedding_size=10, channels=(4, 5, 6), in_channels=3)
    assert net(pixels(2, 3, *size)).shape == (2, 10)


def test_small_conv_net_refuses_tiny_images_and_odd_channels():
    with pytest.raises(InputError, match=r"at least 8 x 8 pixels.*\(2, 1, 7, 24\)"):
        SmallConvNet()(pixels(2, 1, 7, 24))
    with pytest.raises(InputError, match=r"`channels` must be three numbers; got \(4, 8\)"):
        SmallConvNet(channels=(4, 8))
    with pytest.raises(InputError, match="`embedding_size` must be a whole number"):
        SmallConvNet(embedding_size=0)


def test_small_conv_net_equals_its_layers_applied_one_by_one():
    net = SmallConvNet(embedding_size=7, channels=(4, 5, 6)).eval()
    maps = images = pixels(3, 1, 24, 24)
    for block in net.blocks:
        conv, norm = block[0], block[2]
        maps = nn.functional.conv2d(maps.contiguous(), conv.weight.contiguous(), padding=1)
        # With the fresh statistics, normalising before or after the maximum is the same.
        maps = maps / (1 + norm.eps) ** 0.5
        maps = maps.relu().unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2))
    expected = maps.reshape(3, -1) @ net.head.weight.T + net.head.bias
    torch.testing.assert_close(net(images), expected, rtol=1e-4, atol=1e-5)


def test_small_conv_net_trains_all_its_parameters():
    net = SmallConvNet(channels=(4, 5, 6))
    net(pixels(4, 1, 24, 24)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())
