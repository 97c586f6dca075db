"""Single values as arguments: what is a number, a count or a choice, and what is none."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from bspml.errors import InputError
from bspml.tensors.scalars import check_choice, check_number, check_whole


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("half", "`x` must be a number; got 'half'"),
        ("2", "`x` must be a number; got '2'"),
        (None, "`x` must be a number; got None"),
        (1j, "`x` must be a number; got complex"),
        ([1, 2], "`x` must be a number; got a list of int"),
        (torch.ones(2), "`x` must be a number; got a tensor of torch.float32"),
        (math.inf, "`x` must be finite; got inf"),
        (-math.inf, "`x` must be finite; got -inf"),
        (10**400, "`x` must be finite; got inf"),
        (torch.tensor(math.inf), "`x` must be finite"),
        (math.nan, r"`x` must be in \(-inf, inf\); got nan"),
    ],
)
def test_what_is_no_finite_number_is_refused(value, message):
    with pytest.raises(InputError, match=message):
        check_number(value, "x")


def test_a_range_with_ends_names_them():
    with pytest.raises(InputError, match=r"in \(0, inf\); got -inf"):
        check_number(-math.inf, "x", 0, open_low=True)
    with pytest.raises(InputError, match=r"in \[0, 1\]; got inf"):
        check_number(math.inf, "x", 0, 1)
    with pytest.raises(InputError, match=r"in \[0, inf\]; got -1"):
        check_number(-1, "x", 0, allow_infinite=True)


def test_infinity_passes_where_it_has_a_meaning():
    assert check_number(math.inf, "x", allow_infinite=True) == math.inf
    for value in (3, 3.0, np.float32(3), torch.tensor(3.0), np.array(3)):
        assert check_number(value, "x") == 3.0


@pytest.mark.parametrize("value", [0, 2.5, True, "many", None, math.inf, torch.ones(2), [3]])
def test_what_is_no_count_is_refused(value):
    with pytest.raises(InputError, match="`x` must be a whole number of at least 1"):
        check_whole(value, "x")


@pytest.mark.parametrize("value", ["c", None, 1, ["a"], np.array(["a", "b"])])
def test_what_is_no_choice_is_refused(value):
    with pytest.raises(InputError, match="`x` must be one of a, b"):
        check_choice(value, "x", ("a", "b"))


def test_truth_values_of_any_kind_are_no_whole_number():
    for value in (True, np.True_, torch.tensor(True), np.array([True])):
        with pytest.raises(InputError, match="`k` must be a whole number"):
            check_whole(value, "k")


def test_what_python_would_make_a_number_of_is_none():
    hidden = np.ma.array([3.0], mask=[True])
    for value in (np.complex64(3), torch.tensor(3 + 0j), np.ma.masked, hidden):
        with pytest.raises(InputError, match="`k` must be a number; got"):
            check_number(value, "k")
        with pytest.raises(InputError, match="`k` must be a whole number"):
            check_whole(value, "k")
    for fits in (np.ma.array(3), np.float16(3), torch.tensor(3), Fraction(3), Decimal(3)):
        assert check_number(fits, "k") == check_whole(fits, "k") == 3
