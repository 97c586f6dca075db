import sys
import types

import pytest
import torch
from torch import nn

from bspml.errors import DataError, MissingDependencyError
from bspml.networks import build_network, load_weights


def small(classes=5):
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, classes))


def saved(state, path):
    torch.save(state, path)
    return path


def assert_equal(net, other):
    assert net.state_dict()
    for (name, a), b in zip(net.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"state_dict": state, "epoch": 3},
        lambda state: {"model": state, "args": {"lr": 0.1}},
        lambda state: {f"module.{k}": v for k, v in state.items()},
        lambda state: {"state_dict": {f"module.{k}": v for k, v in state.items()}},
    ],
)
def test_the_state_dict_is_found_in_what_training_scripts_save(wrap, tmp_path):
    theirs, ours = small(), small()
    load_weights(ours, saved(wrap(theirs.state_dict()), tmp_path / "w.pth"))
    assert_equal(ours, theirs)


def test_a_module_called_module_keeps_its_name(tmp_path):
    theirs, ours = (nn.ModuleDict({"module": nn.Linear(2, 2)}) for _ in range(2))
    with pytest.raises(DataError, match="does not fit ModuleDict"):
        load_weights(ours, saved({"weight": torch.zeros(2, 2)}, tmp_path / "w.pth"))
    load_weights(ours, saved(theirs.state_dict(), tmp_path / "w.pth"))
    assert_equal(ours, theirs)


def test_what_is_replaced_may_be_absent_or_of_another_size(tmp_path):
    theirs = small(classes=7)
    for keep in (lambda k: True, lambda k: not k.startswith("2.")):
        state = {k: v for k, v in theirs.state_dict().items() if keep(k)}
        ours = small()
        head = ours[2].weight.clone()
        with pytest.raises(DataError, match="does not fit Sequential"):
            load_weights(small(), saved(state, tmp_path / "w.pth"))
        load_weights(ours, tmp_path / "w.pth", replaced=["2"])
        assert_equal(ours[:2], theirs[:2])
        assert torch.equal(ours[2].weight, head)
    with pytest.raises(DataError, match=r"Missing key.*0\.weight"):
        load_weights(small(), saved({"1.bias": torch.zeros(3)}, tmp_path / "w.pth"), ["2"])


def test_weights_that_cannot_be_used_are_named(tmp_path):
    theirs = small()
    path = saved(theirs.state_dict(), tmp_path / "good.pth")

    def load(name):
        load_weights(small(), tmp_path / name)

    with pytest.raises(DataError, match=r".*none\.pth: no such file"):
        load("none.pth")
    (tmp_path / "cut.pth").write_bytes(path.read_bytes()[:900])
    with pytest.raises(DataError, match=r"cut\.pth is damaged"):
        load("cut.pth")
    (tmp_path / "text.pth").write_text("hello")
    with pytest.raises(DataError, match=r"text\.pth is damaged"):
        load("text.pth")
    saved(nn.Linear(2, 2), tmp_path / "code.pth")  # a pickled module could run anything
    with pytest.raises(DataError, match="holds more than tensors"):
        load("code.pth")
    for state in ([1, 2], {1: torch.ones(1)}, {}, {"state_dict": {}}):
        saved(state, tmp_path / "odd.pth")
        with pytest.raises(DataError, match="does not fit Sequential"):
            load("odd.pth")
    with pytest.raises(DataError, match="is a pipe or a device"):
        load_weights(small(), "/dev/null")


def test_safetensors_are_read_with_their_package_or_the_pip_line_named(monkeypatch, tmp_path):
    theirs, ours = small(), small()
    path = tmp_path / "w.safetensors"
    path.touch()
    monkeypatch.setitem(sys.modules, "safetensors", types.ModuleType("safetensors"))
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(MissingDependencyError, match="pip install safetensors"):
        load_weights(ours, path)
    reader = types.SimpleNamespace(load_file=lambda file: theirs.state_dict())
    monkeypatch.setitem(sys.modules, "safetensors.torch", reader)
    load_weights(ours, path)
    assert_equal(ours, theirs)


def test_small_conv_takes_its_own_saved_weights_and_no_others(tmp_path):
    saved = build_network("small-conv", 8, seed=1)
    torch.save(saved.state_dict(), tmp_path / "net.pt")
    loaded = build_network("small-conv", 8, weights=tmp_path / "net.pt", seed=2)
    assert_equal(saved, loaded)
    with pytest.raises(DataError, match=r"net\.pt does not fit SmallConvNet: .*head\.weight"):
        build_network("small-conv", 9, weights=tmp_path / "net.pt")
    with pytest.raises(DataError, match="no such file"):
        build_network("small-conv", 8, weights=tmp_path / "none.pt")
    torch.save({1: torch.ones(1)}, tmp_path / "odd.pt")
    with pytest.raises(DataError, match="does not fit SmallConvNet"):
        build_network("small-conv", 8, weights=tmp_path / "odd.pt")
