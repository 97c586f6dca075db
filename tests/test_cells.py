"""Label cells: protected for spreadsheets, bare again when read, numbers only where they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bspml.cells import bare_cell, integers, parse_labels, protected_cell


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


def test_whole_numbers_are_int64_and_longer_ones_text():
    assert integers(["0", "-12", " 3 "]).tolist() == [0, -12, 3]
    assert integers([str(2**63 - 1)]).tolist() == [2**63 - 1]
    assert integers([str(2**63)]) is None
    assert integers(["9" * 5000]) is None
    assert parse_labels(["1", "'2"]).tolist() == ["1", "2"]
