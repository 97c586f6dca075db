"""Class flags: statistics against brute force, planted merges and splits, laws."""

from functools import partial
from itertools import combinations

import numpy as np
import pytest
import torch

from bspml.auditing.classes import (
    _distance,
    _Draws,
    _exchange_p,
    _most_frequent,
    _mutual,
    _row_keys,
    _two_means,
    examine_classes,
)
from bspml.tensors.unit_rows import grid_unit_rows
from helpers.draws import clouds as clouds_of

clouds = partial(clouds_of, classes=40, each=16, dim=12, spread=0.25)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def examine(x, codes, kept=None, seed=0):
    """Findings with the best other class by mean similarity."""
    rows = grid_unit_rows(torch.from_numpy(np.asarray(x, np.float64)))
    classes = int(codes.max()) + 1
    sums = np.stack([rows.double().numpy()[codes == c].mean(0) for c in range(classes)])
    similar = rows.double().numpy() @ sums.T
    similar[np.arange(len(codes)), codes] = -9
    kept = np.ones(len(codes), bool) if kept is None else kept
    return examine_classes(rows, codes, kept, similar.argmax(1), classes, seed)


def test_two_means_finds_the_best_of_all_partitions(rng):
    x = np.concatenate([rng.standard_normal((5, 3)), rng.standard_normal((4, 3)) + 3])
    x -= x.mean(0)
    best = max(
        sum(len(s) * (x[list(s)].mean(0) ** 2).sum() for s in (side, set(range(9)) - set(side)))
        for size in range(1, 5)
        for side in combinations(range(9), size)
    )
    share, half = _two_means(torch.from_numpy(x @ x.T)[None])
    assert float(share[0]) == pytest.approx(best / (x**2).sum(), rel=1e-9)
    assert half[0].sum() in (4, 5)


def test_distance_is_the_mean_over_pairs(rng):
    x = rng.standard_normal((9, 4))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    a, b = x[:4], x[4:]

    def mean(pairs):
        return np.mean([u @ v for u, v in pairs])

    slow = mean(combinations(a, 2)) + mean(combinations(b, 2))
    slow -= 2 * mean((u, v) for u in a for v in b)
    fast = _distance(torch.from_numpy(a.sum(0)), 4, torch.from_numpy(b.sum(0)), 5)
    assert fast == pytest.approx(slow, abs=1e-12)


def test_exchange_p_agrees_with_all_exchanges(rng):
    x = rng.standard_normal((10, 3))
    x[5:] += 0.6
    rows = grid_unit_rows(torch.from_numpy(x))
    exact = rows.double()

    def distance(side):
        rest = [i for i in range(10) if i not in side]
        return _distance(exact[list(side)].sum(0), 5, exact[rest].sum(0), 5)

    given = distance(range(5))
    everything = np.mean([distance(s) >= given - 1e-12 for s in combinations(range(10), 5)])
    p = _exchange_p(rows, np.arange(5), np.arange(5, 10), _Draws(0))
    assert p == pytest.approx(everything, abs=4 * np.sqrt(0.25 / 400))


def test_the_given_exchange_counts_itself():
    # Two tight bundles of ten: of 92,378 exchanges only the given one separates them as well.
    bundle = [[1.0, 0.001 * i] for i in range(10)]
    rows = grid_unit_rows(torch.tensor(bundle + [[y, x] for x, y in bundle]))
    assert _exchange_p(rows, np.arange(10), np.arange(10, 20), _Draws(0)) == 1 / 400


def test_looking_the_same_is_mutual():
    # 0 looks like 1, whose nearest is 2 and different; 3 looks like 1 as well, but 0 is nearer.
    same = np.array([True, False, False, True])
    nearest = np.array([1, 2, 1, 1])
    distance = np.array([0.1, 0.9, 0.9, 0.2])
    assert _mutual(same, nearest, distance).tolist() == [1, 0, -1, 1]


def test_merged_classes_look_like_two_and_split_ones_like_one(rng):
    x, codes = clouds(rng)
    given = codes.copy()
    for a, b in ((0, 1), (2, 3), (4, 5)):
        given[codes == b] = a
    given[np.flatnonzero(codes == 10)[::2]] = 1
    given[np.flatnonzero(codes == 11)[::2]] = 3
    given = np.unique(given, return_inverse=True)[1]
    names = [0, 1, 2, 3, 4, *range(6, 40)]  # new code -> old
    found = examine(x, given)
    merged = [names.index(c) for c in (0, 2, 4)]
    assert found.looks_like_two[merged].all()
    assert found.looks_like_two.sum() <= 4
    halves = [names.index(c) for c in (10, 1, 11, 3)]
    assert found.looks_like[halves].tolist() == [halves[1], halves[0], halves[3], halves[2]]
    assert (found.looks_like >= 0).sum() <= 6


