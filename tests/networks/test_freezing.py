import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from bspml.errors import InputError
from bspml.networks import SmallConvNet, build_network, freeze_backbone, freeze_batchnorm
from helpers.draws import pixels


def test_frozen_statistics_survive_train_copy_and_pickle():
    net = build_network("small-conv", 4)
    assert freeze_batchnorm(net) == 3
    x = pixels(4, 1, 24, 24)
    for frozen in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        before = copy.deepcopy(frozen.state_dict())
        frozen.train()
        frozen(x).sum().backward()
        after = frozen.state_dict()
        assert all(torch.equal(before[k], after[k]) for k in before if "running" in k)
        assert all(m.weight.requires_grad for m in frozen.modules() if type(m) is nn.BatchNorm2d)


def test_affine_freezes_scale_and_shift_too():
    net = build_network("mlp", 4, in_channels=5)
    assert freeze_batchnorm(net, affine=True) == 1
    net.train()(pixels(3, 5)).sum().backward()
    norm = net.layers[1]
    assert norm.weight.grad is None
    assert norm.bias.grad is None
    assert np.all([p.grad is not None for p in net.layers[0].parameters()])


def test_only_the_last_linear_layer_of_a_frozen_backbone_trains():
    net = SmallConvNet(embedding_size=5, channels=(4, 5, 6))
    assert freeze_backbone(net) == sum(p.numel() for p in net.head.parameters())
    before = copy.deepcopy(net.state_dict())
    net.train()
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=1.0)
    net(pixels(4, 1, 24, 24)).square().sum().backward()
    optimizer.step()
    changed = {k for k, v in net.state_dict().items() if not torch.equal(v, before[k])}
    assert changed == {"head.weight", "head.bias"}
    with pytest.raises(InputError, match="must end in a linear layer"):
        freeze_backbone(nn.Conv2d(1, 1, 1))
