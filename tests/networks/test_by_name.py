import pytest
import torch
from torch import nn

from bspml.errors import InputError
from bspml.networks import build_network, feature_network
from helpers.draws import pixels


def test_the_embeddings_are_not_normalised():
    norms = build_network("small-conv")(pixels(8, 1, 24, 24)).norm(dim=1)
    assert (norms - 1).abs().max() > 0.1


@pytest.mark.parametrize(
    ("name", "options"), [("small-conv", {}), ("mlp", {"in_channels": 20, "hidden": 8})]
)
def test_initial_weights_depend_on_the_seed_alone_and_leave_global_state_alone(name, options):
    states = []
    for global_seed, seed in [(0, 5), (1, 5), (0, 6)]:
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        states.append(build_network(name, 16, seed=seed, **options).state_dict())
        assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(states[0][k], states[1][k]) for k in states[0])
    assert any(not torch.equal(states[0][k], states[2][k]) for k in states[0])


def test_options_reach_the_network():
    net = build_network("small-conv", 32, in_channels=3, channels=(4, 8, 12))
    assert net.head.in_features == 12 * 9
    assert net.head.out_features == 32
    assert net.blocks[0][0].in_channels == 3


def test_unknown_names_and_options_are_refused_with_what_exists():
    with pytest.raises(InputError, match=r"small-conv, mlp, .*; got 'big-conv'"):
        build_network("big-conv")
    with pytest.raises(InputError, match=r"no classifier 'resnet999'; it has .*resnet18"):
        build_network("torchvision:resnet999")
    with pytest.raises(InputError, match="'mlp' does not take `weights`"):
        build_network("mlp", weights="w.pth")
    with pytest.raises(InputError, match=r"`options` of network 'small-conv'.*depth"):
        build_network("small-conv", depth=3)
    with pytest.raises(InputError, match="does not take `hidden`"):
        build_network("torchvision:resnet18", hidden=3)


def test_batch_normalisations_are_frozen_when_asked():
    torch.testing.assert_close(
        *[
            build_network("small-conv", 4, freeze_batchnorm=frozen).state_dict()["head.weight"]
            for frozen in (False, True)
        ]
    )
    net = build_network("small-conv", 4, freeze_batchnorm=True)
    assert net.training
    before = net.blocks[0][2].running_mean.clone()
    net(pixels(4, 1, 24, 24))
    assert torch.equal(net.blocks[0][2].running_mean, before)
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    assert all(p.requires_grad for norm in norms for p in norm.parameters())


def test_networks_built_here_refuse_what_is_for_backbones():
    with pytest.raises(InputError, match="'small-conv' does not take `pooling`"):
        build_network("small-conv", pooling="gem")
    with pytest.raises(InputError, match="'mlp' does not take `freeze_batchnorm`"):
        build_network("mlp", in_channels=3, freeze_batchnorm=True)


def test_feature_networks_are_backbones_with_weights():
    with pytest.raises(InputError, match=r"`backbone` must be .*timm:MODEL; got 'small-conv'"):
        feature_network("small-conv")
    with pytest.raises(InputError, match="got 'timm:'"):
        feature_network("timm:")
    with pytest.raises(InputError, match="torchvision:resnet18 needs `weights`, a file"):
        feature_network("torchvision:resnet18")
