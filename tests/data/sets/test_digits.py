"""scikit-learn's digits: every image in one split, both stratified, pixels as they were."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bspml.data.sets.digits import digits
from bspml.errors import InputError


def test_the_splits_share_nothing_and_leave_nothing_out():
    train, test = digits("train"), digits("test")
    assert (len(train), len(test)) == (1198, 599)
    given = load_digits()
    together = np.concatenate([train.images, test.images])[..., 0]
    levels = np.rint(together / 255 * 16)
    ours = sorted(zip(levels.reshape(-1, 64).tolist(), [*train.labels, *test.labels], strict=True))
    theirs = sorted(zip(given.data.tolist(), given.target, strict=True))
    assert ours == theirs


def test_every_digit_has_its_third_in_the_test_split():
    train, test = (np.bincount(digits(s).labels) for s in ("train", "test"))
    assert test.tolist() == [round(n / 3) for n in (train + test).tolist()]


def test_images_and_labels_fit_a_classifier_and_a_regression_head():
    train = digits()
    assert train.images.shape == (1198, 8, 8, 1)
    assert train.images.dtype == np.uint8
    assert train.images.max() == 255
    assert train.classes == tuple("0123456789")
    assert train.labels.dtype == np.int64
    # The class number is the digit, so it serves as target as it is.
    assert [train.classes[c] for c in train.labels] == [str(c) for c in train.labels]


def test_the_split_does_not_change():
    # Whoever compares with an older result relies on it.
    assert int(digits("test").labels[:8] @ 10 ** np.arange(8)) == PINNED


PINNED = 65_746_421


def test_an_unknown_split_is_refused():
    with pytest.raises(InputError, match="`split` must be one of train, test; got 'validation'"):
        digits("validation")
