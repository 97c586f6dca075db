"""Cars196 in its three layouts: nested arrays, bytes that overflow, a slash, numbers from 1."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.io

from bspml.data.completeness import count_faults, missing_paths
from bspml.data.sets.cars196 import COUNTS, read_cars196
from bspml.errors import DataError, InputError
from helpers.published_trees import (
    CAR_NAMES,
    image_at,
    save_annotations,
    save_car_names,
    write_lines,
)

# file, box (left, top, right, bottom; from 1, inclusive), class.  200 - 250 overflows a byte.
TRAIN = [("00001.jpg", (2, 3, 300, 260), 1), ("00002.jpg", (200, 10, 250, 20), 99)]
TEST = [("00001.jpg", (1, 1, 12, 10), 1), ("00002.jpg", (1, 1, 661, 9), 196)]


@pytest.fixture
def devkit(tmp_path):
    save_annotations(tmp_path / "devkit/cars_train_annos.mat", TRAIN)
    save_annotations(tmp_path / "devkit/cars_test_annos_withlabels.mat", TEST)
    save_car_names(tmp_path / "devkit/cars_meta.mat")
    return tmp_path


def test_both_halves_of_classification_train_and_test(devkit):
    data = read_cars196(devkit)
    assert data.train.paths == ("cars_train/00001.jpg", "cars_test/00001.jpg")  # one number, twice
    assert data.test.paths == ("cars_train/00002.jpg", "cars_test/00002.jpg")
    # Class 1 is not the first by name; a name may hold a slash.
    assert set(data.train.labels) == {CAR_NAMES[0]} != {min(CAR_NAMES)}
    assert data.test.labels[0] == "Ram C/V Cargo Van Minivan 2012"


def test_boxes_count_from_zero_and_do_not_overflow(devkit):
    data = read_cars196(devkit)
    np.testing.assert_array_equal(data.train.boxes, [[1, 2, 300, 260], [0, 0, 12, 10]])
    left, _, right, _ = data.test.boxes[0]
    assert right - left == 51


def test_a_box_that_leaves_its_image_is_cut(devkit):
    for name in ("cars_train/00002.jpg", "cars_test/00002.jpg"):
        image_at(devkit / name, size=(520, 30) if "test" in name else (260, 30))
    data = read_cars196(devkit)
    images = data.test.images(16, crop_boxes=True)
    assert images[0].shape == images[1].shape == (3, 16, 16)


def test_a_devkit_without_names_calls_classes_by_number(devkit):
    (devkit / "devkit/cars_meta.mat").unlink()
    data = read_cars196(devkit)
    assert set(data.test.labels) == {"099", "196"}
    assert "called by their numbers" in data.notes[0]


def test_copies_that_nest_their_folders_are_read(devkit):
    image_at(devkit / "cars_train/cars_train/00001.jpg")
    assert read_cars196(devkit).train.paths[0] == "cars_train/cars_train/00001.jpg"


def test_test_annotations_without_classes_say_what_to_get(devkit):
    (devkit / "devkit/cars_test_annos_withlabels.mat").rename(devkit / "devkit/cars_test_annos.mat")
    with pytest.raises(DataError, match=r"cars_test_annos\.mat holds no classes.*Add cars_test_an"):
        read_cars196(devkit)


def test_the_single_file_layout(tmp_path):
    rows = [("car_ims/000001.jpg", (5, 6, 7, 8), 98), ("car_ims/000002.jpg", (5, 6, 7, 8), 99)]
    save_annotations(tmp_path / "a.mat", rows, name_field="relative_im_path", test=[0, 1])
    annotations = scipy.io.loadmat(tmp_path / "a.mat")["annotations"]
    save_car_names(tmp_path / "cars_annos.mat", annotations=annotations)
    data = read_cars196(tmp_path)
    assert data.train.paths == ("car_ims/000001.jpg",)
    assert data.test.labels.tolist() == [CAR_NAMES[98]]


def test_the_csv_layout_has_dashes_for_slashes(tmp_path):
    write_lines(tmp_path / "names.csv", [*CAR_NAMES[:5], f'"{CAR_NAMES[5]}"', *CAR_NAMES[6:]])
    for split, rows in (("train", TRAIN), ("test", TEST)):
        lines = [f"{name},{','.join(map(str, box))},{c}" for name, box, c in rows]
        write_lines(tmp_path / f"anno_{split}.csv", lines, end="\r\n")
        for name, _, c in rows:
            folder = CAR_NAMES[c - 1].replace("/", "-")
            image_at(tmp_path / "car_data/car_data" / split / folder / name)
    data = read_cars196(tmp_path)
    assert data.test.paths[0] == "train/Ram C-V Cargo Van Minivan 2012/00002.jpg"
    assert data.test.labels[0] == "Ram C/V Cargo Van Minivan 2012"
    np.testing.assert_array_equal(data.train.boxes[0], [1, 2, 300, 260])
    assert [missing_paths(split) for split in data.splits] == [[], []]
    (tmp_path / "names.csv").unlink()
    with pytest.raises(DataError, match=r"names\.csv missing, while others"):
        read_cars196(tmp_path)


def test_published_numbers_are_held_to(tmp_path):
    classes = np.concatenate([np.arange(8_054) % 98 + 1, np.arange(8_131) % 98 + 99])
    rows = [f"{i:05d}.jpg,1,1,2,2,{c}" for i, c in enumerate(classes)]
    write_lines(tmp_path / "names.csv", CAR_NAMES)
    write_lines(tmp_path / "anno_train.csv", rows[:8_144])
    write_lines(tmp_path / "anno_test.csv", rows[8_144:])
    data = read_cars196(tmp_path)
    assert count_faults(data, COUNTS) == []
    faults = count_faults(replace(data, train=data.train.take(np.arange(8_053))), COUNTS)
    assert faults == ["the train split lists 8,053 images instead of 8,054"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("00001.jpg", (1, 1, 2, 2), 0)], "row 1: the class must be 1 to 196; got 0"),
        ([("00001.jpg", (1, 1, 2, 2), 197)], "row 1: the class must be 1 to 196; got 197"),
        (2 * [("00001.jpg", (1, 1, 2, 2), 1)], "1 image more than once, such as cars_train/00001"),
        ([("../00001.jpg", (1, 1, 2, 2), 1)], "line 1: .*not a path inside"),
    ],
)
def test_impossible_annotations_are_refused(devkit, rows, message):
    save_annotations(devkit / "devkit/cars_train_annos.mat", rows)
    with pytest.raises(DataError, match=message):
        read_cars196(devkit)


def test_damaged_and_foreign_matlab_files_are_named(devkit):
    path = devkit / "devkit/cars_train_annos.mat"
    scipy.io.savemat(path, {"annotations": np.zeros((2, 2))})
    with pytest.raises(
        DataError, match=r"cars_train_annos\.mat: its annotations have no field bbox"
    ):
        read_cars196(devkit)
    scipy.io.savemat(path, {"other": 1})
    with pytest.raises(DataError, match="holds no variable annotations"):
        read_cars196(devkit)
    for content in (b"", b"MATLAB 5.0 MAT-file" + b"\0" * 200, b"\x89HDF\r\n\x1a\n" + b"\0" * 600):
        path.write_bytes(content)
        with pytest.raises(
            DataError, match=r"cars_train_annos\.mat: (cannot be read|holds no var)"
        ):
            read_cars196(devkit)


def test_the_format_of_newer_matlab_says_what_to_do(devkit):
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\2IM"
    path = devkit / "devkit/cars_train_annos.mat"
    path.write_bytes(head + b"\x89HDF\r\n\x1a\n" + b"\0" * 600)
    with pytest.raises(DataError, match=r"format 7\.3 \(HDF5\).*save -v7"):
        read_cars196(devkit)


def test_a_path_longer_than_any_is_refused_in_a_short_sentence(tmp_path):
    write_lines(tmp_path / "names.csv", CAR_NAMES)
    write_lines(tmp_path / "anno_train.csv", ["x" * 200_000 + ",1,1,2,2,1"])
    write_lines(tmp_path / "anno_test.csv", ["1.jpg,1,1,2,2,1"])
    with pytest.raises(DataError, match=r"anno_train\.csv, line 1: 'xxx") as error:
        read_cars196(tmp_path)
    assert len(str(error.value)) < 1000


def test_a_folder_without_annotations_and_unknown_layouts_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"holds no annotations of Cars196.*no longer serves"):
        read_cars196(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        read_cars196(tmp_path / "no")
    with pytest.raises(InputError, match="`layout` must be one of auto, devkit, annos, csv"):
        read_cars196(tmp_path, layout="kaggle")
