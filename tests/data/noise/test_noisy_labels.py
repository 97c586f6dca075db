"""The record of what is wrong: the matrix, the file, and labels whose truth is known."""

import numpy as np
import pytest
import torch

from bspml import noise
from bspml.errors import DataError, InputError
from bspml.files.tables import read_labels
from helpers.pickles import Bomb


def test_the_sparse_transition_matrix_is_the_dense_one():
    noisy = noise.symmetric(list("abcabcabc"), 0.5)
    assert np.array_equal(noisy.transition_matrix(sparse=True).toarray(), noisy.transition_matrix())


def test_labels_whose_truth_is_known_become_a_record():
    noisy = noise.from_labels(list("abbba"), list("aabbc"))
    assert noisy.is_noisy.tolist() == [False, True, False, False, True]
    # No label c is left, so its sample fits none.
    assert noisy.is_outlier.tolist() == [False] * 4 + [True]
    assert noisy.rate == noisy.actual_rate == 0.4
    assert noisy.transition_matrix().tolist() == [[0.5, 0.5, 0], [0, 1, 0], [1, 0, 0]]


def test_a_record_made_of_its_own_labels_is_the_same_record():
    given = torch.arange(60, dtype=torch.int32) % 6 + 3
    noisy = noise.open_set(given, 0.3, seed=2)
    again = noise.from_labels(noisy.labels, noisy.true_labels)
    for name in ("labels", "true_labels", "is_noisy", "is_outlier"):
        assert torch.equal(getattr(again, name), getattr(noisy, name))
    assert again.labels.dtype == torch.int32
    again.labels[0] = 0
    assert noisy.labels[0] != 0


KINDS = {
    "words": lambda codes: np.array(list("abcd"))[codes],
    "objects": lambda codes: np.array(list("abcd"), dtype=object)[codes],
    "tensor": lambda codes: torch.from_numpy(codes * 7 - 3),
    "floats": lambda codes: codes * 2.0,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_holds_everything_and_the_matrix(tmp_path, kind):
    labels = KINDS[kind](np.arange(40) % 4)
    noisy = noise.open_set(labels, 0.25)
    path = noisy.save(tmp_path / "noisy.npz")
    back = noise.load(path)
    for name in ("labels", "true_labels", "is_noisy", "is_outlier", "classes"):
        assert np.asarray(getattr(back, name)).tolist() == np.asarray(getattr(noisy, name)).tolist()
    assert back.rate == 0.25
    assert np.array_equal(back.transition_matrix(), noisy.transition_matrix())
    with np.load(path, allow_pickle=False) as file:
        assert np.array_equal(file["transition_matrix"], noisy.transition_matrix())
        assert np.allclose(file["transition_matrix"].sum(1), 1)
    # As a label file it holds the given labels, not the true ones.
    assert read_labels(path).tolist() == np.asarray(noisy.labels).tolist()


def test_thousands_of_classes_are_saved_without_their_matrix(tmp_path):
    labels = np.repeat(np.arange(5_000), 2)
    path = noise.symmetric(labels, 0.1).save(tmp_path / "noisy.npz")
    with np.load(path) as file:
        assert "transition_matrix" not in file.files
    assert noise.load(path).actual_rate == 0.1


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"`path` must end in .npz; got 'noisy.npy'"):
        noise.symmetric([0, 1], 0.5).save(tmp_path / "noisy.npy")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop("is_noisy"), "is not a file of .*: it lacks 'is_noisy"),
        (lambda a: a.update(labels=a["labels"][:-1]), "differ in length"),
        (lambda a: a.update(is_noisy=a["is_noisy"] * 1), "flags are not bool"),
        (lambda a: a.update(classes=a["classes"][:1]), "labels outside its classes"),
        (lambda a: a.update(rate=np.zeros(3)), "cannot be read as noisy labels"),
    ],
)
def test_a_file_of_something_else_is_named(tmp_path, change, message):
    path = noise.symmetric([0, 1, 2, 3], 0.5).save(tmp_path / "noisy.npz")
    with np.load(path) as file:
        arrays = dict(file)
    change(arrays)
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=rf"noisy.npz: .*{message}"):
        noise.load(path)


def test_a_file_runs_no_code(tmp_path):
    path = noise.symmetric([0, 1, 2, 3], 0.5).save(tmp_path / "noisy.npz")
    with np.load(path) as file:
        arrays = dict(file)
    arrays["labels"] = np.array([Bomb(tmp_path / "ran")] * 4, dtype=object)
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=r"noisy.npz: its array 'labels' holds Python objects"):
        noise.load(path)
    assert not (tmp_path / "ran").exists()


def test_a_missing_or_damaged_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere.npz: no such file of noisy labels"):
        noise.load(tmp_path / "nowhere.npz")
    path = noise.symmetric([0, 1, 2, 3], 0.5).save(tmp_path / "noisy.npz")
    data = path.read_bytes()
    for size in (0, 5, len(data) // 2, len(data) - 10):
        path.write_bytes(data[:size])
        with pytest.raises(DataError, match=r"noisy.npz: cannot be read as noisy labels"):
            noise.load(path)
    np.save(tmp_path / "plain.npy", np.arange(3))
    with pytest.raises(DataError, match=r"plain.npy: is a single array, and no archive"):
        noise.load(tmp_path / "plain.npy")


@pytest.mark.parametrize(
    ("labels", "truth", "message"),
    [
        ([1, 2], [1, 2, 2], "must be equally long, at least 1; got 2 and 3"),
        (["1", "2"], [1, 2], "`labels` are text, `true_labels` numbers"),
        ([1, 2], ["1", "2"], "`labels` are numbers, `true_labels` text"),
        ([1, 9, 9, 8], [1, 2, 1, 2], "`labels` has 2 labels that no true label is, such as 8"),
        ([], [], "at least 1; got 0 and 0"),
        ([1], [float("nan")], "`true_labels` must be integers"),
    ],
)
def test_labels_that_do_not_fit_their_truth_are_refused(labels, truth, message):
    with pytest.raises(InputError, match=message):
        noise.from_labels(labels, truth)


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.uint64, bool])
def test_numbers_of_two_kinds_are_compared(kind):
    found = noise.from_labels(np.array([1, 0, 0], kind), np.array([1, 1, 0]))
    assert found.rate == pytest.approx(1 / 3)
    assert found.is_noisy.tolist() == [False, True, False]
    with pytest.raises(InputError, match="`labels` are numbers, `true_labels` text"):
        noise.from_labels(np.array([1, 0, 0], kind), list("110"))
