"""Stanford Online Products: a header, .JPG, and numbers that run on from one list to the other."""

from dataclasses import replace

import numpy as np
import pytest

from bspml.data.completeness import count_faults, missing_paths
from bspml.data.sets.sop import COUNTS, read_sop
from bspml.errors import DataError
from helpers.published_trees import image_at, write_lines

HEAD = "image_id class_id super_class_id path"
TRAIN = ["1 1 1 bicycle_final/11_0.JPG", "2 1 1 bicycle_final/11_1.JPG"]
TEST = ["3 2 12 toaster_final/22_0.JPG", "4 2 12 toaster_final/22_1.JPG"]


@pytest.fixture
def tree(tmp_path):
    def make(train=(HEAD, *TRAIN), test=(HEAD, *TEST), folder="Stanford_Online_Products"):
        write_lines(tmp_path / folder / "Ebay_train.txt", train)
        write_lines(tmp_path / folder / "Ebay_test.txt", test, end="\r\n")
        return tmp_path

    return make


def test_the_lists_are_the_split(tree):
    data = read_sop(tree())
    assert data.train.paths == ("bicycle_final/11_0.JPG", "bicycle_final/11_1.JPG")
    assert set(data.train.labels) == {"bicycle/00001"}
    assert set(data.test.labels) == {"toaster/00002"}
    assert data.ks == (1,)


def test_a_list_without_its_header_and_without_its_folder_is_read_too(tree):
    data = read_sop(tree(train=TRAIN, folder=""))
    assert len(data.train) == 2


def test_capital_suffixes_are_found_as_they_are(tree):
    root = tree()
    base = root / "Stanford_Online_Products"
    image_at(base / "bicycle_final/11_0.jpg").rename(base / "bicycle_final/11_0.JPG")
    data = read_sop(root)
    assert missing_paths(data.train) == ["bicycle_final/11_1.JPG"]
    assert data.train.images(8)[0].shape == (3, 8, 8)


def test_published_numbers_are_held_to(tree):
    train = [f"{i + 1} {i % 11_318 + 1} 1 sofa_final/{i}.JPG" for i in range(59_551)]
    test = [f"{59_552 + i} {11_319 + i % 11_316} 1 sofa_final/t{i}.JPG" for i in range(60_502)]
    data = read_sop(tree((HEAD, *train), (HEAD, *test)))
    assert count_faults(data, COUNTS) == []
    assert data.ks == (1, 8, 10, 16, 32, 64, 100, 128, 1000)
    less = replace(data, test=data.test.take(np.arange(60_501)))
    faults = count_faults(less, COUNTS)
    assert faults == ["the test split lists 60,501 images instead of 60,502"]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"test": (HEAD, *TRAIN)}, r"Ebay_test\.txt: 2 image numbers are in Ebay_train\.txt too"),
        ({"test": ["5 1 1 bicycle_final/9.JPG"]}, r"1 classes are in Ebay_train\.txt too"),
        ({"test": ["5 9 1 bicycle_final/11_0.JPG"]}, r"1 paths are in Ebay_train\.txt too"),
        ({"train": [*TRAIN, TRAIN[0]]}, r"1 image numbers come up more than once"),
        ({"train": ["1 1 1 a/b.JPG", "2 1 1 a/b.JPG"]}, r"1 image more than once, such as a/b"),
        ({"train": (HEAD, "1 1 1 ../a.JPG")}, r"Ebay_train\.txt, line 2: .*not a path inside"),
        ({"train": (HEAD, "1 1 1")}, r"Ebay_train\.txt, line 2: expected image_id class_id"),
        ({"train": (HEAD, "1 one 1 a/b.JPG")}, r"line 2: class_id must be a whole number"),
    ],
)
def test_damaged_lists_are_refused(tree, lists, message):
    with pytest.raises(DataError, match=message):
        read_sop(tree(**lists))


def test_a_missing_list_says_where_to_get_it(tree):
    root = tree()
    (root / "Stanford_Online_Products/Ebay_test.txt").unlink()
    with pytest.raises(DataError, match=r"Ebay_test\.txt is missing there\. .*lifted_struct"):
        read_sop(root)
