"""A small CUB, and a few photographs, for the tests of several readers."""

import numpy as np
import pytest

from bspml.data.retrieval import RetrievalSplit
from helpers.published_trees import image_at, write_lines


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
                image_at(base / "images" / name, shade=60 + i % 100)
        write_lines(base / "images.txt", [f"{i} {name}" for i, name in enumerate(names, 1)])
        write_lines(base / "image_class_labels.txt", [f"{i} {c}" for i, c in enumerate(labels, 1)])
        write_lines(base / "train_test_split.txt", split)
        if boxes:
            write_lines(base / "bounding_boxes.txt", corners)
        return base

    return make


@pytest.fixture
def photos(tmp_path):
    """Six photographs of two classes, with boxes."""
    paths = [f"{c}/{i}.jpg" for c in "ab" for i in range(3)]
    for i, path in enumerate(paths):
        image_at(tmp_path / path, shade=80 + 20 * i, size=(20, 16))
    boxes = np.tile([10.0, 0.0, 20.0, 16.0], (6, 1))
    labels = np.array(list("aaabbb"))
    return RetrievalSplit("train", labels, root=tmp_path, paths=tuple(paths), boxes=boxes)
