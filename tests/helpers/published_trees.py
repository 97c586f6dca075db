"""Small trees in the formats of the published data sets, with images that are there or not."""

import numpy as np
import scipy.io
from PIL import Image


def image_at(path, shade=100, size=(12, 10), mode="RGB"):
    """A JPEG or PNG of one shade, left half darker, so that mirroring shows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((size[1], size[0]), shade, dtype=np.uint8)
    pixels[:, : size[0] // 2] //= 2
    Image.fromarray(pixels).convert(mode).save(path, quality=95)
    return path


def write_lines(path, lines, end="\n"):
    """Text of these lines, each with its end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((end.join(lines) + end).encode())
    return path


CAR_NAMES = [f"Maker Model {i:03d}" for i in range(1, 197)]
CAR_NAMES[0], CAR_NAMES[1] = "Zeta First 2000", "Acura Second 2001"  # not in order of the names
CAR_NAMES[98] = "Ram C/V Cargo Van Minivan 2012"


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


def save_annotations(path, rows, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(path, {"annotations": annotation_array(rows, **options)})


def save_car_names(path, **more):
    cells = np.empty((1, 196), dtype=object)
    for i, name in enumerate(CAR_NAMES):
        cells[0, i] = name
    scipy.io.savemat(path, {"class_names": cells, **more})
