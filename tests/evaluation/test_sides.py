"""What queries and gallery must agree on, and how metrics become one flat table."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from bspml.errors import InputError
from bspml.evaluation.sides import (
    check_columns,
    check_ignored,
    check_ks,
    check_reach,
    encode_jointly,
    flat,
    is_ignored,
)
from bspml.tensors.checks import encode_labels


def test_ks_are_sorted_and_named_once():
    assert check_ks(3) == (3,)
    assert check_ks([4, 1, 4]) == (1, 4)
    with pytest.raises(InputError, match="`ks` must name at least one K"):
        check_ks([])


@pytest.mark.parametrize(
    ("alone", "less"), [(True, r" \(the query itself not counted\)"), (False, "")]
)
def test_a_k_beyond_the_gallery_is_refused(alone, less):
    check_reach((1, 5), 5, alone, "rows")
    with pytest.raises(InputError, match=rf"the 5 nearest, but the gallery has 4 sets{less}\. Use"):
        check_reach((1, 5), 4, alone, "sets")
    with pytest.raises(InputError, match=rf"has no sets to be found{less}; give it at least two"):
        check_reach((1, 5), 0, alone, "sets", by_default=True)


def test_rows_of_another_length_are_refused():
    check_columns(torch.ones(2, 3), torch.ones(4, 3))
    with pytest.raises(InputError, match="the queries' 3 columns; got 2"):
        check_columns(torch.ones(2, 3), torch.ones(4, 2))


def test_codes_are_those_of_the_union_of_both_sides():
    ours, theirs = encode_jointly(["b", "c"], 2, ["a", "c", "b"], 3)
    assert (ours.tolist(), theirs.tolist()) == ([1, 2], [0, 2, 1])


def test_text_and_numbers_are_refused_by_the_name_of_the_argument():
    with pytest.raises(InputError, match="`cameras` and `gallery_cameras` must be of one kind"):
        encode_jointly(["1"], 1, [1], 1, "cameras")


@dataclass
class Metrics:
    hits_at_k: dict
    score: float
    zero_rows: tuple = ()


def test_metrics_become_one_table_for_json():
    expected = {"hits_at_1": 0.5, "hits_at_2": 1.0, "score": None, "num_zero_rows": 2}
    assert flat(Metrics({1: 0.5, 2: 1.0}, math.nan, (3, 4)), "hits_at_") == expected


@pytest.mark.parametrize("ks", [b"1", bytearray(b"1"), "1"])
def test_text_is_no_k(ks):
    with pytest.raises(InputError, match="`ks` must be"):
        check_ks(ks)


@pytest.mark.parametrize(
    ("ignore", "message"),
    [
        ([[1], [2, 3]], "`ignore` must be one label per sample"),
        ([[1, 2], [3, 4]], "`ignore` must be one label per sample"),
        (iter([1]), "`ignore` must be a list or an array"),
        (np.ma.array([1, 2], mask=[True, False]), "`ignore` has masked entries"),
    ],
)
def test_what_is_no_list_of_labels_to_ignore_is_refused(ignore, message):
    with pytest.raises(InputError, match=message):
        check_ignored(ignore, encode_labels([1, 2, 3]))
    for one in (1, np.int64(1), np.array(1), torch.tensor(1), [1], (1,), np.array([1])):
        assert is_ignored(encode_labels([1, 2]), one).tolist() == [True, False]


def test_masked_ks_and_those_of_a_dict_are_refused():
    for ks, message in ((np.ma.array([1, 2], mask=[1, 0]), "masked"), ({1: 0.5}, "got a dict")):
        with pytest.raises(InputError, match=f"`ks` .*{message}"):
            check_ks(ks)
    assert check_ks({2, 1}) == check_ks(k for k in (1, 2)) == check_ks(range(1, 3)) == (1, 2)


@pytest.mark.parametrize("flag", [True, False, np.True_, torch.tensor(True)])
def test_a_flag_names_no_label_to_ignore(flag):
    with pytest.raises(InputError, match=f"`ignore` must be labels .* got {bool(flag)}"):
        check_ignored(flag, encode_labels([0, 1]))
    assert is_ignored(encode_labels([False, True]), [bool(flag)]).sum() == 1


@pytest.mark.parametrize("make", [list, np.array, torch.tensor])
def test_a_mask_is_no_list_of_labels_to_ignore(make):
    with pytest.raises(InputError, match="`ignore` must be labels"):
        check_ignored(make([False, False, True]), encode_labels([0, 1, 5]))
    assert is_ignored(encode_labels([0, 1, 5]), make([1, 5])).tolist() == [False, True, True]
