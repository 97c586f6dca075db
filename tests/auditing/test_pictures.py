"""Pictures of the page: from inside the folder only, small, links where the page is heavy."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from bspml.auditing import pictures
from bspml.auditing.pictures import PagePictures
from bspml.errors import DataError, InputError


def opened(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1])))


def test_only_files_inside_the_folder_are_shown(tmp_path):
    inside = tmp_path / "images"
    (inside / "sub").mkdir(parents=True)
    secret = tmp_path / "secret.png"
    for path in (secret, inside / "a.png", inside / "sub" / "b#%.png"):
        Image.new("RGB", (200, 100), (255, 0, 0)).save(path)
    (inside / "broken.png").write_bytes(b"no image")
    names = np.array(
        ["a.png", "sub/b#%.png", "../secret.png", str(secret), "", "none.png", "sub", "x\0y",
         "broken.png", "n" * 5000]
    )  # fmt: skip
    shown = PagePictures(inside, names, tmp_path / "out")
    small = opened(shown(0))
    assert small.size == (96, 48)
    assert small.getpixel((5, 5))[0] > 240
    assert shown(1).startswith("data:image/jpeg")
    assert [shown(i) for i in (2, 3, 4, 5, 6, 7, 9)] == [None] * 7
    assert shown(8) == "../images/broken.png"  # not readable as a picture here: a link to it


def test_links_are_followed_inside_the_folder_only(tmp_path):
    inside, far = tmp_path / "images", tmp_path / "far"
    inside.mkdir()
    far.mkdir()
    Image.new("L", (4, 4)).save(inside / "a.png")
    Image.new("L", (4, 4)).save(far / "b.png")
    (inside / "in.png").symlink_to("a.png")
    (inside / "out.png").symlink_to("../far/b.png")
    (inside / "folder").symlink_to(far)
    (inside / "notes.txt").write_text("no picture")
    (tmp_path / "link").symlink_to(inside)
    names = np.array(["in.png", "out.png", "folder/b.png", "notes.txt"])
    for root in (inside, tmp_path / "link"):  # the folder that the user names may be a link
        shown = PagePictures(root, names, tmp_path)
        assert [(shown(i) or "")[:5] for i in range(4)] == ["data:", "", "", ""]
    with pytest.raises(DataError, match="none of the samples' names is a file in it"):
        PagePictures(inside, names[1:3], tmp_path)


def test_a_heavy_page_links_to_the_rest(tmp_path, monkeypatch):
    for name in ("a.png", "b.png"):
        Image.new("L", (10, 10)).save(tmp_path / name)
    monkeypatch.setattr(pictures, "_BUDGET", 1)
    shown = PagePictures(tmp_path, np.array(["a.png", "b.png"]), tmp_path / "out")
    assert shown(0).startswith("data:")
    assert shown(1) == "../b.png"
    assert shown(0).startswith("data:")  # made once
    for wrong in (b"photos", ["photos"], 3, np.zeros((2, 4, 4))):
        with pytest.raises(InputError, match=r"`images` must be a folder or pixels .* N = 2"):
            PagePictures(wrong, np.array(["", ""]), tmp_path)
    pixels = PagePictures(np.zeros((2, 3, 4, 4)), np.array(["", ""]), tmp_path)
    assert pixels(0).startswith("data:image/png")
    assert pixels(1) is None


@pytest.mark.parametrize("place", range(8, 60, 8))
@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "TIFF"])
def test_a_picture_damaged_anywhere_is_a_link_at_worst(tmp_path, kind, place):
    whole = io.BytesIO()
    Image.new("RGB", (16, 16), (9, 99, 9)).save(whole, kind)
    damaged = bytearray(whole.getvalue())
    damaged[place : place + 4] = b"\xf8\xf3\x89\x85"
    (tmp_path / "a.png").write_bytes(damaged)
    shown = PagePictures(tmp_path, np.array(["a.png"]), tmp_path)(0)
    assert shown == "a.png" or shown.startswith("data:image/jpeg")


def test_a_picture_that_stops_early_is_a_link(tmp_path):
    whole = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(whole, "PNG")
    damaged = bytearray(whole.getvalue())
    damaged[35] -= 1  # 256 bytes fewer than there are: Pillow answers with a SyntaxError
    (tmp_path / "a.png").write_bytes(damaged)
    assert PagePictures(tmp_path, np.array(["a.png"]), tmp_path)(0) == "a.png"


def test_a_thumbnail_stands_as_the_camera_was_held(tmp_path):
    image, exif = Image.new("RGB", (40, 20)), Image.Exif()
    image.paste((255, 0, 0), (0, 0, 20, 20))
    exif[0x0112] = 6  # stored on its side: what is left stands on top
    image.save(tmp_path / "a.jpg", exif=exif)
    small = opened(PagePictures(tmp_path, np.array(["a.jpg"]), tmp_path)(0))
    assert small.size == (20, 40)
    assert small.getpixel((10, 5))[0] > 200
    assert small.getpixel((10, 35))[0] < 50
