"""Small trees in the formats of the published data sets, with images that are there or not."""

import numpy as np
import pytest
import scipy.io
from PIL import Image

from bspml.data.retrieval import RetrievalSplit


def put_image(path, shade=100, size=(12, 10), mode="RGB"):
    """A JPEG or PNG of one shade, left half darker, so that mirroring shows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((size[1], size[0]), shade, dtype=np.uint8)
    pixels[:, : size[0] // 2] //= 2
    Image.fromarray(pixels).convert(mode).save(path, quality=95)
    return path


@pytest.fixture
def image_at():
    return put_image


@pytest.fixture
def cub_tree(tmp_path):
    """`make(classes, per_class, images)`: lists as Caltech's, image ids from 1 as they come."""

    def make(classes=(1, 2, 101, 102), per_class=2, images=True, boxes=True):
        base = tmp_path / "CUB_200_2011"
        (base / "images").mkdir(parents=True)
        sizes = [per_class] * len(classes) if isinstance(per_class, int) else per_class
        names, labels, split, corners = [], [], [], []
        for c, n in zip(classes, sizes, strict=True):
            # Folder and file stem differ in case; the files are not in order of their names.
            names += [
                f"{c:03d}.Red_eyed_Bird/Red_Eyed_Bird_{9000 - i:04d}_{i}.jpg" for i in range(n)
            ]
            labels += [c] * n
        for i, name in enumerate(names, 1):
            split.append(f"{i} {i % 2}")
            corners.append(f"{i} 2.0 1.0 6.0 5.0")
            if images:
                put_image(base / "images" / name, shade=60 + i % 100)
        write(base / "images.txt", [f"{i} {name}" for i, name in enumerate(names, 1)])
        write(base / "image_class_labels.txt", [f"{i} {c}" for i, c in enumerate(labels, 1)])
        write(base / "train_test_split.txt", split)
        if boxes:
            write(base / "bounding_boxes.txt", corners)
        return base

    return make


def write(path, lines, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((end.join(lines) + end).encode())
    return path


@pytest.fixture
def write_lines():
    return write


CAR_NAMES = [f"Maker Model {i:03d}" for i in range(1, 197)]
CAR_NAMES[0], CAR_NAMES[1] = "Zeta First 2000", "Acura Second 2001"  # not in order of the names
CAR_NAMES[98] = "Ram C/V Cargo Van Minivan 2012"


@pytest.fixture
def car_names():
    return CAR_NAMES


def annotation_array(rows, name_field="fname", test=None):
    """(1, N) struct array as MATLAB's: each field a nested 1 x 1 array, boxes uint8 or uint16."""
    fields = ["bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", name_field]
    fields += [] if test is None else ["test"]
    table = np.empty((1, len(rows)), dtype=[(f, "O") for f in fields])
    for i, (name, box, c) in enumerate(rows):
        for field, value in zip(fields[:4], box, strict=True):
            kind = np.uint8 if value < 256 else np.uint16
            table[field][0, i] = np.array([[value]], dtype=kind)
        table["class"][0, i] = np.array([[c]], dtype=np.uint8)
        table[name_field][0, i] = np.array([name])
        if test is not None:
            table["test"][0, i] = np.array([[test[i]]], dtype=np.uint8)
    return table


@pytest.fixture
def save_annotations():
    def save(path, rows, **options):
        path.parent.mkdir(parents=True, exist_ok=True)
        scipy.io.savemat(path, {"annotations": annotation_array(rows, **options)})

    return save


@pytest.fixture
def save_car_names():
    def save(path, **more):
        cells = np.empty((1, 196), dtype=object)
        for i, name in enumerate(CAR_NAMES):
            cells[0, i] = name
        scipy.io.savemat(path, {"class_names": cells, **more})

    return save


@pytest.fixture
def photos(tmp_path, image_at):
    paths = [f"{c}/{i}.jpg" for c in "ab" for i in range(3)]
    for i, path in enumerate(paths):
        image_at(tmp_path / path, shade=80 + 20 * i, size=(20, 16))
    boxes = np.tile([10.0, 0.0, 20.0, 16.0], (6, 1))
    labels = np.array(list("aaabbb"))
    return RetrievalSplit("train", labels, root=tmp_path, paths=tuple(paths), boxes=boxes)
