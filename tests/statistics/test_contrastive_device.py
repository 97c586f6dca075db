"""The reduction for accelerators against the compiled one of the host; on the CPU both run."""

import numpy as np
import pytest
import torch

from bspml.statistics import contrastive
from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.contrastive_device import DeviceRows

FLOATS = ("own", "everyone", "difficulty", "other")
WHOLE = ("testable", "support", "other_class", "own_bin")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def _problem(n=120, classes=9, seed=0, dtype=np.float64):
    """Classes of 1 to many samples, two zero rows, weights of 0, 1e-9 and between."""
    rng = np.random.default_rng(seed)
    labels = np.sort(rng.integers(0, classes, n) ** 2 // classes)
    labels = rng.permutation(np.unique(labels, return_inverse=True)[1])
    labels[0] = labels.max() + 1  # a class of one
    E = rng.normal(size=(labels.max() + 1, 5))[labels] + rng.normal(size=(n, 5))
    E[[3, 17]] = 0
    weights = rng.random(n)
    weights[::4], weights[1::7], weights[2::11] = 0, 1, 1e-9
    return E.astype(dtype), labels, weights


def _on_the_device(monkeypatch, *args, **kwargs):
    """The statistics by `DeviceRows`, whatever the device."""
    monkeypatch.setattr(contrastive, "HostRows", DeviceRows)
    try:
        return contrastive_statistics(*args, **kwargs)
    finally:
        monkeypatch.undo()


def _assert_equal(found, expected, atol):
    for name in FLOATS:
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=atol)
    for name in ("testable", "support", "other_class"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()


@pytest.mark.parametrize("block_size", [None, 7, 1000])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("judged", [None, range(20, 90)])
def test_both_reductions_agree(monkeypatch, block_size, weighted, judged):
    E, labels, weights = _problem()
    given = (E, labels, weights if weighted else None)
    more = {"rows": judged, "block_size": block_size, "null_bins": 1 << 12}
    host = contrastive_statistics(*given, **more)
    device = _on_the_device(monkeypatch, *given, **more)
    _assert_equal(device, host, 1e-12)
    assert device.own_bin.tolist() == host.own_bin.tolist()
    np.testing.assert_array_equal(device.null_by_support, host.null_by_support)
    assert host.null.sum() > 0
    assert (device.other_class >= 0).any()


def test_ties_go_to_the_lowest_class(monkeypatch):
    E = np.array([[1.0, 0], [1, 0], [1, 0], [1, 0], [1, 0], [1, 0], [0, 1]])
    labels = np.array([2, 2, 1, 1, 0, 0, 3])
    host = contrastive_statistics(E, labels, null_bins=64)
    device = _on_the_device(monkeypatch, E, labels, null_bins=64)
    assert device.other_class.tolist() == host.other_class.tolist() == [0, 0, 0, 0, 1, 1, 0]


def test_single_precision_is_close_to_double(monkeypatch):
    E, labels, weights = _problem()
    exact = contrastive_statistics(E, labels, weights)
    single = _on_the_device(monkeypatch, E.astype(np.float32), labels, weights)
    for name in FLOATS:
        found, expected = getattr(single, name), getattr(exact, name)
        np.testing.assert_allclose(found, expected, atol=2e-6)


@needs_gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_gpu_gives_the_statistics_of_the_cpu(dtype):
    E, labels, weights = _problem(n=3000, classes=200, dtype=dtype)
    host = contrastive_statistics(E, labels, weights)
    device = contrastive_statistics(torch.from_numpy(E).cuda(), labels, weights)
    _assert_equal(device, host, 1e-12 if dtype == np.float64 else 4e-6)
    moved = np.abs(device.null_by_support - host.null_by_support).sum()
    assert moved <= (0 if dtype == np.float64 else 0.5 * host.null_by_support.sum())
