import hashlib
import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from bspml.data.retrieval import RetrievalSplit
from bspml.data.transforms import CentreCrop, Whole
from bspml.errors import DataError, MissingDependencyError
from bspml.networks.feature_cache import identity
from bspml.networks.feature_cache.identity import FeatureSource, identity_of, picture_keys

BACKBONE = "torchvision:resnet18"


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "w.pth"
    path.write_bytes(b"weights")
    return path


@pytest.fixture
def root(tmp_path):
    for i in range(3):
        path = tmp_path / "images" / f"{i}.bmp"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 4), (i, i, i)).save(path)
    return tmp_path / "images"


def files(root, paths=("0.bmp", "1.bmp", "2.bmp"), boxes=None):
    return RetrievalSplit("train", np.array(["a"] * len(paths)), root, tuple(paths), boxes)


def test_the_network_and_the_view_count(weights):
    first = identity_of(FeatureSource(BACKBONE, weights), CentreCrop(32))
    assert first == identity_of(FeatureSource(BACKBONE, weights), CentreCrop(32))
    others = [
        identity_of(FeatureSource("torchvision:resnet50", weights), CentreCrop(32)),
        identity_of(FeatureSource(BACKBONE), CentreCrop(32)),
        identity_of(FeatureSource(BACKBONE, weights), CentreCrop(33)),
        identity_of(FeatureSource(BACKBONE, weights), Whole(32)),
    ]
    assert first not in others


def test_the_content_of_the_weights_counts_and_not_their_name(weights, tmp_path):
    def digest(path):
        return identity_of(FeatureSource(BACKBONE, path), CentreCrop(32))["weights"]

    first = digest(weights)
    assert first == hashlib.sha256(b"weights").hexdigest()
    assert digest(weights.rename(tmp_path / "renamed.pth")) == first
    (tmp_path / "renamed.pth").write_bytes(b"WEIGHTS")
    assert digest(tmp_path / "renamed.pth") != first
    with pytest.raises(DataError, match=r"`weights`: .*none\.pth: no such file"):
        digest(tmp_path / "none.pth")


def test_the_weights_inside_a_package_count_by_content(weights, monkeypatch):
    def absent():
        raise MissingDependencyError("absent")

    lite = FeatureSource("efficientnet-lite0")
    monkeypatch.setattr(identity.efficientnet_lite, "weights_file", lambda: weights)
    assert identity_of(lite, CentreCrop(8))["weights"] == hashlib.sha256(b"weights").hexdigest()
    monkeypatch.setattr(identity.efficientnet_lite, "weights_file", absent)
    assert identity_of(lite, CentreCrop(8))["weights"] is None  # who loads it says what is missing


def test_a_picture_is_known_by_its_content_wherever_it_lies(root, tmp_path):
    first = picture_keys(files(root))
    assert len(set(first)) == 3
    assert {len(key) for key in first} == {32}
    assert picture_keys(files(root, ("2.bmp", "0.bmp"))) == [first[2], first[0]]
    assert picture_keys(files(tmp_path, ("images/1.bmp",))) == first[1:2]
    shutil.copy(root / "1.bmp", root / "again.bmp")
    os.utime(root / "again.bmp", (1000, 1000))
    assert picture_keys(files(root, ("again.bmp",))) == first[1:2]


def test_a_changed_picture_counts_even_if_size_and_time_do_not(root):
    path = root / "1.bmp"
    first, stat = picture_keys(files(root)), path.stat()
    Image.new("RGB", (4, 4), (9, 9, 9)).save(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    second = picture_keys(files(root))
    assert [a == b for a, b in zip(first, second, strict=True)] == [True, False, True]


def test_a_missing_image_is_named(root):
    (root / "1.bmp").unlink()
    with pytest.raises(DataError, match=r"1\.bmp: is missing"):
        picture_keys(files(root))


def test_boxes_count_where_they_are_looked_at(root):
    a, b = (files(root, boxes=np.full((3, 4), v)) for v in (1.0, 2.0))
    assert picture_keys(a) == picture_keys(b) == picture_keys(files(root))
    assert len({picture_keys(s, crop)[0] for s in (a, b) for crop in (False, True)}) == 3


def test_pixels_in_memory_count_by_value_type_and_shape():
    def first_key(pixels):
        return picture_keys(RetrievalSplit("train", np.array(["a", "b"]), pixels=pixels))[0]

    pixels = torch.arange(2 * 3 * 4 * 4, dtype=torch.uint8).reshape(2, 3, 4, 4)
    changed = pixels.clone()
    changed[0, 2, 3, 3] += 1
    same = [pixels, pixels.clone(), pixels.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2)]
    others = [changed, pixels.float() / 255, pixels.reshape(2, 3, 2, 8)]
    assert len({first_key(p) for p in same}) == 1
    assert len({first_key(p) for p in [pixels, *others]}) == 4
