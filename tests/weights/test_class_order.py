"""Counting sort against the stable comparison sort."""

import numpy as np
import pytest

from bspml.weights.class_order import sort_by_class


@pytest.mark.parametrize(("n", "classes"), [(1, 1), (7, 1), (6, 6), (500, 40)])
def test_counting_sort_orders_as_the_stable_sort_does(n, classes):
    rng = np.random.default_rng(n)
    codes = rng.permutation(np.concatenate([np.arange(classes), rng.integers(0, classes, n)]))
    xi = rng.random((2, len(codes)))
    found = sort_by_class(codes, np.bincount(codes).astype(float), *xi)
    order = np.argsort(codes, kind="stable")
    assert found.order.tolist() == order.tolist()
    assert found.codes.tolist() == codes[order].tolist()
    assert found.starts.tolist() == [0, *np.cumsum(np.bincount(codes))]
    assert np.array_equal(found.xi_pos, xi[0][order])
    assert np.array_equal(found.xi_neg, xi[1][order])
    assert np.array_equal(found.scatter(codes[order]), codes)
