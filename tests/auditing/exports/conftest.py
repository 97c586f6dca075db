"""An audit of photos whose names and classes are hard to write down."""

import numpy as np
import pytest
from PIL import Image

import bspml

CLASSES = ['a "b" <c> & d', "größe, 鳥", "x\ty\nz"]


@pytest.fixture(scope="module")
def case():
    """Embeddings (36, 3), labels of which 0, 13 and 30 are wrong, and names."""
    x = np.repeat(np.eye(3), 12, 0) + 0.1 * np.random.default_rng(0).standard_normal((36, 3))
    labels = np.repeat(CLASSES, 12).tolist()
    labels[0], labels[13], labels[30] = labels[13], labels[0], labels[1]
    return x, labels, [f'k "l"/{i}, <&>\' é鳥.v{i}.jpg' for i in range(36)]


@pytest.fixture(scope="module")
def report(case):
    return bspml.audit(*case)


@pytest.fixture(scope="module")
def photos(case, tmp_path_factory):
    root = tmp_path_factory.mktemp("all") / "ph otos"
    (root / 'k "l"').mkdir(parents=True)
    for name in case[2]:
        Image.new("RGB", (20, 10)).save(root / name)
    return root
