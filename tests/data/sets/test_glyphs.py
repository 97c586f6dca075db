import functools
import os
import threading
import unicodedata
import zipfile

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.textpath import TextPath
from torch.utils.data import DataLoader

from bspml.data.sets import glyphs as module
from bspml.data.sets.glyphs import FACES, Glyphs
from bspml.errors import DataError, InputError


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("glyphs")


@pytest.fixture(scope="module")
def halves(root):
    return Glyphs("train", root), Glyphs("test", root)


def test_there_are_513_characters_of_16_faces_in_two_disjoint_halves(halves):
    train, test = halves
    assert (len(train.classes), len(test.classes)) == (256, 257)
    assert not set(train.classes) & set(test.classes)
    for half in halves:
        assert half.images.shape == (16 * len(half.classes), 1, 24, 24)
        assert len(half) == len(half.images)
        assert half.images.dtype == torch.float32
        assert half.labels.dtype == torch.int64
        assert half.labels.bincount().tolist() == [16] * len(half.classes)
        assert half.faces[:17] == [*FACES, FACES[0]]
        assert len(half.faces) == len(half)


def test_the_characters_are_letters_and_digits_one_per_picture(halves):
    characters = set(halves[0].classes) | set(halves[1].classes)
    assert {unicodedata.category(c) for c in characters} == {"Lu", "Ll", "Lo", "Nd"}
    assert set("0123456789") | {chr(c) for c in range(65, 91)} <= characters
    assert "\N{GREEK CAPITAL LETTER ALPHA}" not in characters  # drawn like A
    assert "\N{CYRILLIC SMALL LETTER A}" not in characters
    assert "\N{GREEK SMALL LETTER OMEGA}" in characters


def test_no_two_classes_are_drawn_alike_in_dejavu_sans(halves):
    pictures = [h.images[:: len(FACES)].flatten(1) for h in halves]
    assert len(torch.cat(pictures).unique(dim=0)) == 513


def test_pixels_are_ink_between_0_and_1_and_no_glyph_is_cut_off_or_missing(root):
    images = torch.cat([Glyphs(half, root, image_size=64).images for half in ("train", "test")])
    assert images.min() == 0
    assert images.max() == 1
    assert (images.flatten(1).sum(1) > 20).all()
    edges = [images[..., 0, :], images[..., -1, :], images[..., 0], images[..., -1]]
    assert all(edge.max() == 0 for edge in edges)


def test_a_picture_has_as_much_ink_as_matplotlibs_own_outline(halves):
    # Independent way: TextPath for the outline, the shoelace formula for its area.
    test = halves[1]
    letter = "L"  # straight edges only
    half = next(h for h in halves if letter in h.classes)
    row = half.classes.index(letter) * 16
    font = mpl.font_manager.FontProperties(
        fname=str(module.Path(mpl.get_data_path()) / "fonts/ttf/DejaVuSans.ttf")
    )
    polygon = TextPath((0, 0), letter, size=module._EM * 24, prop=font).to_polygons()[0]
    x, y = polygon.T
    area = abs(np.dot(x[:-1], y[1:]) - np.dot(x[1:], y[:-1])) / 2
    assert half.images[row].sum().item() == pytest.approx(area, rel=0.02)
    assert test.images.mean() < 0.5  # white on black


def test_letters_stand_upright_on_a_common_baseline(halves):
    pictures = {c: h.images[i * 16, 0] for h in halves for i, c in enumerate(h.classes)}

    def bottom(c):
        return int(pictures[c].sum(1).nonzero().max())

    assert bottom("A") == bottom("E") == bottom("h") < bottom("p")
    assert pictures["L"][:12].sum() < pictures["L"][12:].sum()  # its foot is below
    assert pictures["E"][:, :12].sum() > pictures["E"][:, 12:].sum()  # its stem is on the left


def test_raw_pixels_leave_room_above_and_below(halves):
    for half in halves:
        pixels = half.images.flatten(1)
        distances = torch.cdist(pixels, pixels).fill_diagonal_(torch.inf)
        recall = (half.labels[distances.argmin(1)] == half.labels).float().mean().item()
        assert 0.45 < recall < 0.52


def test_items_are_pictures_with_their_class_and_names_are_for_people(halves):
    train = halves[0]
    x, y = train[35]
    assert torch.equal(x, train.images[35])
    assert y == 2
    assert type(y) is int
    assert train.names[2] == f"U+{ord(train.classes[2]):04X} {train.classes[2]}"
    xs, ys = next(iter(DataLoader(train, batch_size=32)))
    assert xs.shape == (32, 1, 24, 24)
    assert ys.tolist() == [0] * 16 + [1] * 16


def test_the_split_is_fixed_for_good(halves):
    # Published results stand on these characters: a change here is a new data set.
    capitals = [c for c in halves[0].classes if "A" <= c <= "Z"]
    assert "".join(capitals) == "ABCDFGHIJKLOPQSY"
    assert halves[0].classes == sorted(halves[0].classes)


# --- cache ----------------------------------------------------------------------------------------


def cache_file(root, size=24):
    return root / f"glyphs-v{module._RENDER_VERSION}-matplotlib{mpl.__version__}-{size}px.npz"


DRAW, CHARACTERS = module._draw_glyphs, functools.cache(module._characters)


