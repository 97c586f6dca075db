from torch import nn

from bspml.networks import MLPHead
from helpers.draws import pixels


def test_mlp_head_has_one_hidden_layer_or_none():
    assert MLPHead(20, 6, hidden=9)(pixels(4, 20)).shape == (4, 6)
    linear = MLPHead(20, 6, hidden=0)
    assert [type(m) for m in linear.layers] == [nn.Linear]
    assert linear(pixels(4, 20)).shape == (4, 6)
