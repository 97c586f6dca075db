"""The engine of the host: panels, threads, sums that wait or do not fit, tiny weights."""

import math

import numpy as np
import pytest
import torch

from bspml.statistics import contrastive, contrastive_host
from bspml.statistics.contrastive import contrastive_statistics, contrastive_tables
from bspml.statistics.contrastive_host import HostRows
from bspml.statistics.soft_means import SoftMeans
from bspml.tensors.checks import encode_labels
from helpers.draws import clouds


def problem(n=120, classes=7, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    return rng.normal(size=(n, 9)) + rng.normal(size=(classes, 9))[labels], labels, rng.random(n)


def problem_with_absent():
    """A class of one, a zero row, a fifth that is nobody's reference."""
    rng = np.random.default_rng(0)
    x, labels = clouds(rng, 9, 20, 6, 0.5)
    labels[3] = 9
    x[5] = 0
    weights = np.where(rng.random(len(x)) < 0.2, 0.0, rng.random(len(x)))
    weights[3] = 1
    return x, labels, weights


def assert_same(found, expected, atol=1e-14):
    for name in ("own", "everyone", "other", "margin", "other_class", "own_bin"):
        values, other = getattr(found, name).double(), getattr(expected, name).double()
        np.testing.assert_allclose(values, other, rtol=0, atol=atol)
    assert (found.null_by_support == expected.null_by_support).all()


@pytest.mark.parametrize("threads", [2, 3, 200])
def test_the_number_of_threads_does_not_matter(threads):
    before = torch.get_num_threads()
    alone, shared = [], []
    try:
        for count, into in ((1, alone), (threads, shared)):
            torch.set_num_threads(count)
            stats = contrastive_statistics(*problem(), block_size=37, null_bins=256)
            tables = contrastive_tables(*problem_with_absent(), candidates=4)
            into += [stats.own, stats.everyone, stats.other, stats.own_bin, stats.null_by_support]
            into += [*tables.tables, tables.candidates.rows]
    finally:
        torch.set_num_threads(before)
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("room", [0, 400, 2000, 1 << 25])
def test_sums_that_do_not_fit_are_computed_anew(room, monkeypatch):
    whole = contrastive_tables(*problem_with_absent(), candidates=3)
    products = []
    unpatched = HostRows._multiply

    def noted(self, rows, place, panel, beside, *more):
        products.append((panel.start, beside.start))
        return unpatched(self, rows, place, panel, beside, *more)

    monkeypatch.setattr(HostRows, "_multiply", noted)
    monkeypatch.setattr(contrastive_host, "_PANEL", 16)
    monkeypatch.setattr(contrastive_host, "_WAITING_BYTES", 8 * room)
    found = contrastive_tables(*problem_with_absent(), candidates=3)
    assert_same(found.stats, whole.stats)
    np.testing.assert_allclose(found.tables.sharp, whole.tables.sharp, atol=1e-12)
    assert (found.candidates.rows == whole.candidates.rows).all()
    references = int((problem_with_absent()[2] > 0).sum()) - 1
    panels, others = -(-references // 16), -(-(179 - references) // 16)
    square = panels * panels if room == 0 else panels * (panels + 1) // 2
    exact = room in (0, 1 << 25)
    assert not exact or len(products) == square + others * panels
    assert exact or square < len(products) < panels * panels + others * panels


def test_what_waits_never_exceeds_its_room(monkeypatch):
    monkeypatch.setattr(contrastive_host, "_PANEL", 8)
    monkeypatch.setattr(contrastive_host, "_WAITING_BYTES", 24_000)
    held = []
    unpatched = HostRows._nothing_yet

    def noted(self, panel, beside):
        part = unpatched(self, panel, beside)
        held.append((panel.start // 8, beside.start // 8, part.sums.size))
        return part

    monkeypatch.setattr(HostRows, "_nothing_yet", noted)
    contrastive_statistics(*problem(400, 60))
    most = max(sum(size for k, m, size in held if k <= turn < m) for turn in range(50))
    assert 1500 < most <= 3000


def test_references_that_are_not_judged_are_only_columns():
    x, labels, weights = problem()
    some = np.arange(120) % 3 == 0
    found = contrastive_statistics(x, labels, weights, rows=some, block_size=16, null_bins=256)
    expected = contrastive_statistics(x, labels, weights, null_bins=256)
    for name in ("own", "everyone", "other", "other_class", "own_bin"):
        values, other = getattr(found, name)[some], getattr(expected, name)[some]
        np.testing.assert_allclose(values, other, atol=1e-13)


def test_the_tables_are_those_of_their_definitions(monkeypatch):
    monkeypatch.setattr(contrastive_host, "_PANEL", 40)
    x, labels, weights = problem_with_absent()
    tables = contrastive_tables(x, labels, weights).tables
    weights[5] = 0
    given = torch.tensor(x), encode_labels(labels), torch.tensor(weights)
    expected = SoftMeans.of(*given).table(torch.arange(len(x))).numpy()
    judged = np.arange(len(x)) != 5
    assert tables.sharp[judged] == pytest.approx(expected[judged], abs=1e-12, nan_ok=True)
    unit = x[judged] / np.linalg.norm(x[judged], axis=1, keepdims=True)
    for c in range(9):
        of_class = (labels[judged] == c) & (weights[judged] > 0)
        outside = labels[judged] != c
        w = weights[judged][of_class]
        value = np.log(np.exp(10 * unit[outside] @ unit[of_class].T) @ w / w.sum()) / 10
        assert tables.means[judged][outside, c] == pytest.approx(value, abs=1e-12)


def test_large_tables_are_packed_to_half_a_step(monkeypatch):
    monkeypatch.setattr(contrastive, "_TABLE_VALUES", 100)
    x, labels, weights = problem_with_absent()
    tables = contrastive_tables(x, labels, weights).tables
    assert tables.means is None
    weights[5] = 0
    given = torch.tensor(x), encode_labels(labels), torch.tensor(weights)
    judged = torch.arange(len(x))[torch.arange(len(x)) != 5]
    packed = SoftMeans.of(*given, torch.from_numpy(tables.sharp)).table(judged)
    expected = SoftMeans.of(*given).table(judged)
    assert packed.numpy() == pytest.approx(expected.numpy(), abs=2**-11 + 1e-9, nan_ok=True)
    assert packed.isnan().any()


def test_no_tables_where_they_are_too_large_or_of_another_sharpness(monkeypatch):
    assert contrastive_tables(*problem_with_absent(), 9.0).tables is None
    monkeypatch.setattr(contrastive, "_TABLE_VALUES", 100)
    monkeypatch.setattr(contrastive, "_PACKED_VALUES", 100)
    stats, tables, _ = contrastive_tables(*problem_with_absent())
    assert tables is None
    assert (stats.null == contrastive_statistics(*problem_with_absent()).null).all()


def test_a_weight_that_is_nearly_all_of_its_class_cancels_nothing():
    # Two classes of two: sample 0 weighs 1, its classmate 1e-300.
    E, labels = [[1.0, 0], [0.6, 0.8], [0, 1], [0, 1]], [0, 0, 1, 1]
    stats = contrastive_statistics(np.array(E), labels, [1.0, 1e-300, 1.0, 1.0])
    assert stats.own[0].item() == pytest.approx(0.6)
    assert stats.own[1].item() == pytest.approx(0.6)
    expected = math.log((1e-300 * math.exp(6) + 2) / 2) / 10
    assert stats.everyone[0].item() == pytest.approx(expected, abs=1e-15)
