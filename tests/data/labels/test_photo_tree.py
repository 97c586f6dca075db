"""Photos in folders of their corrected labels, and what must not happen to anything else."""

import csv
import errno
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import ImageFolder as TorchFolder

from bspml.data.labels import photo_tree
from bspml.data.labels.decisions import CorrectedLabels
from bspml.data.labels.photo_tree import check_photos, copy_photos
from bspml.data.sets.class_folders import read_class_folders
from bspml.errors import DataError, InputError, RunError


def lay(root, names):
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number).save(root / name, "PNG")


def corrected(labels, names, dropped=()):
    decisions = np.full(len(labels), "", dtype="<U6")
    weights = np.ones(len(labels))
    decisions[list(dropped)], weights[list(dropped)] = "wrong", 0
    return CorrectedLabels(np.array(labels), weights, decisions, tuple(names))


def tree(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


@pytest.fixture
def photos(tmp_path):
    root = tmp_path / "photos"
    lay(root, ["a/1.png", "a/deep/2.png", "a/3.png", "b/1.png", "b/4.png", "b/5.png"])
    return root


NAMES = ["a/1.png", "a/deep/2.png", "a/3.png", "b/1.png", "b/4.png", "b/5.png"]
GIVEN = np.array(list("aaabbb"))


def test_photos_lie_under_their_corrected_labels_and_the_dropped_nowhere(photos, tmp_path):
    before = tree(photos)
    decided = corrected(["b", "b", "a", "b", "a", "b"], NAMES, dropped=[5])
    done = copy_photos(decided, GIVEN, photos, tmp_path / "new")
    found = tree(tmp_path / "new")
    listed = list(csv.DictReader((tmp_path / "new/copied.csv").open(newline="")))
    del found["copied.csv"]
    # Two photos 1.png come to b; the one that was there keeps its name.
    assert found == {
        "b/1-2.png": before["a/1.png"],
        "b/deep/2.png": before["a/deep/2.png"],
        "a/3.png": before["a/3.png"],
        "b/1.png": before["b/1.png"],
        "a/4.png": before["b/4.png"],
    }
    assert {row["path"]: before[row["name"]] for row in listed} == found
    assert (done.count, done.classes, done.dropped) == (5, 2, 1)
    assert done.notes == (
        "1 photo got another name, as its place was taken: 'a/1.png' is 'b/1-2.png'",
    )
    assert tree(photos) == before


def test_no_photo_comes_to_stand_where_another_one_stood(tmp_path):
    """Decisions name photos by their places: they would be taken for ones on other photos."""
    names = ["a/1.png", "a/2.png", "b/1.png", "b/2.png", "train/b/3.png", "train/a/3.png"]
    lay(tmp_path / "photos", names)
    before = tree(tmp_path / "photos")
    # a/1 is dropped and b/1 takes its class; a/2 and b/2 change places, and so do the last two.
    decided = corrected(["a", "b", "a", "a", "a", "b"], names, dropped=[0])
    given = np.array(list("aabbba"))
    done = copy_photos(decided, given, tmp_path / "photos", tmp_path / "new")
    found = tree(tmp_path / "new")
    del found["copied.csv"]
    assert found == {
        "a/1-2.png": before["b/1.png"],
        "b/2-2.png": before["a/2.png"],
        "a/2-2.png": before["b/2.png"],
        "a/3-2.png": before["train/b/3.png"],
        "b/3-2.png": before["train/a/3.png"],
    }
    assert "5 photos got other names" in done.notes[0]


def test_the_folder_is_one_that_training_and_torchvision_read(photos, tmp_path):
    decided = corrected(["b", "c", "a", "b", "a", "b"], NAMES, dropped=[5])
    copy_photos(decided, GIVEN, photos, tmp_path / "new")
    data = read_class_folders(tmp_path / "new")
    labels = np.concatenate([data.train.labels, data.test.labels])
    assert sorted(labels.tolist()) == ["a", "a", "b", "b", "c"]
    assert TorchFolder(tmp_path / "new").classes == ["a", "b", "c"]
    assert len(TorchFolder(tmp_path / "new")) == 5


def test_labels_that_cannot_be_folders_get_names_that_can(tmp_path):
    labels = [
        *("x/y", "x_y", "..", ".hidden", "test", "con", "what?", "end. ", "é" * 200),
        *("copied.csv", "\ud800", "a\nb", "Train", "GALLERY"),
    ]
    names = [f"{i}.png" for i in range(len(labels))]
    lay(tmp_path / "photos", names)
    done = copy_photos(corrected(labels, names), np.array(labels), tmp_path / "photos",
                       tmp_path / "new")  # fmt: skip
    folders = sorted(path.name for path in (tmp_path / "new").iterdir() if path.is_dir())
    assert len(folders) == len(labels)
    assert {
        "x_y",
        "x_y-2",
        "_test",
        "_con",
        "what_",
        "end",
        "a_b",
        "_copied.csv",
        "_Train",
        "_GALLERY",
    } <= set(folders)
    assert not any(name.startswith(".") or name != name.strip() for name in folders)
    assert len(os.listdir(tmp_path)) == 2  # nothing outside  # noqa: PTH208
    assert done.notes[0].startswith("13 labels cannot be names of folders: ")
    assert "'x/y' is 'x_y-2'" in "".join(done.notes) or "..." in done.notes[0]
    assert len(TorchFolder(tmp_path / "new").classes) == len(labels)


def test_whole_numbers_are_names_of_folders(photos, tmp_path):
    decided = corrected([1, 1, 1, 2, 2, 1], NAMES)
    copy_photos(decided, np.array([1, 1, 1, 2, 2, 2]), photos, tmp_path / "new")
    # No folder of theirs is called like a class, so what is above the photo says nothing.
    assert "1/2.png" in tree(tmp_path / "new")
    assert "1/5.png" in tree(tmp_path / "new")


def test_a_full_disk_leaves_nothing(photos, tmp_path, monkeypatch):
    before = tree(photos)
    real, calls = photo_tree.shutil.copyfileobj, []

    def copy(*arguments):
        calls.append(arguments)
        if len(calls) == 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*arguments)

    monkeypatch.setattr(photo_tree.shutil, "copyfileobj", copy)
    with pytest.raises(RunError, match=r"b/1\.png: cannot be copied \(No space left"):
        copy_photos(corrected(GIVEN, NAMES), GIVEN, photos, tmp_path / "new")
    assert len(calls) == 4
    assert list(tmp_path.iterdir()) == [photos]
    assert tree(photos) == before