def test_left_out_samples_do_not_count(rng):
    x, codes = clouds(rng, classes=10)
    strangers = np.flatnonzero(codes == 1)
    given = codes.copy()
    given[strangers[:8]] = 0
    assert examine(x, given).looks_like_two[0]
    kept = np.ones(len(codes), bool)
    kept[strangers[:8]] = False
    assert not examine(x, given, kept).looks_like_two[0]


def test_renaming_classes_renames_the_findings(rng):
    x, codes = clouds(rng, classes=12, spread=0.45)
    new = rng.permutation(12)
    plain, renamed = examine(x, codes), examine(x, new[codes])
    assert renamed.two_score[new] == pytest.approx(plain.two_score, rel=1e-9)
    assert (renamed.same_p[new] == plain.same_p).all()
    assert (renamed.nearest[new] == new[plain.nearest]).all()


def test_small_and_constant_classes_get_no_answer(rng):
    x = np.concatenate([rng.standard_normal((4, 3)), np.ones((9, 3)), rng.standard_normal((9, 3))])
    found = examine(x, np.repeat([0, 1, 2], [4, 9, 9]))
    assert np.isnan(found.two_score[0])
    assert np.isnan(found.same_p[0])
    assert found.two_score[1] == -np.inf
    assert not found.looks_like_two.any() or not found.looks_like_two[:2].any()
    assert found.looks_like[0] == -1


def test_most_frequent_other_class_by_hand():
    codes = np.array([0, 0, 0, 1, 1, 2])
    other = np.array([2, 1, 2, 2, 0, -1])
    # Of class 1's one vote each, that of the lower key counts; class 2 has none.
    keys = np.array([0.9, 0.9, 0.9, 0.4, 0.5, 0.0])
    assert _most_frequent(codes, other, keys[:, None], 3).tolist() == [2, 2, -1]
    assert _most_frequent(codes, other, 1 - keys[:, None], 3).tolist() == [2, 0, -1]


def test_large_classes_are_sampled(rng):
    x, codes = clouds(rng, classes=3, each=400, dim=6)
    codes[codes == 1] = 0
    found = examine(x, np.unique(codes, return_inverse=True)[1])
    assert found.looks_like_two.tolist() == [True, False]


def test_the_order_of_samples_changes_nothing(rng):
    # Classes larger than what is looked at, overlapping, so that another choice is another answer.
    x, codes = clouds(rng, classes=4, each=300, dim=6, spread=0.6)
    codes[codes == 3] = rng.integers(0, 4, (codes == 3).sum())
    plain = examine(x, codes)
    for _ in range(3):
        order = rng.permutation(len(codes))
        found = examine(x[order], codes[order])
        assert found.two_score == pytest.approx(plain.two_score, rel=1e-9)
        assert found.same_p.tolist() == plain.same_p.tolist()
        assert found.nearest.tolist() == plain.nearest.tolist()
        assert found.looks_like.tolist() == plain.looks_like.tolist()


def test_the_scale_of_float32_rows_changes_hardly_anything(rng):
    x, codes = clouds(rng, classes=4, each=300, dim=6, spread=0.6)
    x = x.astype(np.float32)
    plain, scaled = examine(x, codes), examine(x * np.float32(7.3), codes)
    assert scaled.two_score == pytest.approx(plain.two_score, abs=0.1)
    assert scaled.looks_like_two.tolist() == plain.looks_like_two.tolist()
    assert scaled.nearest.tolist() == plain.nearest.tolist()


def test_many_copies_of_few_rows_are_drawn_from_evenly():
    x = np.repeat(np.eye(3), 200, 0)
    keys = _row_keys(torch.from_numpy(x).float(), 0)
    assert len(np.unique(keys)) == 600
    drawn = np.bincount(np.argsort(keys)[:128] // 200, minlength=3)
    assert drawn.min() > 35
    assert examine(x, np.repeat([0, 0, 1], 200)).looks_like_two.tolist() == [True, False]


def test_keys_are_uniform_and_know_nothing_of_place(rng):
    rows = grid_unit_rows(torch.from_numpy(rng.standard_normal((4000, 8))))
    keys = _row_keys(rows, 0)
    assert np.histogram(keys, 10, (0, 1))[0] == pytest.approx(400, abs=90)
    assert np.abs(np.corrcoef(keys, rows.numpy().T)[0, 1:]).max() < 0.06
    order = rng.permutation(4000)
    assert (_row_keys(rows[order], 0) == keys[order]).all()
    assert not (_row_keys(rows, 1) == keys).any()


def test_both_of_a_pair_are_compared_alike(rng):
    x, codes = clouds(rng, classes=6, each=40)
    halves = np.flatnonzero(codes == 5)[::2]
    codes[halves] = 6
    found = examine(x, codes)
    assert found.looks_like[[5, 6]].tolist() == [6, 5]
    assert found.same_p[5] == found.same_p[6]
