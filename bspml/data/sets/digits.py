"""scikit-learn's handwritten digits: 1,797 images of 8 x 8, inside its package.

For smoke tests and small comparisons: a nearest neighbour on raw pixels already reaches 0.99.
"""

from __future__ import annotations

import numpy as np

from bspml.data.image_split import ImageSplit, held_out_rows
from bspml.tensors.checks import check_choice

SPLITS = ("train", "test")
CLASSES = tuple("0123456789")

_TEST_SHARE = 1 / 3  # of each digit


def digits(split: str = "train") -> ImageSplit:
    """Two thirds of each digit to train on (1,198 images), the other third (599) to test on.

    scikit-learn ships one set without a split; ours is a fixed stratified choice, so writers
    occur on both sides.  For regression the target is the digit itself, `labels` as numbers,
    as [Castells 2020, supplement 3.1] does with MNIST.

    Args:
        split: "train" or "test".

    Returns:
        `ImageSplit` with one channel; scikit-learn's 17 grey levels spread over 0 to 255.

    Example:
        >>> digits("test").images.shape
        (599, 8, 8, 1)
    """
    from sklearn.datasets import load_digits

    check_choice(split, "split", SPLITS)
    bunch = load_digits()
    labels = bunch.target.astype(np.int64)
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    everything = ImageSplit(pixels[..., None], labels, CLASSES)
    return everything.take(held_out_rows(labels, _TEST_SHARE) == (split == "test"))