def test_links_among_the_photos_are_copied_and_nothing_is_written_through_them(photos, tmp_path):
    (photos / "a/1.png").unlink()
    (photos / "a/1.png").symlink_to(photos / "b/5.png")
    copy_photos(corrected(GIVEN, NAMES), GIVEN, photos, tmp_path / "new")
    copy = tmp_path / "new/a/1.png"
    assert not copy.is_symlink()
    copy.write_text("changed")
    assert (photos / "b/5.png").read_bytes() != b"changed"


def test_a_link_out_of_the_photos_is_not_copied(photos, tmp_path):
    (tmp_path / "secret.png").write_bytes(b"secret")
    (photos / "a/1.png").unlink()
    (photos / "a/1.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(DataError, match=r"1 sample is no file in it, .*; links out of it are not"):
        copy_photos(corrected(GIVEN, NAMES), GIVEN, photos, tmp_path / "new")


def test_mistakes_are_found_before_anything_is_copied(photos, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").write_text("mine")
    os.mkfifo(photos / "a/pipe.png")
    monkeypatch.chdir(tmp_path)
    cases = [
        (NAMES, "full", RunError, "holds something already"),
        (NAMES, "photos/new", InputError, "lies in .*photos, the folder of the photos"),
        (None, "new", InputError, "these data have none"),
        ([*NAMES, "none.png"], "new", DataError, "1 sample is no file in it, .* 'none.png'"),
        (["../x"], "new", DataError, "1 sample is no file in it"),
        (["a/pipe.png"], "new", DataError, "1 sample is no file in it"),
    ]
    for names, folder, error, message in cases:
        with pytest.raises(error, match=message):
            check_photos(Path("photos"), names, Path(folder))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "photos"]
