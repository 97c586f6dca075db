"""CARS-98N: a folder per class that trains, and the test classes of Cars196 beside it."""

import pytest

from bspml.data.catalogue import load_retrieval
from bspml.data.checking import check_dataset
from bspml.data.sets.cars98n import COUNTS, read_web_cars
from bspml.errors import DataError
from helpers.published_trees import CAR_NAMES, image_at, save_annotations, save_car_names


@pytest.fixture
def tree(tmp_path):
    """Web photographs of two classes, and Cars196 with an image of class 1 and two of 99."""

    def make(folder="CARS_98N", cars="cars196", classes=(CAR_NAMES[0], CAR_NAMES[1])):
        for name in classes:
            image_at(tmp_path / folder / name / "a1.jpg")
            image_at(tmp_path / folder / name / "a2.JPG")
        rows = [("00001.jpg", (1, 2, 9, 8), 1), ("00002.jpg", (1, 2, 9, 8), 99)]
        base = tmp_path / cars
        save_annotations(base / "devkit/cars_train_annos.mat", rows)
        save_annotations(base / "devkit/cars_test_annos_withlabels.mat", rows[1:])
        save_car_names(base / "devkit/cars_meta.mat")
        image_at(base / "cars_train/00002.jpg")
        image_at(base / "cars_test/00002.jpg")
        return tmp_path

    return make


@pytest.mark.parametrize("cars", ["cars196", "CARS", ""])
@pytest.mark.parametrize("folder", ["CARS_98N", "CARS-98N", "cars98n/train"])
def test_folders_train_and_the_test_is_that_of_cars196(tree, folder, cars):
    root = tree(folder, cars)
    data = load_retrieval("cars98n", root, subset=True)
    assert len(data.train) == 4
    assert data.train.classes.tolist() == sorted(CAR_NAMES[:2])
    assert data.test.classes.tolist() == [CAR_NAMES[98]]
    assert len(data.test) == 2
    assert data.train.images(8)[0].shape == data.test.images(8)[0].shape == (3, 8, 8)


def test_the_number_of_web_photographs_is_not_held_to_but_that_of_classes_is(tree):
    root = tree()
    assert COUNTS["train"] == (None, 98)
    expected = "CARS-98N: the train split lists 2 classes instead of 98; the test split lists 2 im"
    with pytest.raises(DataError, match=expected):
        load_retrieval("CARS-98N", root)
    report = check_dataset("cars98n", str(root))
    assert report.splits == {"train": (4, 2), "test": (2, 1)}


def test_what_is_missing_is_named_with_where_it_was_looked_for(tree, tmp_path):
    with pytest.raises(DataError, match=r"has no folder CARS_98N.*holds nothing.*Fetch the pict"):
        read_web_cars(tmp_path)
    (tmp_path / "CARS_98N").mkdir()
    with pytest.raises(DataError, match=r"CARS_98N: holds no image; expected CLASS/IMAGE.jpg"):
        read_web_cars(tmp_path)
    image_at(tmp_path / "CARS_98N/a.jpg")
    with pytest.raises(DataError, match=r"CARS_98N: a.jpg lies in no class folder"):
        read_web_cars(tmp_path)
    (tmp_path / "CARS_98N/a.jpg").unlink()
    image_at(tmp_path / "CARS_98N/x/a.jpg")
    with pytest.raises(DataError, match="holds no annotations of Cars196"):
        load_retrieval("cars98n", tmp_path, subset=True)


def test_a_class_of_the_test_may_not_train(tree):
    root = tree(classes=(CAR_NAMES[0], CAR_NAMES[98].replace("/", "-")))
    with pytest.raises(DataError, match=r"holds 1 class of the test, such as Ram C-V Cargo"):
        load_retrieval("cars98n", root, subset=True)
