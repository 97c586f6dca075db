import hashlib
import os

import numpy as np
import pytest
import torch
from PIL import Image

from bspml.data.retrieval import RetrievalSplit
from bspml.errors import DataError
from bspml.networks.feature_cache.identity import FeatureSource, identity_of

BACKBONE = "torchvision:resnet18"


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "w.pth"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def make(tmp_path, weights):
    """`make(split=..., **options)`: the identity, of files unless a split is given."""
    for i in range(3):
        path = tmp_path / "images" / f"{i}.bmp"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4), (i, i, i)).save(path)
        os.utime(path, (1000, 1000))

    def call(split=None, **options):
        split = split or files(tmp_path / "images")
        settings = {"weights": weights, "image_size": 32, "crop_boxes": False, "backbone": BACKBONE}
        return identity_of(split, FeatureSource(**{**settings, **options}))

    return call


def files(root, paths=("0.bmp", "1.bmp", "2.bmp"), boxes=None, content="photo"):
    labels = np.array(["a"] * len(paths))
    return RetrievalSplit("train", labels, root, tuple(paths), boxes, content=content)


def test_it_is_plain_and_repeats(make):
    first = make()
    assert first == make()
    assert {type(value) for value in first.values()} <= {str, int, bool}


@pytest.mark.parametrize(
    "options",
    [{"backbone": "torchvision:resnet50"}, {"image_size": 33}, {"weights": None}],
)
def test_each_setting_counts(make, options):
    assert make(**options) != make()


def test_the_content_of_the_weights_counts_and_not_their_name(make, weights, tmp_path):
    first = make()
    assert first["weights"] == hashlib.sha256(b"weights").hexdigest()
    assert make(weights=weights.rename(tmp_path / "renamed.pth")) == first
    (tmp_path / "renamed.pth").write_bytes(b"WEIGHTS")
    assert make(weights=tmp_path / "renamed.pth") != first
    with pytest.raises(DataError, match=r"`weights`: .*none\.pth: no such file"):
        make(weights=tmp_path / "none.pth")


def test_the_order_and_the_number_of_images_count(make, tmp_path):
    root = tmp_path / "images"
    orders = [("0.bmp", "1.bmp", "2.bmp"), ("1.bmp", "0.bmp", "2.bmp"), ("0.bmp", "1.bmp")]
    found = [make(files(root, order))["images"] for order in orders]
    assert len(set(found)) == 3
    assert make(files(root, content="tile")) != make()


def test_a_changed_image_counts_even_if_its_size_does_not(make, tmp_path):
    first = make()
    path = tmp_path / "images" / "1.bmp"
    size = path.stat().st_size
    Image.new("RGB", (4, 4), (9, 9, 9)).save(path)
    assert path.stat().st_size == size
    assert make() != first


def test_a_data_set_that_is_moved_stays_itself(make, tmp_path):
    first = make()
    (tmp_path / "images").rename(tmp_path / "elsewhere")
    assert make(files(tmp_path / "elsewhere")) == first


def test_a_missing_image_is_named(make, tmp_path):
    (tmp_path / "images" / "1.bmp").unlink()
    with pytest.raises(DataError, match=r"1\.bmp: is missing"):
        make()


def test_boxes_count_where_they_are_looked_at(make, tmp_path):
    a, b = (files(tmp_path / "images", boxes=np.full((3, 4), v)) for v in (1.0, 2.0))
    assert make(a) == make(b)
    assert make(a, crop_boxes=True) != make(b, crop_boxes=True)
    assert make(a, crop_boxes=True) != make(a)


def test_pixels_in_memory_count_by_value_type_and_shape(make):
    def of(pixels):
        return make(RetrievalSplit("train", np.array(["a", "b"]), pixels=pixels))

    pixels = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).reshape(2, 3, 4, 4)
    changed = pixels.clone()
    changed[1, 2, 3, 3] += 1
    others = [changed, pixels.float() / 255, pixels.reshape(2, 3, 2, 8)]
    assert of(pixels) == of(pixels.clone())
    assert of(pixels) == of(pixels.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2))
    assert len({of(p)["images"] for p in [pixels, *others]}) == 4


def test_the_version_of_the_lite_weights_package_counts(make, monkeypatch):
    found = []
    for version in ("0.1.0", "0.2.0"):
        monkeypatch.setattr("importlib.metadata.version", lambda name, v=version: v)
        found.append(make(backbone="efficientnet-lite0", weights=None))
    assert found[0] != found[1]
