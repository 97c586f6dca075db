"""The rules every public number, count and choice goes through."""

import enum
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from bspml.errors import InputError
from bspml.tensors.checks import (
    as_numbers,
    check_embeddings,
    encode_labels,
)

STRINGS = getattr(np.dtypes, "StringDType", lambda: object)()  # of numpy 2


def test_lists_are_read_in_double_precision():
    assert as_numbers([0.1], "x", "numbers", "").dtype == torch.float64
    assert as_numbers([torch.tensor(1), torch.tensor(2)], "x", "numbers", "").tolist() == [1, 2]


def test_arrays_are_not_copied():
    array = np.arange(3.0)
    as_numbers(array, "x", "numbers", "")[0] = 7
    assert array[0] == 7


# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, "0"], "all strings or all integers; got a mix of int, str"),
        ([math.nan, "a"], "a mix of float, str"),
        ([True, "a"], "a mix of bool, str"),
        ([None, "a"], "a mix of NoneType, str"),
        ([b"a", "a"], "a mix of bytes, str"),
        ([1, math.nan], "got .*nan.* at row 1"),
        ([1.0, 2.5], "got .*2.5.* at row 1"),
        (np.array([1e19, -1e19]), "at row 0"),
        ([2**63, -1], "must fit 64 bits, with sign; got a number of 64"),
        ([10**30, 1], "must fit 64 bits"),
        ([10**6000, 1], "must fit 64 bits"),
        (np.array([10**30, 1], dtype=object), "must fit 64 bits"),
        (["a", "a\0"], "must not hold the character NUL"),
        (["a", "b" * 1001], "of at most 1000 characters; got 1001 at row 1. Are these texts?"),
        (np.array(["a", "b" * 1001]), "of at most 1000 characters; got 1001 at row 1"),
        (np.ma.masked_array([1, 2], [False, True]), "has masked entries"),
        ([[1], [1, 2]], "one label per sample"),
        ([1, [2]], "one label per sample"),
        (None, r"shape \(N,\); got None"),
        ("cat", r"shape \(N,\); got 'cat'"),
        ({1, 2}, "must be a list or an array, .* got a set"),
        (torch.eye(2).to_sparse(), "dense tensor"),
    ],
)
def test_labels_that_would_merge_or_are_none_are_refused(labels, message):
    with pytest.raises(InputError, match=message):
        encode_labels(labels)


class Pet(str, enum.Enum):
    """Text whose `str()` is another: "Pet.DOG"."""

    DOG = "dog"
    CAT = "cat"


@pytest.mark.parametrize(
    ("labels", "classes", "codes"),
    [
        (np.array([np.int64(3), np.int32(1)], dtype=object), [1, 3], [1, 0]),
        (np.array([np.str_("b"), "a"], dtype=object), ["a", "b"], [1, 0]),
        ([np.str_("b"), "a"], ["a", "b"], [1, 0]),
        (np.array(["b", "a"], dtype=STRINGS), ["a", "b"], [1, 0]),
        ([Pet.DOG, Pet.CAT, "elk"], ["cat", "dog", "elk"], [1, 0, 2]),
        (np.array([Pet.DOG, Pet.CAT], dtype=object), ["cat", "dog"], [1, 0]),
        ([2, 1.0], [1, 2], [1, 0]),
        ([2**53, 2**53 + 1, 1.0], [1, 2**53, 2**53 + 1], [1, 2, 0]),
        ([True, False], [0, 1], [1, 0]),
        ([torch.tensor(5), torch.tensor(4)], [4, 5], [1, 0]),
        (torch.tensor([2.0, 1.0], dtype=torch.bfloat16), [1, 2], [1, 0]),
        (np.array([2, 1], dtype=">i4"), [1, 2], [1, 0]),
        (np.array([2**64 - 1, 0], dtype=np.uint64), [0, 2**64 - 1], [1, 0]),
        (np.ma.masked_array([2, 1], False), [1, 2], [1, 0]),
        ([], [], []),
    ],
)
def test_labels_of_any_honest_kind_are_encoded(labels, classes, codes):
    found = encode_labels(labels)
    assert found.classes.tolist() == classes
    assert found.codes.tolist() == codes


# --- embeddings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda E: E[:, ::-1][:, ::-1].copy()[::-1][::-1],
        lambda E: E.astype(">f8"),
        lambda E: E.astype(np.longdouble),
        lambda E: E.astype(np.int64),
        lambda E: torch.from_numpy(E).to(torch.float8_e4m3fn),
        lambda E: np.ma.masked_array(E, False),
        lambda E: E.tolist(),
    ],
)
def test_embeddings_of_any_layout_are_the_same_numbers(change):
    E = np.array([[1.0, 2.0], [3.0, 4.0], [0.5, 0.0]]) * 2
    assert check_embeddings(change(E)).tolist() == E.tolist()
    assert check_embeddings(E[::-1]).tolist() == E[::-1].tolist()


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (torch.eye(2).to_sparse(), "dense tensor with data"),
        (torch.empty(2, 2, device="meta"), "dense tensor with data"),
        (np.ma.masked_array(np.eye(2), np.eye(2)), "has masked entries"),
        (np.eye(2).astype(complex), "complex128"),
    ],
)
def test_embeddings_without_numbers_are_refused(embeddings, message):
    with pytest.raises(InputError, match=message):
        check_embeddings(embeddings)


@pytest.mark.filterwarnings("error")
def test_read_only_arrays_are_copied_without_a_warning():
    array = np.eye(3)
    array.flags.writeable = False
    tensor = check_embeddings(array)
    tensor += 1
    assert array.tolist() == np.eye(3).tolist()
    array.flags.writeable = True
    assert check_embeddings(array).data_ptr() == array.ctypes.data


def test_columns_of_text_are_named():
    frame = pd.DataFrame({"a": [1.0, 2.0], "name": ["x", "y"], "b": [1, 2]})
    with pytest.raises(InputError, match=r"Columns without numbers: 'name'\. Drop them"):
        check_embeddings(frame)
    assert check_embeddings(frame[["a", "b"]]).shape == (2, 2)


def test_text_as_programs_write_what_is_missing_is_a_class_that_is_told_of():
    for word in ("nan", "NaN", "None", "<NA>", "NaT"):
        said = rf"`y`: rows 1, 3, counted from 0, have the label '{word}', as programs write"
        with pytest.warns(UserWarning, match=said):
            assert encode_labels(["a", word, "b", word], name="y").codes.unique().numel() == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode_labels(["none", "Nancy", "NA"])
        encode_labels(np.array([1, 2]))


def test_durations_are_no_labels():
    with pytest.raises(InputError, match="mix of timedelta64"):
        encode_labels([np.timedelta64(1, "s"), np.timedelta64(2, "s")])
