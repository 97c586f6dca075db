"""Indices, choices of rows and weights of samples: what passes, and what each refusal says."""

import numpy as np
import pytest
import torch

from bspml.errors import InputError, SampleIndexError
from bspml.tensors.row_checks import (
    check_reference_weights,
    check_rows,
    check_sample_index,
    embedded_rows,
)


def test_indices_of_the_data_set_come_back_as_they_are():
    assert check_sample_index([3, 0, 3], 4, 3, "i").tolist() == [3, 0, 3]
    assert check_sample_index([], 4, 0, "i").dtype == torch.int64


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ([0.5], InputError, r"`i` must be integers; got torch.float64\. Take its `\.long\(\)`"),
        (
            [True],
            InputError,
            r"`i` must be integers; got torch.bool\. Take its `\.nonzero\(\)\[:, 0\]`",
        ),
        ([[0]], InputError, r"`i` must be \(B,\), one data-set index per row; got \(1, 1\)"),
        ([0, 1], InputError, r"`i` must be \(B,\) = \(1,\) like the embeddings; got \(2,\)"),
        ([4], SampleIndexError, r"`i` must lie in \[0, 4\); got 4\. Are these"),
        ([-1], SampleIndexError, r"`i` must lie in \[0, 4\); got -1"),
    ],
)
def test_what_is_no_index_is_refused(index, error, message):
    with pytest.raises(error, match=message):
        check_sample_index(index, 4, 1, "i")


def test_rows_are_chosen_by_a_mask_or_by_number():
    mask = np.array([True, False, True])
    assert check_rows(mask, 3).tolist() == check_rows([0, 2], 3).tolist() == [0, 2]
    assert check_rows([], 3).tolist() == []
    with pytest.raises(InputError, match=r"one flag per sample, \(4,\); got \(3,\)"):
        check_rows(mask, 4)
    with pytest.raises(SampleIndexError, match=r"`rows` must lie in \[0, 3\)"):
        check_rows([3], 3)


def test_weights_are_copied_and_lie_between_0_and_1():
    assert check_reference_weights(None, 2).tolist() == [1, 1]
    given = torch.tensor([0.5, 1.0], dtype=torch.float64)
    found = check_reference_weights(given, 2)
    found[0] = 0
    assert given.tolist() == [0.5, 1]
    with pytest.raises(InputError, match=r"must be \(N,\) = \(3,\) like the embeddings; got \(2"):
        check_reference_weights(given, 3)
    with pytest.raises(InputError, match=r"must be in \[0, 1\]; rows 1 are not, the first is 1\.5"):
        check_reference_weights([0.5, 1.5], 2)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (np.array([0, 1, 1, 0]), InputError, "holds 0 and 1 alone, for each of 4 .* be of bools"),
        (np.ma.array([True] * 4, mask=[0, 1, 0, 0]), InputError, "`rows` has masked entries"),
        ({0: 1}, InputError, "`rows` must be a list or an array, .* got a dict"),
        (iter([0]), InputError, "got a list_iterator"),
        ([0.0, 1.0], InputError, "must be integers; got torch.float64"),
        ([True, False, True], InputError, r"one flag per sample, \(4,\); got \(3,\)"),
        (torch.ones(4).bfloat16(), InputError, "must be integers; got torch.bfloat16"),
        (torch.ones(4).bool().to_sparse(), InputError, "`rows` must be a dense tensor"),
        ([4], SampleIndexError, r"must lie in \[0, 4\); got 4"),
    ],
)
def test_rows_that_would_be_other_rows_are_refused(rows, error, message):
    with pytest.raises(error, match=message):
        check_rows(rows, 4)
    assert check_rows([2, 2, 0], 4).tolist() == [2, 2, 0]


def test_what_a_network_makes_is_real_whatever_its_precision():
    for kind in (torch.float16, torch.bfloat16, torch.float64, torch.int8):
        found = embedded_rows(torch.tensor([[1, 2]], dtype=kind), 1)
        assert (found.dtype, found.tolist()) == (torch.float32, [[1, 2]])
    for found, message in (
        (torch.ones(1, 2, dtype=torch.complex64), "to real numbers; got torch.complex64. Return"),
        (torch.ones(2, 2), r"to \(B, D\) = \(1, D\); got \(2, 2\)"),
        (torch.ones(1, 2, 2), r"got \(1, 2, 2\)\. Flatten"),
        ((torch.ones(1, 2),), "got tuple"),
    ):
        with pytest.raises(InputError, match=message):
            embedded_rows(found, 1)
