import logging
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from bspml.data.retrieval import RetrievalSplit
from bspml.errors import DataError, InputError, RunError
from bspml.networks.feature_cache import cached_features, extraction, feature_network
from bspml.networks.feature_cache.identity import FeatureSource


def features_of(split, backbone, weights=None, image_size=None, crop_boxes=False, **options):
    source = FeatureSource(backbone, weights, image_size, crop_boxes)
    return cached_features(split, source, **options)


class Means(nn.Module):
    """Mean of each channel, and its double; counts the images it saw."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(2.0))
        self.seen, self.size = 0, None

    def forward(self, images):
        assert self.size in (None, images.shape[-1]), f"expected {self.size} pixels"
        self.seen += len(images)
        means = images.mean((2, 3))
        return torch.cat([means, self.factor * means], dim=1)


@pytest.fixture
def net(monkeypatch):
    net = Means()
    monkeypatch.setattr(extraction, "feature_network", lambda backbone, weights: net)
    return net


@pytest.fixture
def forbidden(monkeypatch):
    def forbid():
        def refuse(backbone, weights):
            raise AssertionError("the backbone was loaded")

        monkeypatch.setattr(extraction, "feature_network", refuse)

    return forbid


@pytest.fixture
def split(tmp_path):
    """Seven PNGs of one colour each."""
    for i in range(7):
        path = tmp_path / "images" / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (12, 10), (i, 10 * i, 100)).save(path)
    paths = tuple(f"{i}.png" for i in range(7))
    return RetrievalSplit("train", np.array(list("aabbccd")), tmp_path / "images", paths)


@pytest.fixture
def expected():
    means = torch.tensor([[i, 10 * i, 100] for i in range(7)]) / 255
    return torch.cat([means, 2 * means], dim=1)


def test_the_second_call_reads_without_the_backbone(net, forbidden, split, expected, tmp_path):
    first = features_of(split, "efficientnet-lite0", cache=tmp_path / "cache")
    torch.testing.assert_close(first, expected)
    assert first.dtype == torch.float32
    assert not first.requires_grad
    assert net.seen == 7
    forbidden()
    assert torch.equal(features_of(split, "efficientnet-lite0", cache=tmp_path / "cache"), first)
    # 224 pixels is what None means.
    again = features_of(split, "efficientnet-lite0", image_size=224, cache=tmp_path / "cache")
    assert torch.equal(again, first)


def test_the_environment_names_the_cache(net, split, tmp_path, monkeypatch):
    monkeypatch.setenv("BSPML_CACHE", str(tmp_path / "ours"))
    features_of(split, "efficientnet-lite0", image_size=8)
    (file,) = (tmp_path / "ours" / "features").glob("*/*")
    assert file.suffix == ".npz"


def test_other_images_and_settings_are_extracted_anew(net, split, tmp_path):
    def seen(split, backbone="efficientnet-lite0", size=8):
        before = net.seen
        features_of(split, backbone, image_size=size, cache=tmp_path / "cache")
        return net.seen - before

    assert seen(split) == 7
    assert seen(split) == 0
    assert seen(split, size=9) == 7
    assert seen(split, "torchvision:resnet18") == 7
    assert seen(split.take([1, 0])) == 0  # the same pictures
    Image.new("RGB", (12, 10), (200, 0, 0)).save(tmp_path / "images" / "3.png")
    assert seen(split) == 1


def test_pictures_are_extracted_once_wherever_they_are_met(net, split, expected, tmp_path):
    cache = tmp_path / "cache"
    shutil.copy(tmp_path / "images" / "6.png", tmp_path / "images" / "copy.png")
    paths = ("6.png", "2.png", "copy.png")
    part = RetrievalSplit("test", np.array(list("dbd")), tmp_path / "images", paths)
    found = features_of(part, "efficientnet-lite0", cache=cache)
    torch.testing.assert_close(found, expected[[6, 2, 6]])
    assert net.seen == 2
    (tmp_path / "images").rename(tmp_path / "moved")
    said = []
    source = FeatureSource("efficientnet-lite0")
    whole = replace(split, root=tmp_path / "moved")
    found = cached_features(whole, source, cache=cache, say=said.append)
    torch.testing.assert_close(found, expected)
    assert net.seen == 7
    cached_features(whole, source, cache=cache, say=said.append)
    assert said == [
        "embedding 5 images with efficientnet-lite0; the features of 2 images are in the cache",
        "efficientnet-lite0: the features of 7 images are in the cache",
    ]


def test_a_damaged_file_is_made_again_and_told(net, split, expected, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(extraction, "PART", 3)
    features_of(split, "efficientnet-lite0", cache=tmp_path)
    file = min(tmp_path.glob("features/*/*.npz"))
    data = bytearray(file.read_bytes())
    data[data.index(b"features.npy") + 150] ^= 1
    file.write_bytes(bytes(data))
    net.seen = 0
    with caplog.at_level(logging.WARNING):
        found = features_of(split, "efficientnet-lite0", cache=tmp_path)
    torch.testing.assert_close(found, expected)
    assert 0 < net.seen <= 3
    assert "making features again" in caplog.text
    net.seen = 0
    features_of(split, "efficientnet-lite0", cache=tmp_path)
    assert net.seen == 0


def test_what_another_process_makes_meanwhile_is_not_made_again(
    net, split, expected, tmp_path, monkeypatch
):
    monkeypatch.setattr(extraction, "PART", 3)
    load = extraction.feature_network

    def slow(backbone, weights):
        monkeypatch.setattr(extraction, "feature_network", load)
        features_of(split, "efficientnet-lite0", cache=tmp_path)
        return net

    monkeypatch.setattr(extraction, "feature_network", slow)
    torch.testing.assert_close(features_of(split, "efficientnet-lite0", cache=tmp_path), expected)
    assert net.seen == 7


def test_an_extraction_that_an_image_stopped_goes_on(net, split, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(extraction, "PART", 2)
    path = tmp_path / "images" / "5.png"
    whole, times = path.read_bytes(), path.stat()
    path.write_bytes(bytes(len(whole)))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(DataError, match=r"5\.png: cannot be read as an image"):
        features_of(split, "efficientnet-lite0", cache=tmp_path / "cache")
    path.write_bytes(whole)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    net.seen = 0
    found = features_of(split, "efficientnet-lite0", cache=tmp_path / "cache")
    torch.testing.assert_close(found, expected)
    assert net.seen == 3


def test_pixels_in_memory_boxes_and_grey_images(net, tmp_path, split):
    pixels = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    held = RetrievalSplit("test", np.array(["a", "b", "b"]), pixels=pixels, content="tile")
    found = features_of(held, "efficientnet-lite0", image_size=8, cache=tmp_path / "cache")
    torch.testing.assert_close(found[:, :3], pixels.mean((2, 3)).expand(3, 3))
    left = Image.new("RGB", (12, 10))
    left.paste((255, 255, 255), (0, 0, 6, 10))
    left.save(tmp_path / "images" / "0.png")
    boxed = RetrievalSplit(
        "test", np.array(["a"]), tmp_path / "images", ("0.png",), np.array([[0.0, 0, 6, 10]])
    )
    settings = {"image_size": 8, "cache": tmp_path / "cache"}
    whole = features_of(boxed, "efficientnet-lite0", **settings)
    cropped = features_of(boxed, "efficientnet-lite0", crop_boxes=True, **settings)
    assert cropped[0, 0].item() == pytest.approx(1.0)
    assert whole[0, 0].item() < 0.8


def test_progress_counts_the_images_on_stderr(net, split, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(extraction, "PART", 2)
    features_of(split, "efficientnet-lite0", cache=tmp_path / "a", progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "features of train" in err
    assert "7/7" in err
    features_of(split, "efficientnet-lite0", cache=tmp_path / "b")  # no terminal
    assert capsys.readouterr() == ("", "")


def test_a_cache_that_cannot_be_written_is_refused_if_named_and_done_without_if_not(
    net, split, expected, tmp_path, monkeypatch, caplog
):
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(DataError, match=r"`cache` must be a folder .*; got .*file"):
        features_of(split, "efficientnet-lite0", cache=blocked)
    monkeypatch.setenv("BSPML_CACHE", str(blocked))
    with caplog.at_level(logging.WARNING):
        found = features_of(split, "efficientnet-lite0")
    torch.testing.assert_close(found, expected)
    assert "extracted at each start" in caplog.text


def test_a_disk_that_is_full_stops_whoever_named_it(
    net, split, expected, tmp_path, monkeypatch, caplog
):
    def full(store, keys, features):
        raise RunError("x.npz: cannot be written (No space left on device).")

    monkeypatch.setattr(extraction.FeatureStore, "add", full)
    with pytest.raises(RunError, match="No space left"):
        features_of(split, "efficientnet-lite0", cache=tmp_path)
    monkeypatch.setenv("BSPML_CACHE", str(tmp_path))
    torch.testing.assert_close(features_of(split, "efficientnet-lite0"), expected)
    assert "cannot write" in caplog.text


def test_what_cannot_be_extracted_is_refused(net, split, tmp_path):
    cache = tmp_path / "cache"
    held = RetrievalSplit("train", np.array(["a"]), features=torch.ones(1, 2))
    with pytest.raises(InputError, match="holds features, not images"):
        features_of(held, "efficientnet-lite0", cache=cache)
    with pytest.raises(InputError, match="`split` must hold at least one image"):
        features_of(split.take([]), "efficientnet-lite0", cache=cache)
    with pytest.raises(InputError, match="has no boxes"):
        features_of(split, "efficientnet-lite0", crop_boxes=True, cache=cache)
    with pytest.raises(InputError, match="`image_size` must be a whole number"):
        features_of(split, "efficientnet-lite0", image_size=0, cache=cache)
    net.size = 96
    with pytest.raises(InputError, match=r"torchvision:x does not take .*expected 96"):
        features_of(split, "torchvision:x", image_size=64, cache=cache)
    net.size = None
    nn.init.constant_(net.factor, torch.nan)
    with pytest.raises(DataError, match="7 images are not finite, the first is image 0"):
        features_of(split, "efficientnet-lite0", cache=cache)
    assert not list(cache.glob("features/*/*"))


def test_unknown_backbones_and_missing_weights_are_refused(split, tmp_path):
    with pytest.raises(
        InputError, match="`backbone` must be efficientnet-lite0, torchvision:MODEL"
    ):
        features_of(split, "resnet18", cache=tmp_path)
    with pytest.raises(InputError, match="needs `weights`"):
        features_of(split, "torchvision:resnet18", cache=tmp_path)


def test_the_features_are_those_of_a_real_backbone(split, tmp_path):
    models = pytest.importorskip("torchvision").models
    torch.save(models.get_model("shufflenet_v2_x0_5").state_dict(), tmp_path / "w.pth")
    settings = {"weights": tmp_path / "w.pth", "image_size": 32, "cache": tmp_path / "cache"}
    found = features_of(split, "torchvision:shufflenet_v2_x0_5", **settings)
    assert found.shape == (7, 1024)
    net = feature_network("torchvision:shufflenet_v2_x0_5", tmp_path / "w.pth")
    images = torch.stack([split.images(32)[i] for i in range(7)])
    torch.testing.assert_close(found, net(images), rtol=1e-4, atol=1e-5)
