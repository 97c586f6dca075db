"""Images of any mode become 8 bits a channel, and what is no image is named."""

import os

import numpy as np
import pytest
from PIL import Image

from bspml.data.images import to_mode
from bspml.data.sets.folder import read_folder
from bspml.data.transforms import Whole
from bspml.errors import DataError

GREY = np.array([[0, 64], [128, 255]], dtype=np.uint8)


def images(kind):
    """The picture GREY in a mode of Pillow."""
    wide = GREY.astype(np.uint16) * 257
    grey = Image.fromarray(GREY)
    return {
        "I;16": Image.fromarray(wide),
        "I": Image.fromarray(wide.astype(np.int32)),
        "F": Image.fromarray(GREY.astype(np.float32) / 255),
        "L": grey,
        "LA": grey.convert("LA"),
        "P": grey.convert("P"),
        "RGBA": grey.convert("RGBA"),
        "CMYK": grey.convert("RGB").convert("CMYK"),
    }[kind]


@pytest.mark.parametrize("kind", ["I;16", "I", "F", "L", "LA", "P", "RGBA", "CMYK"])
def test_every_mode_shows_the_same_picture(kind):
    image = images(kind)
    assert image.mode == kind
    np.testing.assert_allclose(np.asarray(to_mode(image, "L")).astype(int), GREY, atol=1)
    np.testing.assert_allclose(np.asarray(to_mode(image, "RGB"))[..., 1].astype(int), GREY, atol=1)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm"])
def test_sixteen_bits_in_a_file_are_not_white(tmp_path, suffix):
    images("I;16").save(tmp_path / f"a{suffix}")
    pixels = read_folder(tmp_path).images(2, 1, view=Whole(2))[0]
    np.testing.assert_allclose(pixels[0].numpy() * 255, GREY, atol=1)


@pytest.mark.parametrize("value", [-1, 70000])
def test_values_without_a_known_range_are_refused(tmp_path, value):
    Image.fromarray(np.full((2, 2), value, dtype=np.int32)).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match=rf"a\.tif: .*span {value} to {value}; expected 0 to 65535"):
        read_folder(tmp_path).images(2)[0]


@pytest.mark.parametrize("value", [np.nan, 255.0])
def test_floats_are_fractions(value):
    with pytest.raises(DataError, match="expected 0 to 1"):
        to_mode(Image.fromarray(np.full((2, 2), value, dtype=np.float32)), "L")


def test_a_pipe_and_a_damaged_image_are_named(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(DataError, match=r"a\.png: is a pipe or a device"):
        read_folder(tmp_path).images(2)[0]
    (tmp_path / "a.png").unlink()
    images("L").save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(content[:30] + b"\xff\xff" + content[32:])
    with pytest.raises(DataError, match=r"a\.png: cannot be read as an image"):
        read_folder(tmp_path).images(2)[0]
