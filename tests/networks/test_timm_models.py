import sys
import types

import pytest
import torch
from PIL import Image
from torch import nn

from bspml.data.images import to_pixels
from bspml.data.transforms import Whole, standard_view
from bspml.errors import DataError, InputError, MissingDependencyError
from bspml.experiment.config import load_config
from bspml.experiment.data import image_shape, load_data
from bspml.networks import GeM, build_network, feature_network
from bspml.networks.by_name import view_for
from helpers.draws import pixels


class SelectAdaptivePool2d(nn.Module):
    """A stand-in with the interface of timm's; the real package is an optional extra."""

    def __init__(self, flatten, dim=None):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        if dim is not None:
            self.pool.dim = dim
        self.flatten = nn.Flatten(1) if flatten else nn.Identity()

    def forward(self, x):
        return self.flatten(self.pool(x))


class Model(nn.Module):
    """Scaled pixels, pooled, widened where a layer stands before the classifier, classified."""

    pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}  # noqa: RUF012

    def __init__(self, flatten=True, wide=False, dim=None, distilled=False):
        super().__init__()
        self.num_features = 3
        self.scale = nn.Parameter(torch.ones(3, 1, 1))
        self.global_pool = SelectAdaptivePool2d(flatten, dim)
        self.norm = nn.BatchNorm2d(3)
        self.widen = nn.Linear(3, 5) if wide else nn.Identity()
        self.head_hidden_size = 5 if wide else None
        self.head = nn.Linear(self.head_hidden_size or 3, 10)
        if distilled:
            self.head_dist = nn.Linear(3, 10)

    def get_classifier(self):
        return (self.head, self.head_dist) if hasattr(self, "head_dist") else self.head

    def reset_classifier(self, classes):
        assert classes == 0
        self.head = nn.Identity()
        if hasattr(self, "head_dist"):
            self.head_dist = nn.Identity()

    def forward(self, x):
        return self.head(self.widen(self.global_pool(self.norm(x * self.scale)).flatten(1)))


MODELS = {
    "plain": {},
    "unflat": {"flatten": False},
    "wide": {"wide": True},
    "last": {"dim": (1, 2)},
    "distilled": {"distilled": True},
}


@pytest.fixture(autouse=True)
def timm(monkeypatch):
    def create_model(name, pretrained):
        assert pretrained is False  # nothing is downloaded
        if name == "plain.odd":
            raise RuntimeError("Invalid pretrained tag (odd) for plain.")
        return Model(**MODELS[name.partition(".")[0]])

    module = types.ModuleType("timm")
    module.create_model = create_model
    module.list_models = lambda: list(MODELS)
    module.get_pretrained_cfg = lambda name: types.SimpleNamespace(
        input_size=(3, 160, 160),
        crop_pct=0.95,
        interpolation="bicubic",
        crop_mode="squash" if name == "wide" else "center",
    )
    module.is_model = lambda name: name.partition(".")[0] in MODELS
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


@pytest.fixture
def weights(tmp_path):
    def save(name, scale=2.0, keep=lambda key: True):
        model = Model(**MODELS[name])
        nn.init.constant_(model.scale, scale)
        state = {k: v for k, v in model.state_dict().items() if keep(k)}
        torch.save(state, tmp_path / "w.pth")
        return tmp_path / "w.pth"

    return save


def features(x):
    """What `Model` says with scale 2 and fresh statistics."""
    return 2 * (x.mean((2, 3)) - 0.5) / 0.25 / (1 + 1e-5) ** 0.5


@pytest.mark.parametrize("name", ["plain", "plain.tag", "unflat", "last", "distilled"])
def test_features_are_those_of_the_files_weights_on_its_pixels(name, weights):
    x = pixels(4, 3, 5, 5)
    net = feature_network(f"timm:{name}", weights(name.partition(".")[0]))
    torch.testing.assert_close(net(x), features(x))


