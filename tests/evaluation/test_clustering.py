"""NMI and AMI against scikit-learn and hand-worked values; k-means repeats itself."""

import math
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

from bspml.evaluation import clustering
from bspml.evaluation.clustering import _farthest_first, clustering_scores, kmeans
from bspml.tensors.unit_rows import grid_unit_rows

# Sums of some hundred terms through log-gamma of n.
TOLERANCE = 1e-9


def test_nmi_takes_the_arithmetic_mean_of_the_entropies():
    a, b = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 2, 2])
    # H(a) = 1.011404, H(b) = log 3 = 1.098612; joint (2,1,1,1,1)/6: H = 1.560710;
    # I = H(a) + H(b) - H(a, b) = .549306; .549306 / 1.055008 = .52067
    assert clustering_scores(a, b).nmi == pytest.approx(0.52067, abs=5e-6)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(4, 80), classes=st.integers(2, 9), clusters=st.integers(1, 9), seed=st.integers(0)
)
def test_scores_equal_those_of_scikit_learn(n, classes, clusters, seed):
    draw = np.random.default_rng(seed)
    a = np.concatenate([[0, 1], draw.integers(0, classes, n - 2)])
    b = draw.integers(0, clusters, n)
    ours = clustering_scores(a, b)
    assert ours.nmi == pytest.approx(normalized_mutual_info_score(a, b), abs=TOLERANCE)
    assert ours.ami == pytest.approx(adjusted_mutual_info_score(a, b), abs=TOLERANCE)


def test_chance_is_what_shuffled_clusters_score():
    draw = np.random.default_rng(0)
    classes = np.repeat(np.arange(40), 5)
    scores = clustering_scores(classes, draw.permutation(classes))
    shuffled = [
        normalized_mutual_info_score(classes, draw.permutation(classes)) for _ in range(300)
    ]
    assert scores.nmi_chance > 0.5  # why NMI alone says little
    # standard error of the mean of 300 shuffles: about .0005
    assert scores.nmi_chance == pytest.approx(np.mean(shuffled), abs=0.003)


def test_perfect_clusters_score_one_and_constant_clusters_zero():
    classes = np.repeat(np.arange(6), 7)
    perfect = clustering_scores(classes, 5 - classes)
    assert perfect.nmi == pytest.approx(1)
    assert perfect.ami == pytest.approx(1)
    constant = clustering_scores(classes, np.zeros(42, int))
    assert constant.nmi == constant.nmi_chance == 0
    assert constant.ami == pytest.approx(0)


def test_one_class_gives_nan_because_there_is_nothing_to_find():
    assert math.isnan(clustering_scores(np.zeros(5, int), np.arange(5)).nmi)


def without_faiss(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)


@pytest.mark.parametrize("library", ["faiss", "sklearn"])
@pytest.mark.parametrize("classes", [2, 20, 150])
def test_kmeans_finds_well_separated_classes(library, classes, monkeypatch):
    if library == "sklearn":
        without_faiss(monkeypatch)
    draw = torch.Generator().manual_seed(0)
    truth = np.arange(4 * classes) % classes
    x = torch.randn(classes, 16, generator=draw)[truth]
    x = grid_unit_rows(x + 0.001 * torch.randn(x.shape, generator=draw))
    for seed in range(3):
        clusters, used = kmeans(x, classes, seed)
        assert used == library
        assert clustering_scores(truth, clusters).nmi == pytest.approx(1)


def test_kmeans_is_the_same_with_and_without_faiss_and_ignores_global_generators(monkeypatch):
    x = grid_unit_rows(torch.randn(400, 8, generator=torch.Generator().manual_seed(1)))
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    first, _ = kmeans(x, 30, seed=5)
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    assert np.array_equal(first, kmeans(x, 30, seed=5)[0])
    without_faiss(monkeypatch)
    # up to rounding at the borders between clusters
    assert np.mean(first == kmeans(x, 30, seed=5)[0]) > 0.98


def test_the_start_is_drawn_by_squared_distance():
    # Squared distances: a to b 2, b to c 2, a to c (60 degrees apart) 1.
    a, b = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
    c = [0.5, 0.0, math.sqrt(0.75)]
    rows = np.array([a, b, c], np.float32)
    draws = 3000
    counts = np.zeros((3, 3))
    for seed in range(draws):
        first, second, third = clustering._plus_plus(rows, 3, seed)[0]
        counts[first, second] += 1
        assert {first, second, third} == {0, 1, 2}
    # p(second | first): from a: b 2/3, c 1/3; from b: a 1/2, c 1/2; from c: a 1/3, b 2/3
    expected = draws / 3 * np.array([[0, 2 / 3, 1 / 3], [1 / 2, 0, 1 / 2], [1 / 3, 2 / 3, 0]])
    # five standard deviations of a count near 667
    assert np.abs(counts - expected).max() < 5 * math.sqrt(667)


@pytest.mark.parametrize("library", ["faiss", "sklearn"])
def test_kmeans_of_one_point_is_one_cluster_without_warnings(library, monkeypatch):
    if library == "sklearn":
        without_faiss(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clusters, _ = kmeans(grid_unit_rows(torch.full((40, 37), 0.3)), 5)
    assert len(set(clusters)) == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("sizes", "jitter"), [([2, 5, 50, 7] * 3, 0.01), ([5] * 100, 0.02), ([2, 3] * 150, 0.001)]
)
def test_classes_further_apart_than_wide_are_found_whatever_their_sizes(seed, sizes, jitter):
    y = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(seed)
    rows = np.eye(len(sizes))[y] + jitter * rng.normal(size=(len(y), len(sizes)))
    rows = torch.from_numpy(rows / np.linalg.norm(rows, axis=1, keepdims=True)).float()
    found, _ = kmeans(rows, len(sizes), seed)
    scores = clustering_scores(y, found)
    assert scores.nmi == pytest.approx(1.0, abs=1e-12)


def test_farthest_first_equals_the_loop():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(700, 6)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    chosen, cost = _farthest_first(rows, 300, 5)
    exact = ((rows[:, None].astype(np.float64) - rows[None]) ** 2).sum(-1)
    expected = [5]
    left = exact[5].copy()
    while len(expected) < 300:
        expected.append(int(left.argmax()))
        left = np.minimum(left, exact[expected[-1]])
    # Near ties may be taken in another order; the covering radius may not differ.
    assert exact[chosen].min(0).max() == pytest.approx(left.max(), rel=1e-5)
    assert cost == pytest.approx(left.sum(), rel=1e-2)
    assert np.mean(np.isin(chosen, expected)) > 0.95
