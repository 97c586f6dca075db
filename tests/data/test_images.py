"""One file to pixels: boxes, hidden files, and errors that name the file."""

import os

import numpy as np
import pytest
from PIL import Image

from bspml.data.images import find_images, inside, read_image, to_pixels
from bspml.errors import DataError
from helpers.published_trees import image_at


def test_a_grey_jpeg_becomes_three_equal_channels(tmp_path):
    pixels = to_pixels(read_image(image_at(tmp_path / "a.jpg", mode="L")))
    assert pixels.shape == (3, 10, 12)
    assert (pixels[0] == pixels[1]).all()


def test_a_box_cuts_its_pixels_out(tmp_path):
    values = np.arange(30, dtype=np.uint8).reshape(5, 6)
    Image.fromarray(values).save(tmp_path / "a.png")
    cut = np.asarray(read_image(tmp_path / "a.png", 1, box=(1, 2, 4, 5)))
    np.testing.assert_array_equal(cut, values[2:5, 1:4])


def test_a_box_is_rounded_outwards_and_cut_at_the_border():
    assert inside((1.4, 2.6, 3.2, 4.1), (10, 10)) == (1, 2, 4, 5)
    # The width of one published box, 661, is more than the 520 pixels that are there.
    assert inside((0, 0, 661, 300), (520, 400)) == (0, 0, 520, 300)
    assert inside((-3, -3, 2, 2), (10, 10)) == (0, 0, 2, 2)
    for empty in ((5, 5, 5, 8), (12, 0, 14, 5), (4, 4, 2, 8), (0, 0, float("nan"), 4)):
        assert inside(empty, (10, 10)) is None


def test_a_box_without_a_pixel_names_the_file(tmp_path):
    image_at(tmp_path / "a.jpg")
    with pytest.raises(
        DataError, match=r"a\.jpg: its box \(20, 0, 30, 5\) holds no pixel.*12 x 10"
    ):
        read_image(tmp_path / "a.jpg", box=(20, 0, 30, 5))


def test_missing_damaged_and_special_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"b\.jpg: is missing"):
        read_image(tmp_path / "b.jpg")
    whole = image_at(tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a\.jpg: cannot be read as an image"):
        read_image(tmp_path / "a.jpg")
    os.mkfifo(tmp_path / "p.jpg")
    with pytest.raises(DataError, match=r"p\.jpg: is a pipe"):
        read_image(tmp_path / "p.jpg")


def test_hidden_files_do_not_count_and_capital_suffixes_do(tmp_path):
    for name in ("b/x.JPG", "a/y.png", "a/._y.png", ".git/z.png", "a/note.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    assert find_images(tmp_path) == ["a/y.png", "b/x.JPG"]
