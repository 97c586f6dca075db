import pytest
import torch
from torch import nn

from bspml.errors import InputError
from bspml.networks import GeM, PretrainedNet
from bspml.networks.backbone import Backbone
from helpers.draws import pixels


def test_pretrained_nets_scale_pixels_themselves_and_show_grey_as_three_equal_channels():
    seen = []

    class Spy(nn.Module):
        def forward(self, x):
            seen.append(x)
            return x.mean((2, 3))

    net = PretrainedNet(Spy(), mean=(0.5, 0.25, 0.0), std=(0.5, 0.5, 2.0))
    grey = pixels(2, 1, 4, 4)
    net(grey)
    expected = torch.cat([(grey - 0.5) / 0.5, (grey - 0.25) / 0.5, grey / 2], dim=1)
    torch.testing.assert_close(seen[0], expected)
    assert not net.state_dict()  # the constants are not part of a checkpoint


class Maps(nn.Module):
    """The pixels as maps, pooled, then three features to ten classes."""

    def __init__(self, flat=False):
        super().__init__()
        pool = nn.AdaptiveAvgPool2d(1)
        self.pool = nn.Sequential(pool, nn.Flatten()) if flat else pool
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(3, 10))
        self.flat = flat

    def forward(self, x):
        pooled = self.pool(x)
        assert pooled.ndim == (2 if self.flat else 4)
        return self.head(pooled)


def backbone(net, pool="pool"):
    return Backbone("tiny", net, "head.1", 3, (0.0,) * 3, (1.0,) * 3, pool, net.flat)


@pytest.mark.parametrize("flat", [False, True])
def test_poolings_take_the_place_of_the_networks_own(flat):
    x = pixels(2, 3, 5, 5)
    for name, expected in [
        (None, x.mean((2, 3))),
        ("avg", x.mean((2, 3))),
        ("gem", x.pow(3).mean((2, 3)) ** (1 / 3)),
    ]:
        found = backbone(Maps(flat))
        if name is not None:
            found = found.with_pooling(name)
        torch.testing.assert_close(found.without_head()(x), expected)


def test_the_exponent_of_the_pooling_is_trained_with_the_network():
    net = backbone(Maps()).with_pooling("gem").with_head(4)
    net(pixels(2, 3, 5, 5)).sum().backward()
    assert [n for n, m in net.named_modules() if isinstance(m, GeM)] == ["backbone.pool"]
    assert net.backbone.pool.p.grad.abs() > 0
    assert "backbone.pool.p" in net.state_dict()


def test_features_have_nothing_to_train_and_embeddings_a_new_layer():
    features = backbone(Maps()).without_head()
    assert not features.training
    assert not any(p.requires_grad for p in features.parameters())
    assert features(pixels(2, 3, 5, 5)).shape == (2, 3)
    embeddings = backbone(Maps()).with_head(4)
    assert embeddings.training
    assert embeddings(pixels(2, 3, 5, 5)).shape == (2, 4)


def test_poolings_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="tiny has no module that averages its last maps"):
        backbone(Maps(), pool=None).with_pooling("gem")
    with pytest.raises(InputError, match="`pooling` must be one of avg, gem; got 'max'"):
        backbone(Maps()).with_pooling("max")
