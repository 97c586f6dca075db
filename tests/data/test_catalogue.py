"""Data sets by name: complete, or a subset that says so."""

import numpy as np
import pytest

from bspml.data.catalogue import CATALOGUE, load_retrieval, read_entry
from bspml.data.completeness import missing_paths
from bspml.data.sets.cifar import CIFAR10_CLASSES
from bspml.errors import DataError, InputError
from helpers.published_trees import image_at, write_lines


def test_glyphs_need_nothing():
    data = load_retrieval("glyphs", image_size=16)
    assert (len(data.train.classes), len(data.test.classes)) == (256, 257)
    assert data.train.images(16, 1)[3].shape == (1, 16, 16)
    assert data.notes == ()


def test_cifar_comes_from_its_files(tmp_path):
    batch = np.zeros((10_000, 3073), dtype=np.uint8)
    batch[:, 0] = np.arange(10_000) % 10
    batch[:, 1:] = batch[:, :1] * 20
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (tmp_path / f"{name}.bin").write_bytes(batch.tobytes())
    data = load_retrieval("cifar10", tmp_path)
    assert len(data.train) == 50_000
    assert data.test.labels[3] == CIFAR10_CLASSES[3]
    image = data.test.images(32)[3]
    assert image.shape == (3, 32, 32)
    assert (image == 60 / 255).all()
    assert data.notes[0].startswith("Train and test share 10 of 10 classes")


def test_a_copy_with_fewer_images_is_refused_and_a_subset_is_noted(cub_tree):
    base = cub_tree()
    with pytest.raises(
        DataError, match=r"train split lists 4 images instead of 5,864.*data.incomplete=true"
    ):
        load_retrieval("cub", base)
    (base / "images/001.Red_eyed_Bird/Red_Eyed_Bird_9000_0.jpg").unlink()
    data = load_retrieval("CUB", base, subset=True)
    assert (len(data.train), len(data.test)) == (3, 4)
    assert data.train.boxes.shape == (3, 4)
    assert "A subset: 1 listed images are not there." in data.notes


def test_missing_images_of_a_complete_list_are_counted(tmp_path):
    image_at(tmp_path / "a.jpg")
    write_lines(tmp_path / "labels.csv", ["path,label,split", "a.jpg,a,train", "b.jpg,b,test"])
    with pytest.raises(
        DataError, match=r"1 of 1 images of the test split are missing.*b\.jpg.*chec"
    ):
        load_retrieval("table", tmp_path)


def test_a_subset_of_training_classes_can_be_halved(cub_tree):
    base = cub_tree(classes=(1, 2, 3))
    with pytest.raises(DataError, match=r"leaves no image in test.*classes='half'"):
        load_retrieval("cub", base, subset=True)
    data = load_retrieval("cub", base, subset=True, classes="half")
    assert data.train.classes.tolist() == ["001.Red_eyed_Bird"]
    assert (len(data.train), len(data.test)) == (2, 4)
    assert data.test.boxes.shape == (4, 4)
    assert any(note.startswith("Not the official split") for note in data.notes)
    with pytest.raises(InputError, match=r"not the official split.*data\.incomplete=true"):
        load_retrieval("cub", base, classes="half")


def test_names_and_options_are_checked(tmp_path):
    with pytest.raises(InputError, match=r"must be one of cub, .*did you mean `omniglot`\?"):
        load_retrieval("omniglott", tmp_path)
    with pytest.raises(InputError, match="cub has no option `layout`; it has none"):
        load_retrieval("cub", tmp_path, layout="csv")
    with pytest.raises(InputError, match="cars has no option `form`; it has layout"):
        load_retrieval("cars", tmp_path, form="csv")
    with pytest.raises(InputError, match="`root` must name the folder of CUB-200-2011"):
        load_retrieval("cub")
    for root in (3, 1.5, b"cub", ["cub"], True):
        with pytest.raises(InputError, match="`root` must be the path of CUB-200-2011, as text"):
            read_entry(CATALOGUE["cub"], "cub", root, {})


def test_links_are_followed_and_those_that_lead_nowhere_are_missing(tmp_path):
    image_at(tmp_path / "elsewhere/deep/a.jpg")
    image_at(tmp_path / "set/b.jpg")
    (tmp_path / "set/x").mkdir()
    (tmp_path / "set/x/y").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set/x/up").symlink_to(tmp_path / "set")  # a circle
    rows = ["path,label,split", "x/y/deep/a.jpg,a,train", "b.jpg,b,test"]
    write_lines(tmp_path / "set/labels.csv", rows)
    data = load_retrieval("table", tmp_path / "set")
    assert [missing_paths(split) for split in data.splits] == [[], []]
    (tmp_path / "elsewhere/deep/a.jpg").unlink()
    (tmp_path / "elsewhere/deep/a.jpg").symlink_to(tmp_path / "nowhere.jpg")
    assert missing_paths(data.train) == ["x/y/deep/a.jpg"]
    (tmp_path / "elsewhere/deep/a.jpg").unlink()
    (tmp_path / "elsewhere/deep/a.jpg").mkdir()
    assert missing_paths(data.train) == ["x/y/deep/a.jpg"]


def test_every_set_says_where_it_comes_from():
    for name, entry in CATALOGUE.items():
        assert entry.source.endswith((".", "`.")), name
    counted = [entry.counts for entry in CATALOGUE.values() if entry.counts is not None]
    assert len(counted) >= 8
    assert all("train" in counts for counts in counted)


@pytest.mark.parametrize("name", ["folder", "table", "features", "cub"])
def test_a_relative_path_that_is_not_there_is_said_to_start_here(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:
        load_retrieval(name, "data/photos")
    assert str(caught.value) == (
        f"data/photos: there is no such path in {tmp_path}, where this one, which is relative, "
        "starts. Run this where it holds, or write the whole path."
    )
    with pytest.raises(DataError, match=r"photos: (?!there is no such path)"):
        load_retrieval(name, tmp_path / "photos")