@functools.cache
def small_drawings():
    return DRAW(np.array(CHARACTERS()), 8)


@pytest.fixture
def drawn_once(monkeypatch):
    """Whoever draws in 8 pixels gets the same drawings, made once: drawing takes a second."""
    monkeypatch.setattr(module, "_characters", CHARACTERS)
    monkeypatch.setattr(module, "_draw_glyphs", lambda points, size: small_drawings())


def forbid_drawing(monkeypatch):
    def refuse(*_):
        raise AssertionError("drawn although cached")

    monkeypatch.setattr(module, "_draw_glyphs", refuse)


def test_a_second_use_reads_the_cache_and_gives_the_same(halves, root, monkeypatch):
    forbid_drawing(monkeypatch)
    again = Glyphs("train", root)
    assert torch.equal(again.images, halves[0].images)
    assert again.classes == halves[0].classes


@pytest.mark.usefixtures("drawn_once")
@pytest.mark.parametrize(
    "damage", ["empty", "text", "cut", "flipped", "foreign", "pickled", "no arrays"]
)
def test_a_damaged_cache_is_drawn_again(root, tmp_path, damage):
    expected = Glyphs("train", root, image_size=8)
    sound = cache_file(root, 8).read_bytes()
    path = cache_file(tmp_path, 8)
    if damage == "foreign":
        pixels, points = np.zeros((513, 16, 8, 8), np.uint8), np.arange(513)
        np.savez_compressed(path, key=np.array("other"), points=points, pixels=pixels)
    elif damage == "pickled":
        array = np.array([{}], dtype=object)
        np.savez(path, key=array, points=array, pixels=array)
    elif damage == "no arrays":
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("key", "points", "pixels"):
                archive.writestr(name, b"text")
    else:
        middle = len(sound) // 2
        flipped = sound[:middle] + bytes(b ^ 255 for b in sound[middle : middle + 50])
        path.write_bytes(
            {
                "empty": b"",
                "text": b"not a zip",
                "cut": sound[:middle],
                "flipped": flipped + sound[middle + 50 :],
            }[damage]
        )
    assert torch.equal(Glyphs("train", tmp_path, image_size=8).images, expected.images)
    assert path.stat().st_size == pytest.approx(len(sound), rel=0.01)  # and mended
    assert [p.name for p in tmp_path.iterdir()] == [path.name]  # nothing else left behind


def test_a_pipe_in_the_caches_place_is_neither_read_nor_replaced(root, tmp_path, monkeypatch):
    path = cache_file(tmp_path, 8)
    os.mkfifo(path)
    blank = np.zeros((513, 16, 8, 8), np.uint8)
    monkeypatch.setattr(module, "_draw_glyphs", lambda points, size: blank)
    with pytest.raises(DataError, match="`root` must be a folder that can be written"):
        Glyphs("train", tmp_path, image_size=8)
    assert path.is_fifo()


@pytest.mark.usefixtures("drawn_once")
def test_another_render_version_or_size_does_not_read_the_old_file(root, tmp_path, monkeypatch):
    Glyphs("train", tmp_path, image_size=8)
    monkeypatch.setattr(module, "_RENDER_VERSION", 0)
    assert Glyphs("test", tmp_path, image_size=8).images.shape == (4112, 1, 8, 8)
    assert len(list(tmp_path.glob("*.npz"))) == 2


def test_concurrent_first_uses_agree(root, tmp_path):
    found, errors = [], []

    def use():
        try:
            found.append(Glyphs("train", tmp_path, image_size=8).images)
        except BaseException as err:
            errors.append(err)

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(found) == 2
    expected = Glyphs("train", root, image_size=8).images
    assert all(torch.equal(images, expected) for images in found)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.usefixtures("drawn_once")
def test_an_unwritable_root_is_an_error_but_an_unwritable_default_is_not(
    tmp_path, monkeypatch, caplog
):
    blocked = tmp_path / "file"
    blocked.write_text("a file, not a folder")
    with pytest.raises(DataError, match=r"`root` must be a folder that can be written; got .*file"):
        Glyphs("train", blocked, image_size=8)
    monkeypatch.setenv("BSPML_CACHE", str(blocked))
    assert len(Glyphs("train", image_size=8)) == 4096
    assert "drawn at each start" in caplog.text


# --- messages -------------------------------------------------------------------------------------


def test_wrong_arguments_are_named(root):
    with pytest.raises(InputError, match="`split` must be one of train, test; got 'valid'"):
        Glyphs("valid", root)
    with pytest.raises(InputError, match="`image_size` must be a whole number of at least 8"):
        Glyphs("train", root, image_size=4)
    with pytest.raises(InputError, match="`image_size` must be at most 128; got 1024"):
        Glyphs("train", root, image_size=1024)


def test_a_matplotlib_without_its_fonts_is_named_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(mpl, "get_data_path", lambda: str(tmp_path))
    with pytest.raises(DataError, match=r"has no .*DejaVuSans\.ttf.*pip install"):
        Glyphs("train", tmp_path)
    assert not list(tmp_path.iterdir())


def test_fonts_with_other_characters_are_refused_with_the_count(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CATEGORIES", ("Nd",))
    with pytest.raises(DataError, match="give 10 characters where 513 are expected"):
        Glyphs("train", tmp_path)
