"""Copies: hand-made ones, planted ones, and none where there are none."""

import numpy as np
import pytest
import torch

from bspml.auditing.duplicates import (
    COLUMNS,
    _inverse_dimension,
    _largest_volume,
    _pair_volumes,
    find_duplicates,
)
from bspml.evaluation.neighbours import unit_rows


def found(embeddings, codes=None, **options):
    codes = np.zeros(len(embeddings), np.int64) if codes is None else np.asarray(codes)
    return find_duplicates(unit_rows(torch.as_tensor(np.asarray(embeddings))), codes, **options)


def test_rows_of_equal_direction_are_exact_copies_whatever_their_length():
    table = found([[1.0, 0], [0, 1], [2, 0], [3, 0], [0, 0], [0, 0]], [0, 0, 0, 1, 0, 1])
    assert tuple(table.columns) == COLUMNS
    rows = table.to_dict("records")
    # 0, 2 and 3 are one group; the pair under different labels comes first.  Zero rows have no
    # direction, so they are no copies.
    assert [(r["kind"], r["first"], r["second"], r["different_label"]) for r in rows] == [
        ("exact", 0, 3, True),
        ("exact", 0, 2, False),
    ]
    assert {r["group"] for r in rows} == {0}
    assert {r["similarity"] for r in rows} == {1.0}


def test_minus_zero_is_zero():
    assert len(found([[1.0, -0.0], [1.0, 0.0], [0.0, 1.0]])) == 1


@pytest.mark.parametrize("backend", ["faiss", "torch"])
def test_planted_near_copies_are_found_and_little_else(backend):
    rng = np.random.default_rng(0)
    originals = rng.standard_normal((1500, 12))
    copies = originals[:40] + 0.05 * rng.standard_normal((40, 12))
    codes = np.concatenate([rng.integers(0, 50, 1500), np.full(40, 50)])
    table = found(np.concatenate([originals, copies]), codes, backend=backend)
    assert set(table["kind"]) == {"near"}
    pairs = set(zip(table["first"], table["second"], strict=True))
    planted = {(i, 1500 + i) for i in range(40)}
    assert len(pairs & planted) >= 38
    assert len(pairs - planted) <= 40  # half of those listed may be chance
    assert table["similarity"].is_monotonic_decreasing or table["different_label"].any()


def test_gaussian_samples_have_hardly_a_copy():
    rng = np.random.default_rng(1)
    counts = [len(found(rng.standard_normal((800, d)))) for d in (3, 8, 30)]
    assert sum(counts) <= 2


def test_density_does_not_decide_what_a_copy_is():
    # A cloud a thousand times denser than the other: neighbours there are near, not copies.
    rng = np.random.default_rng(2)
    wide = rng.standard_normal((400, 8))
    dense = np.ones(8) + 0.001 * rng.standard_normal((400, 8))
    copy = wide[:1] + 0.01 * rng.standard_normal((1, 8))
    table = found(np.concatenate([wide, dense, copy]))
    assert (0, 800) in set(zip(table["first"], table["second"], strict=True))
    assert len(table) <= 24  # by similarity alone the whole dense cloud would be here


def test_three_copies_of_a_sample_share_a_group():
    rng = np.random.default_rng(3)
    originals = rng.standard_normal((300, 10))
    copies = np.repeat(originals[:1], 2, 0) + 0.01 * rng.standard_normal((2, 10))
    table = found(np.concatenate([originals, copies]))
    groups = {frozenset((r["first"], r["second"])): r["group"] for r in table.to_dict("records")}
    trio = [frozenset(p) for p in ((0, 300), (0, 301), (300, 301))]
    assert len({groups[pair] for pair in trio}) == 1


def test_order_of_samples_only_renames_pairs():
    rng = np.random.default_rng(4)
    x = rng.standard_normal((300, 6))
    x[200:220] = x[:20] + 0.02 * rng.standard_normal((20, 6))
    codes = rng.integers(0, 5, 300)
    order = rng.permutation(300)
    plain, shuffled = found(x, codes), found(x[order], codes[order])
    as_sets = [
        {frozenset(p) for p in zip(plain["first"], plain["second"], strict=True)},
        {
            frozenset((int(order[a]), int(order[b])))
            for a, b in zip(shuffled["first"], shuffled["second"], strict=True)
        },
    ]
    assert as_sets[0] == as_sets[1]
    assert len(plain) > 0


def test_few_or_evenly_spaced_samples_have_no_near_copies():
    rng = np.random.default_rng(5)
    assert len(found(rng.standard_normal((8, 3)))) == 0
    assert len(found(np.eye(40))) == 0  # all distances equal
    angle = np.linspace(0, 6, 200)
    assert len(found(np.stack([np.cos(angle), np.sin(angle)], 1))) == 0
    assert len(found(np.zeros((3, 2)))) == 0


def test_dimension_of_uniform_samples_is_told_right():
    # Uniform on the circle: squared distance grows like rank squared, so h = m / 2 = 1 / 2.
    rng = np.random.default_rng(6)
    angle = np.sort(rng.uniform(0, 2 * np.pi, 4000))
    gaps = np.abs(angle[:, None] - angle[None, ::40])  # every 40th sample against all
    gaps = np.sort(np.minimum(gaps, 2 * np.pi - gaps), 0)[1:31].T
    inverse = _inverse_dimension(1 - np.cos(gaps))
    assert 1 / inverse.mean() == pytest.approx(0.5, rel=0.15)


def test_volume_of_a_pair_worked_by_hand():
    # Squared distances of both samples: 1 to the other, 2 to the second, 4 up to the fifth and 16
    # beyond.  Hill: spacings log 4 + 0 (the fifth against the seventh; the sixth is its equal), so
    # 1/h = (log 4 + 4 log 4) / 2 = 2.5 log 4.  log(4 / 2) / (2.5 log 4) = 0.2 must be 0.95277, the
    # median of -log Beta(2, 3), so 1/h becomes 2.5 log 4 * 0.2 / 0.95277, and
    # log v = -log 4 * h = -1.9055.
    squared = np.array([[1.0, 2, 4, 4, 4, 16, 16]] * 2)
    places = np.array([[1, 0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1, 1]])
    pairs, ratio, v = _pair_volumes(places, squared)
    pair = pairs.tolist().index([0, 1])
    assert ratio[pair] == 0.25
    assert np.log(v[pair]) == pytest.approx(-1.9055, abs=5e-4)


def test_threshold_worked_by_hand():
    # 100 samples; by chance up to v there are 50 (1 - (1 - v)^4) pairs: 29.52 up to .2, 17.195 up
    # to .1.  Three pairs between give kappa = 4 / 12.325 = 0.32454; up to .01 0.6394 chance pairs,
    # up to .04 2.446.  At half: .01 is the second pair (0.639 <= 1), .04 the third (2.446 > 1.5).
    v = np.array([0.15, 0.12, 0.18, 0.001, 0.04, 0.01, 0.9])
    assert _largest_volume(v, 100, 0.5) == 0.01
    assert _largest_volume(v, 100, 0.9) == 0.04
    assert _largest_volume(v, 100, 0.01) == -1
