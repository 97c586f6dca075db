import pytest
import torch
from torch import nn

from bspml.errors import InputError
from bspml.networks import GeM, build_network, feature_network
from bspml.networks.torchvision_models import load_torchvision
from helpers.draws import pixels


@pytest.fixture(scope="module")
def resnet_weights(tmp_path_factory):
    models = pytest.importorskip("torchvision").models
    net = models.resnet18(weights=None)
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(net.state_dict(), path)
    return net, path


def test_torchvision_weights_are_loaded_and_the_last_layer_replaced(resnet_weights):
    theirs, path = resnet_weights
    net = build_network("torchvision:resnet18", 12, weights=path)
    assert net.backbone.fc.out_features == 12
    ours = net.backbone.state_dict()
    kept = {key: v for key, v in theirs.state_dict().items() if not key.startswith("fc.")}
    assert len(kept) == 120
    assert all(torch.equal(ours[key], value) for key, value in kept.items())
    assert net(pixels(2, 3, 64, 64)).shape == (2, 12)


@pytest.mark.filterwarnings("ignore:The default weight initialization of GoogleNet")
@pytest.mark.parametrize("model", ["mobilenet_v3_small", "squeezenet1_1", "googlenet"])
def test_the_last_linear_layer_is_found_or_the_model_refused(model):
    models = pytest.importorskip("torchvision").models
    with torch.device("meta"):  # shapes only: no memory, no time
        names = [n for n, m in models.get_model(model).named_modules() if type(m) is nn.Linear]
    if model in ("squeezenet1_1", "googlenet"):
        with pytest.raises(InputError, match="does not end in one linear layer"):
            build_network(f"torchvision:{model}", 5)
        return
    net = build_network(f"torchvision:{model}", 5)
    assert net.backbone.get_submodule(names[-1]).out_features == 5
    assert net.eval()(pixels(1, 3, 64, 64)).shape == (1, 5)


def test_features_are_what_the_last_layer_was_given(resnet_weights):
    theirs, path = resnet_weights
    seen = []
    theirs.eval().fc.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    net = feature_network("torchvision:resnet18", path)
    x = pixels(2, 3, 64, 64)
    theirs((x - net.mean) / net.std)
    torch.testing.assert_close(net(x), seen[0])


@pytest.mark.parametrize(
    ("model", "pool"),
    [("resnet18", "avgpool"), ("mobilenet_v3_small", "avgpool"), ("shufflenet_v2_x0_5", None)],
)
def test_the_pooling_is_found_where_it_is_a_module(model, pool):
    assert load_torchvision(model, None).pool == pool


def test_seven_by_seven_positions_are_not_one_pooling(monkeypatch):
    models = pytest.importorskip("torchvision").models

    class Vgg(nn.Module):  # the real one has half a gigabyte of weights
        def __init__(self):
            super().__init__()
            self.avgpool, self.classifier = nn.AdaptiveAvgPool2d((7, 7)), nn.Linear(49, 5)

    monkeypatch.setattr(models, "get_model", lambda name, weights: Vgg())
    assert load_torchvision("vgg11", None).pool is None


def test_gem_pools_the_maps_of_a_resnet(resnet_weights):
    theirs, path = resnet_weights
    theirs.eval()
    net = build_network("torchvision:resnet18", 4, weights=path, pooling="gem").eval()
    x = pixels(1, 3, 64, 64)
    maps = nn.Sequential(*list(theirs.children())[:-2])((x - net.mean) / net.std)
    pooled = maps.clamp(min=1e-6).pow(3).mean((2, 3)) ** (1 / 3)
    torch.testing.assert_close(net(x), net.backbone.fc(pooled), rtol=1e-4, atol=1e-5)
    assert isinstance(net.backbone.avgpool, GeM)
    with pytest.raises(InputError, match="torchvision:shufflenet_v2_x0_5 has no module"):
        build_network("torchvision:shufflenet_v2_x0_5", 4, pooling="avg")
