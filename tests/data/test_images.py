"""One file to pixels: boxes, hidden files, and errors that name the file."""

import os

import numpy as np
import pytest
import torch
from PIL import EpsImagePlugin, Image

from bspml.data.image_checks import look_at
from bspml.data.images import find_images, inside, read_image, to_pixels
from bspml.data.retrieval import RetrievalSplit
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


def test_the_figures_of_runs_are_no_photos_and_a_file_of_such_a_name_hides_none(tmp_path):
    for name in ("config.yaml", "records.jsonl", "figures/curves.png"):
        path = tmp_path / "runs" / "glyphs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    for name in ("a/config.yaml", "a/1.png", "runs/owl.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert find_images(tmp_path) == ["a/1.png", "runs/owl.png"]


# Where the red corner of a picture, stored at the top left, stands by each EXIF orientation.
CORNERS = {
    1: (0, 0),
    2: (0, -1),
    3: (-1, -1),
    4: (-1, 0),
    5: (0, 0),
    6: (0, -1),
    7: (-1, -1),
    8: (-1, 0),
}


def noted(path, orientation, size=(40, 20)):
    """A picture with a red quarter at the top left as stored, and the camera's note."""
    image = Image.new("RGB", size)
    image.paste((255, 0, 0), (0, 0, size[0] // 2, size[1] // 2))
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(path, exif=exif)
    return path


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
@pytest.mark.parametrize("note", CORNERS)
def test_a_picture_stands_as_the_camera_was_held(tmp_path, note, suffix):
    image = read_image(noted(tmp_path / f"a.{suffix}", note))
    assert image.size == ((20, 40) if note > 4 else (40, 20))
    pixels = np.asarray(image).astype(int)
    assert pixels[CORNERS[note]][0] > 200
    assert sum(pixels[y, x, 0] > 200 for y in (0, -1) for x in (0, -1)) == 1


def test_backbone_and_decoded_pixels_see_the_same_upright_picture(tmp_path):
    noted(tmp_path / "a.jpg", 6)
    image = read_image(tmp_path / "a.jpg")
    image.save(tmp_path / "b.png")
    split = RetrievalSplit("test", np.array(["x", "x"]), tmp_path, ("a.jpg", "b.png"))
    shown = split.images(16)
    torch.testing.assert_close(shown[0], shown[1])
    boxed = read_image(tmp_path / "a.jpg", box=(10, 0, 20, 20))  # of the upright picture
    assert boxed.size == (10, 20)
    assert (np.asarray(boxed)[2:-2, 2:-2, 0] > 200).all()


def test_notes_that_say_nothing_are_passed_over(tmp_path):
    for value in (0, 9):
        assert read_image(noted(tmp_path / "a.jpg", value)).size == (40, 20)
    data = noted(tmp_path / "a.jpg", 6).read_bytes()
    (tmp_path / "a.jpg").write_bytes(data.replace(b"Exif\0\0MM", b"Exif\0\0??"))
    assert read_image(tmp_path / "a.jpg").size == (40, 20)


def test_a_jpeg_may_come_smaller_where_less_is_needed(tmp_path):
    path = noted(tmp_path / "a.jpg", 6, (400, 200))
    assert read_image(path, needed_side=50).size == (50, 100)


def test_postscript_is_never_handed_to_ghostscript(tmp_path, monkeypatch):
    """A file named like a photo may be a program."""

    def run(*args, **kwargs):
        raise AssertionError("Ghostscript was called")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", run)
    path = tmp_path / "photo.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")
    with pytest.raises(DataError, match=r"photo\.png: cannot be read .*it is PostScript"):
        read_image(path)
    split = RetrievalSplit("train", np.array(["a"]), root=tmp_path, paths=("photo.png",))
    [finding] = look_at([(split, 0)], decode_all=False)
    assert (finding.fault, "PostScript" in finding.reason) == ("unreadable", True)
