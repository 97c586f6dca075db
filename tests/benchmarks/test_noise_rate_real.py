"""The features that the benchmark whitens."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from helpers.places import REPOSITORY


@pytest.fixture
def whitened(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return importlib.import_module("noise_rate_real").whitened


def rows():
    return np.random.default_rng(0).normal(size=(200, 5)) * [10, 3, 1, 1, 0.3]


def test_without_shrinkage_the_second_moment_is_the_identity(whitened):
    white = whitened(rows(), shrink=1e-12)
    np.testing.assert_allclose(white.T @ white / 200, np.eye(5), atol=1e-7)


def test_strong_shrinkage_only_centres(whitened):
    unit = rows() / np.linalg.norm(rows(), axis=1, keepdims=True)
    centred = unit - unit.mean(0)
    white = whitened(rows(), shrink=1e9)
    cosine = (white * centred).sum(1) / np.linalg.norm(white, axis=1)
    np.testing.assert_allclose(cosine, np.linalg.norm(centred, axis=1), rtol=1e-6)
