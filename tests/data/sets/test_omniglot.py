"""Omniglot: the official folders however they were unpacked, or a table."""

import numpy as np
import pytest

from bspml.data.sets.omniglot import read_omniglot
from bspml.errors import DataError
from helpers.published_trees import image_at, write_lines

DRAWINGS = {
    "images_background": ["Greek/character01/0001_01.png", "Greek/character02/0002_01.png"],
    "images_evaluation": ["Ge_ez/character01/0003_01.png", "Ge_ez/character01/0003_02.png"],
}


@pytest.fixture
def tree(tmp_path):
    def make(pattern="{0}"):
        for folder, names in DRAWINGS.items():
            for name in names:
                image_at(tmp_path / pattern.format(folder) / name, mode="1", shade=255)
        return tmp_path

    return make


@pytest.mark.parametrize(
    "pattern",
    ["{0}", "{0}/{0}", "python/{0}", "omniglot-py/{0}", "omniglot/{0}", "omniglot/python/{0}"],
)
def test_alphabets_split_and_characters_are_classes(tree, pattern):
    data = read_omniglot(tree(pattern))
    assert data.train.classes.tolist() == ["Greek/character01", "Greek/character02"]
    assert data.test.labels.tolist() == ["Ge_ez/character01"] * 2
    assert data.train.content == "character"
    image = data.train.images(8, 1)[0]
    assert image.shape == (1, 8, 8)
    assert image.max() == 1


def test_hidden_files_do_not_count(tree):
    root = tree()
    (root / "images_background/Greek/character01/._0001_01.png").touch()
    assert len(read_omniglot(root).train) == 2


def test_the_table_says_the_same(tree):
    root = tree()
    rows = [
        f"{folder}/{name},{i},{name.rpartition('/')[0]},{split}"
        for (folder, names), split in zip(DRAWINGS.items(), ("train", "test"), strict=True)
        for i, name in enumerate(names)
    ]
    folders = read_omniglot(root)
    write_lines(root / "labels.csv", ["path,class,class_name,split", *rows])
    table = read_omniglot(root)
    assert len(folders.splits) == 2
    for one, two in zip(folders.splits, table.splits, strict=True):
        assert one.paths == two.paths
        np.testing.assert_array_equal(one.labels, two.labels)
        assert one.content == two.content


def test_a_stray_drawing_and_empty_folders_are_refused(tree):
    root = tree()
    image_at(root / "images_evaluation/0009_01.png")
    with pytest.raises(DataError, match=r"holds 0009_01\.png; expected ALPHABET/CHARACTER"):
        read_omniglot(root)
    for path in (root / "images_evaluation").rglob("*.png"):
        path.unlink()
    with pytest.raises(DataError, match="images_evaluation: holds no image"):
        read_omniglot(root)


def test_missing_folders_are_named(tmp_path):
    (tmp_path / "images_background").mkdir()
    with pytest.raises(DataError, match=r"images_evaluation is missing there.*brendenlake"):
        read_omniglot(tmp_path)
