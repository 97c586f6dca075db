"""Hashes of pictures: made photos and altered copies of them."""

import sys

import numpy as np
import pytest
from PIL import Image

from bspml.auditing.picture_hashes import PictureHashes, _close_pairs, _distances, hash_pictures
from bspml.errors import MissingDependencyError

NO_PAIRS = np.empty((0, 2), np.int64)


def photo(seed, width=150, height=110):
    """A smooth random picture: noise of 9 x 7 pixels, enlarged."""
    noise = np.random.default_rng(seed).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


def test_altered_copies_are_alike_and_others_are_not(tmp_path):
    pytest.importorskip("imagehash")
    original, files = photo(0), []
    for name, picture in {
        "0.png": original,
        "1.png": original.transpose(Image.Transpose.ROTATE_90),
        "2.png": original.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        "3.png": original.resize((70, 50)),
        "4.jpg": original,
        "5.png": Image.new("RGB", (40, 40), "white"),
        "6.png": Image.new("RGB", (40, 40), "white"),
        **{f"{i}.png": photo(i) for i in range(7, 27)},
    }.items():
        picture.save(tmp_path / name, quality=50)
        files.append(tmp_path / name)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    hashes = hash_pictures([*files, tmp_path / "broken.png", None])
    assert np.flatnonzero(~hashes.is_hashed).tolist() == [5, 6, 27, 28]  # flat, broken, none
    pairs = hashes.pairs(NO_PAIRS)
    assert pairs.tolist() == [[i, j] for i in range(5) for j in range(i + 1, 5)]


def test_distances_agree_with_counting_bits_one_by_one():
    bits = np.random.default_rng(1).integers(0, 2**63, (12, 8, 4), dtype=np.uint64)
    bits[7, 3] = bits[2, 0] ^ np.uint64(2**63 + 5)  # 3 bits in each of the four words

    def slow(i, j):
        counts = [
            sum(int(x ^ y).bit_count() for x, y in zip(bits[i, 0], turn, strict=True))
            for turn in bits[j]
        ]
        return min(counts)

    pairs = np.array([[i, j] for i in range(12) for j in range(i + 1, 12)])
    expected = np.array([slow(i, j) for i, j in pairs.tolist()])
    assert expected.min() == 12
    assert _distances(bits, pairs).tolist() == expected.tolist()
    for limit in (11, 12, int(np.median(expected))):
        assert _close_pairs(bits, limit).tolist() == pairs[expected <= limit].tolist()


def test_less_is_asked_of_neighbours_and_unhashed_pictures_have_no_pair():
    bits = np.zeros((4, 8, 4), np.uint64)
    bits[1:, :, 0] = 2**64 - 1  # 64 bits from picture 0: too far, unless neighbours
    hashes = PictureHashes(bits, np.array([True, True, False, True]))
    assert hashes.pairs(NO_PAIRS).tolist() == [[1, 3]]
    assert hashes.pairs(np.array([[1, 0], [0, 2]])).tolist() == [[0, 1], [1, 3]]


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "imagehash", None)
    with pytest.raises(MissingDependencyError, match="photos"):
        hash_pictures([])