def test_a_new_layer_follows_the_features_whatever_their_width(weights):
    net = build_network("timm:wide", 6, weights=weights("wide"), freeze_batchnorm=True)
    assert net.training
    out = net(pixels(4, 3, 5, 5))
    assert out.shape == (4, 6)
    out.sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    assert not net.backbone[0].norm.training


def test_the_files_classifier_may_be_absent_but_no_other_layer(weights):
    path = weights("distilled", keep=lambda key: not key.startswith("head"))
    assert feature_network("timm:distilled", path)(pixels(1, 3, 4, 4)).shape == (1, 3)
    path = weights("plain", keep=lambda key: key != "scale")
    with pytest.raises(DataError, match=r"does not fit Model: .*scale"):
        feature_network("timm:plain", path)


@pytest.mark.parametrize("name", ["plain", "unflat"])
def test_gem_takes_the_place_of_timms_pooling(name, weights):
    x = pixels(2, 3, 5, 5) / 2 + 0.5  # positive once shifted
    net = build_network(f"timm:{name}", 6, weights=weights(name), pooling="gem").eval()
    scaled = 2 * (x - 0.5) / 0.25 / (1 + 1e-5) ** 0.5
    pooled = scaled.clamp(min=1e-6).pow(3).mean((2, 3)) ** (1 / 3)
    torch.testing.assert_close(net(x), net.backbone[1](pooled))
    assert any(isinstance(m, GeM) for m in net.modules())


def test_channels_last_transformers_keep_their_pooling():
    with pytest.raises(InputError, match="timm:last has no module that averages"):
        build_network("timm:last", 6, pooling="gem")


def test_unknown_models_and_tags_are_refused_and_no_address_is_opened(timm):
    with pytest.raises(InputError, match=r"timm has no model 'plane'; it has plain, \.\.\."):
        build_network("timm:plane")
    with pytest.raises(InputError, match="timm has no model 'hf-hub:someone/model'"):
        build_network("timm:hf-hub:someone/model")
    with pytest.raises(InputError, match=r"timm cannot make 'plain.odd': Invalid pretrained tag"):
        build_network("timm:plain.odd")


def test_a_missing_timm_comes_with_the_pip_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'bspml\[timm\]'"):
        build_network("timm:resnet18")


def test_photos_are_shown_as_timm_shows_them():
    # timm: floor(160 / 0.95) = 168 for the shorter side, then the middle 160.
    picture = Image.fromarray((255 * pixels(50, 70, 3).numpy()).astype("uint8"))
    resized = picture.resize((235, 168), Image.Resampling.BICUBIC)
    left = round((235 - 160) / 2)
    shown = view_for("timm:plain.tag", None)
    assert shown(picture).tobytes() == resized.crop((left, 4, left + 160, 164)).tobytes()
    assert str(shown) == "shorter side resized to 168 (bicubic), centre crop of 160 x 160"
    squashed = picture.resize((84, 84), Image.Resampling.BICUBIC).crop((2, 2, 82, 82))
    assert view_for("timm:wide", 80)(picture).tobytes() == squashed.tobytes()
    assert view_for("timm:plain", None, "tile") == Whole(160)
    assert view_for("torchvision:resnet50", None) == view_for(None, 224) == standard_view(224)


def test_a_run_shows_photos_so_and_says_it(tmp_path, weights):
    for name in ("a", "b", "c", "d"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(2):
            array = (255 * pixels(50, 70, 3).numpy()).astype("uint8")
            Image.fromarray(array).save(tmp_path / "photos" / name / f"{number}.png")
    config = load_config(
        overrides=[
            "data.name=folder", f"data.root={tmp_path / 'photos'}", "network.name=timm:plain",
            f"network.weights={weights('plain')}",
        ]
    )  # fmt: skip
    assert image_shape(config) == (160, 3)
    view = view_for("timm:plain", None)
    with Image.open(tmp_path / "photos" / "c" / "0.png") as picture:
        expected = to_pixels(view(picture)).float() / 255
    data = load_data(config)
    row = data.test_names.index("c/0.png")
    torch.testing.assert_close(data.test_images[row], expected)
