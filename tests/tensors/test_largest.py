"""The largest of a table's values, offered by blocks, against a sort of the whole."""

import numpy as np
import pytest

from bspml.tensors.largest import Largest, offer_to_columns, offer_to_rows


@pytest.mark.parametrize("k", [1, 7, 40])
@pytest.mark.parametrize("ties", [False, True])
def test_blocks_of_rows_and_of_columns_leave_the_largest(k, ties):
    rng = np.random.default_rng(k)
    table = rng.normal(size=(90, 200)).astype(np.float32)
    if ties:
        table = table.round(1)
    of_rows, of_columns = (Largest.nothing(90, k, np.float32) for _ in range(2))
    for left in rng.permutation(np.arange(0, 200, 50)):
        part = table[:, left : left + 50]
        for low, high in ((0, 31), (31, 90)):
            offer_to_rows(part, left, of_rows, low, high)
            offer_to_columns(part.T.copy(), left, of_columns, low, high)
    for kept in (of_rows, of_columns):
        values, places = kept.descending()
        assert (values == -np.sort(-table, 1)[:, :k]).all()
        assert (np.take_along_axis(table, places, 1) == values).all()
        assert all(len(set(row)) == k for row in places.tolist())


def test_what_is_not_above_the_start_is_not_kept():
    kept = Largest.nothing(1, 3, np.float64, above=0.0)
    offer_to_rows(np.array([[0.0, -1.0, 2.0]]), 5, kept, 0, 1)
    assert [part.tolist() for part in kept.descending()] == [[[2.0, 0.0, 0.0]], [[7, -1, -1]]]
