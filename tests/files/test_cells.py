"""Label cells: protected for spreadsheets, bare again when read, numbers only where they are."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bspml.files.cells import (
    bare_cell,
    decimal_number,
    integers,
    parse_labels,
    plain_labels,
    protected_cell,
)


@given(st.text(alphabet="'=+-@ \t017.,eEnaif", max_size=6))
def test_protection_is_undone_and_a_protected_cell_is_never_risky(text):
    cell = protected_cell(text)
    assert bare_cell(cell) == text
    assert cell[:1] not in ("=", "+", "-", "@")


@pytest.mark.parametrize("cell", ["'tis", "'n", "a'"])
def test_an_apostrophe_that_protects_nothing_stays(cell):
    assert bare_cell(cell) == cell


@pytest.mark.parametrize(
    "cells", [["007", "7"], ["1_0", "10"], ["٣", "3"], ["-0", "0"], ["+1", "1"]]
)
def test_text_that_python_would_read_as_a_number_keeps_its_class(cells):
    labels = parse_labels(cells)
    assert labels.tolist() == cells
    assert len(np.unique(labels)) == 2


def test_whole_numbers_are_int64_or_uint64_and_longer_ones_text():
    assert integers(["0", "-12", " 3 "]).tolist() == [0, -12, 3]
    for number, kind in ((2**63 - 1, np.int64), (2**63, np.uint64), (2**64 - 1, np.uint64)):
        assert integers([str(number), "7"]).tolist() == [number, 7]
        assert integers([str(number)]).dtype == kind
    assert integers([str(2**64)]) is None
    assert integers([str(2**63), "-1"]) is None
    assert integers([str(-(2**63) - 1)]) is None
    assert integers(["9" * 5000]) is None
    assert parse_labels(["1", "'2"]).tolist() == ["1", "2"]


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("5", 5), (" 5\t", 5), ("+5", 5), ("-.5", -0.5), ("5.", 5), ("1e3", 1000), ("1E-2", 0.01),
        ("007", 7), ("inf", np.inf), ("1e999", np.inf), ("1_0", None), ("\u0661", None),
        ("５", None), ("1,5", None), ("0x1f", None), ("1e", None), ("", None), ("5 5", None),
        ("--5", None), ("5\0", None), ("\xa05", None), ("½", None), ("1e1_0", None),
    ],
)  # fmt: skip
def test_a_number_is_written_as_programs_write_it(cell, number):
    assert decimal_number(cell) == number


@pytest.mark.parametrize("text", ["\ufeff5", "\xa05", "\x1c5", "5\x85", "\u180e7", "٣", ".5 m"])
def test_numbers_between_any_white_space_are_protected(text):
    assert protected_cell(text) == f"'{text}"
    assert bare_cell(f"'{text}") == text


@pytest.mark.parametrize(
    "text", ["10-12", "1/2", "2024-01-31", "31.1.24 ", "9:30", "2024-01-31 9:30:00", "1 1/2", "5 %"]
)
def test_digits_that_a_spreadsheet_reads_as_a_date_or_a_share_are_protected(text):
    assert protected_cell(text) == f"'{text}"
    assert bare_cell(f"'{text}") == text


def test_a_long_cell_is_looked_at_once():
    assert protected_cell("5" + " " * 10**6 + "m")[0] == "5"
    assert protected_cell("5 " * 10**5 + "m")[0] == "5"


@pytest.mark.parametrize(
    "text", ["10-12 y", "1/a.png", "9 :", "ınf", "falſe", "\U00011f505", "\u200b5", "5\u2009km"]
)
def test_what_only_looks_like_a_number_is_left_alone(text):
    assert protected_cell(text) == text


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        (np.array([True, False]), np.int64),
        (np.array([1, 255], np.uint8), np.int64),
        (np.array([1, -2], ">i4"), np.int64),
        (np.array([1, 2], np.uint64), np.int64),
        (np.array([1, 2**63], np.uint64), np.uint64),
        (np.array([1, 2**63], ">u8"), np.uint64),
        (np.array([], np.uint64), np.int64),
        (np.array(["a"], ">U1"), "<U1"),
    ],
)
def test_labels_have_one_form(labels, dtype):
    plain = plain_labels(labels)
    assert plain.dtype == np.dtype(dtype)
    assert plain.tolist() == labels.tolist()
