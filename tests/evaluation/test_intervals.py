"""Intervals over classes against a loop over draws, and what is known of their coverage."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from bspml.evaluation import evaluate, intervals
from bspml.evaluation.intervals import class_intervals

EXACT = 1e-12


def loop(values, codes, seed):
    """Draw classes, collect their queries one by one, average."""

    def size_and_sums(c):
        own = [row for row, code in zip(values, codes, strict=True) if code == c]
        return len(own), *reversed([sum(column) for column in zip(*own, strict=True)])

    classes = sorted(set(codes), key=size_and_sums)
    draw = np.random.default_rng(seed)
    means = []
    for _ in range(intervals.DRAWS):
        rows = []
        for c in draw.integers(len(classes), size=len(classes)):
            rows += [i for i, code in enumerate(codes) if code == classes[c]]
        means.append([sum(values[i][s] for i in rows) / len(rows) for s in range(len(values[0]))])
    return [np.quantile([mean[s] for mean in means], [0.025, 0.975]) for s in range(len(values[0]))]


@pytest.mark.parametrize("at_once", [1, 50, 2**21])
def test_it_is_the_loop_over_draws_of_whole_classes(monkeypatch, at_once):
    monkeypatch.setattr(intervals, "DRAWS", 60)
    monkeypatch.setattr(intervals, "_AT_ONCE", at_once)
    draw = torch.Generator().manual_seed(0)
    codes = torch.tensor([7, 7, 7, 3, 3, 9, 12, 12, 12, 12])
    values = torch.rand(10, 2, generator=draw)
    found = class_intervals(values, codes, seed=4)
    expected = loop(values.double().tolist(), codes.tolist(), 4)
    np.testing.assert_allclose(found, expected, atol=EXACT)


@given(seed=st.integers(0, 2**20))
def test_order_of_queries_names_of_classes_and_a_scale_do_not_matter(seed):
    draw = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 5, (30,), generator=draw)
    values = torch.rand(30, 1, generator=draw, dtype=torch.float64)
    ((low, high),) = class_intervals(values, codes)
    order = torch.randperm(30, generator=draw)
    names = torch.randperm(5, generator=draw)
    shuffled = class_intervals(2 * values[order] + 1, names[codes[order]])
    np.testing.assert_allclose(shuffled, [(2 * low + 1, 2 * high + 1)], atol=EXACT)
    assert values.min() <= low <= high <= values.max()


def test_it_covers_the_mean_of_all_classes_about_as_often_as_it_says():
    draw = np.random.default_rng(0)
    covered = 0
    for seed in range(200):
        # Classes differ: each has a rate of its own, .6 on average, and 10 queries.
        rates = draw.beta(3, 2, 60)
        hits = torch.from_numpy((draw.random((60, 10)) < rates[:, None]).astype(float))
        ((low, high),) = class_intervals(hits.reshape(-1, 1), torch.arange(600) // 10, seed)
        covered += low <= 0.6 <= high
    # Of 200 at 95 %: 190, with a deviation of 3; percentiles of 60 classes are a little narrow.
    assert 180 <= covered <= 199
    # Of queries drawn one by one it would be narrower than the classes allow.
    by_query = class_intervals(hits.reshape(-1, 1), torch.arange(600))[0]
    assert high - low > 1.1 * (by_query[1] - by_query[0])


def test_one_class_has_no_interval():
    assert all(map(math.isnan, class_intervals(torch.ones(4, 1), torch.zeros(4).long())[0]))


def test_evaluate_gives_the_intervals_of_its_own_numbers():
    draw = torch.Generator().manual_seed(1)
    labels = torch.arange(60) // 6
    points = torch.randn(10, 8, generator=draw)[labels] + torch.randn(60, 8, generator=draw)
    metrics = evaluate(points, labels, ks=(1, 2), clustering=False, seed=3)
    similar = torch.nn.functional.normalize(points) @ torch.nn.functional.normalize(points).T
    nearest = similar.fill_diagonal_(-2).argmax(1)
    hits = (labels[nearest] == labels).double()[:, None]
    expected = class_intervals(hits, labels, seed=3)[0]
    assert (metrics.recall_at_1_low, metrics.recall_at_1_high) == pytest.approx(expected)
    assert metrics.recall_at_1_low < metrics.recall_at_k[1] < metrics.recall_at_1_high
    assert metrics.map_at_r_low < metrics.map_at_r < metrics.map_at_r_high
    low, high = 100 * metrics.recall_at_1_low, 100 * metrics.recall_at_1_high
    lines = metrics.table().splitlines()
    assert lines[0].endswith(f"% ({low:.2f}–{high:.2f})")
    assert "–" not in lines[1]
    assert lines[2].startswith("MAP@R")
    assert "–" in lines[2]
    assert metrics.as_dict()["recall_at_1_low"] == metrics.recall_at_1_low
    alone = evaluate(points[:6], labels[:6], ks=1, clustering=False)
    assert alone.as_dict()["map_at_r_high"] is None
    assert "–" not in alone.table()
