"""A folder per class: in halves, in train and test, or with a gallery."""

import pytest

from bspml.data.sets.class_folders import read_class_folders
from bspml.errors import DataError
from helpers.published_trees import image_at


@pytest.fixture
def tree(tmp_path):
    def make(*paths):
        for path in paths:
            image_at(tmp_path / path)
        return tmp_path

    return make


def test_one_folder_of_classes_is_halved_by_name(tree):
    root = tree("c/1.jpg", "a/1.JPG", "b/1.png", "a/deep/2.png", "._d/1.jpg")
    data = read_class_folders(root)
    assert data.train.labels.tolist() == ["a", "a"]
    assert data.test.labels.tolist() == ["b", "c"]
    assert data.train.images(8)[0].shape == (3, 8, 8)


def test_class_folders_that_are_links_are_classes_and_a_loop_ends(tree, tmp_path_factory):
    root = tree("real/1.jpg", "a/1.jpg", "b/1.jpg")
    outside = tmp_path_factory.mktemp("outside")
    image_at(outside / "wren/1.jpg")
    (root / "inner").symlink_to("real")
    (root / "wren").symlink_to(outside / "wren")
    for link, target in (("a/up", ".."), ("a/b", "../b"), ("b/a", "../a"), ("b/all", root.parent)):
        (root / link).symlink_to(target)
    data = read_class_folders(root)
    classes = [*data.train.classes, *data.test.classes]
    assert classes == ["a", "b", "inner", "real", "wren"]
    assert data.train.paths == ("a/1.jpg", "a/b/1.jpg", "b/1.jpg", "b/a/1.jpg")[: len(data.train)]
    assert data.test.images(8)[0].shape == (3, 8, 8)
    (root / "heron").symlink_to(outside / "gone")
    with pytest.raises(DataError, match=r"1 link leads nowhere, such as heron"):
        read_class_folders(root)


def test_folders_called_train_and_test_are_the_splits(tree):
    data = read_class_folders(tree("train/a/1.jpg", "test/b/1.jpg", "other/c/1.jpg"), "tile")
    assert (data.train.paths, data.test.paths) == (("train/a/1.jpg",), ("test/b/1.jpg",))
    assert data.test.content == "tile"
    assert data.notes == ("Left out of this data set: other.",)


def test_splits_are_told_in_any_case_and_validation_is_left_out(tree):
    root = tree("Train/a/1.jpg", "TEST/b/1.jpg", "Val/c/1.jpg", ".git/d/1.jpg")
    data = read_class_folders(root)
    assert (data.train.paths, data.test.paths) == (("Train/a/1.jpg",), ("TEST/b/1.jpg",))
    assert data.train.images(8)[0].shape == (3, 8, 8)
    assert data.notes == ("Left out of this data set: Val.",)
    tree("train/a/1.jpg")
    if len(list(root.glob("[tT]rain"))) > 1:  # else the file system has one for both
        with pytest.raises(DataError, match="has Train and train, the same split twice"):
            read_class_folders(root)


def test_folders_named_almost_like_splits_are_no_classes(tree):
    with pytest.raises(DataError, match=r"testing, training, which are splits by their names"):
        read_class_folders(tree("training/a/1.jpg", "testing/b/1.jpg"))
    assert read_class_folders(tree("wren/a/1.jpg")).test.classes.tolist() == ["training", "wren"]


def test_query_and_gallery_are_the_test(tree):
    data = read_class_folders(tree("train/a/1.jpg", "query/b/1.jpg", "gallery/b/2.jpg"))
    assert data.gallery.paths == ("gallery/b/2.jpg",)


def test_classes_that_train_and_test_are_noted(tree):
    assert "share 1 of 1" in read_class_folders(tree("train/a/1.jpg", "test/a/2.jpg")).notes[0]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["a/1.jpg"], r"holds one class, a;.* Add a folder per class\.$"),
        (
            ["a/b/1.jpg", "a/c/2.jpg"],
            r"one class, a;.* If b, c are the classes, name .*/a\.$",
        ),
        (["a/1.jpg", "loose.jpg"], r"1 image lies in no class folder, the first is loose\.jpg"),
        (["train/a/1.jpg"], "has train; expected train and test"),
        (["train/a/1.jpg", "query/b/1.jpg"], "has train, query; expected"),
        ([], "holds no image"),
    ],
)
def test_other_folders_are_refused(tree, paths, message):
    with pytest.raises(DataError, match=message):
        read_class_folders(tree(*paths))


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(DataError, match="no: no such folder of images"):
        read_class_folders(tmp_path / "no")
