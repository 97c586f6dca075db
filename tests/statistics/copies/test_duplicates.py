"""Copies: hand-made ones, planted ones, and none where there are none."""

import numpy as np
import pandas as pd
import pytest
import torch

from bspml.auditing.picture_hashes import PictureHashes
from bspml.statistics.copies.duplicates import (
    COLUMNS,
    _inverse_dimension,
    _largest_volume,
    _pair_volumes,
    find_duplicates,
)
from bspml.statistics.copies.nearest import Nearest, nearest_rows
from bspml.tensors.unit_rows import grid_unit_rows


def found(embeddings, codes=None, **options):
    codes = np.zeros(len(embeddings), np.int64) if codes is None else np.asarray(codes)
    return find_duplicates(
        grid_unit_rows(torch.as_tensor(np.asarray(embeddings))), codes, **options
    )


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


def test_classmates_of_small_classes_are_no_copies():
    # Of two members each, far from everybody else: the fifth neighbour is much further than the
    # first, but so it is for everybody.
    rng = np.random.default_rng(8)
    centres = np.repeat(rng.standard_normal((300, 64)), 2, 0)
    x = centres + 0.7 * rng.standard_normal((600, 64))
    x[599] = x[0] + 0.1 * rng.standard_normal(64)
    table = found(x, np.arange(600) // 2)
    assert (0, 599) in set(zip(table["first"], table["second"], strict=True))
    assert len(table) <= 3


def test_small_classes_among_large_ones_are_no_copies():
    # Members of a pair are as near to each other as members of the large classes are, and lonelier.
    rng = np.random.default_rng(9)
    sizes = np.repeat([20, 2], [40, 60])
    codes = np.repeat(np.arange(100), sizes)
    x = rng.standard_normal((100, 64))[codes] + 0.5 * rng.standard_normal((len(codes), 64))
    x[-1] = x[0] + 0.1 * rng.standard_normal(64)
    table = found(x, codes)
    assert (0, len(x) - 1) in set(zip(table["first"], table["second"], strict=True))
    assert len(table) <= 10


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


@pytest.mark.parametrize(("second", "log_v"), [(2.0, -1.83821), (1.5, -1.34643)])
def test_volume_of_a_pair_worked_by_hand(second, log_v):
    # Squared distances of both samples: 1 to the other, 4 up to the fifth and 16 beyond.  Hill:
    # spacings log 4 + 0 (the fifth against the seventh; the sixth is its equal), so
    # 1/h = (log 4 + 4 log 4) / 2 = 2.5 log 4.  The medians of -log Beta(1, 4) and -log Beta(2, 3)
    # are 1.83821 and 0.95262.  log(4 / 1) h = 0.4 asks for a scale of 0.4 / 1.83821 = 0.21760;
    # log(4 / 2) h = 0.2 for 0.20995, log(4 / 1.5) h = 0.28301 for 0.29708.  The larger counts:
    # log v = -0.4 / 0.21760, or -0.4 / 0.29708.
    squared = np.array([[1.0, second, 4, 4, 4, 16, 16]] * 2)
    places = np.array([[1, 0, 0, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1, 1]])
    pairs, delta, v = _pair_volumes(Nearest(places, squared))
    pair = pairs.tolist().index([0, 1])
    assert delta[pair] == 1
    assert np.log(v[pair]) == pytest.approx(log_v, abs=1e-4)


def test_dimensions_of_two_samples_worked_by_hand():
    # Tails 4, 16, 16 and 4, 4, 16: 1/h = (1 + 0 + 4) log 4 / 2 and (1 + 1 + 4) log 4 / 2.  Drawn
    # towards their median 2.75 log 4, worth 10 neighbours beside 2: (2 * 2.5 + 27.5) / 12 and
    # (2 * 3 + 27.5) / 12, and the common scale leaves their ratio.
    squared = np.array([[1.0, 2, 3, 3.5, 4, 16, 16], [1.0, 2, 3, 3.5, 4, 4, 16]])
    inverse = _inverse_dimension(squared)
    assert inverse[0] / inverse[1] == pytest.approx(32.5 / 33.5, rel=1e-12)


def test_threshold_worked_by_hand():
    # 100 samples; by chance up to v there are 50 (1 - (1 - v)^4) pairs: 29.52 up to .2, 17.195 up
    # to .1.  Three pairs between give kappa = 4 / 12.325 = 0.32454; up to .01 0.6394 chance pairs,
    # up to .04 2.446.  At half: .01 is the second pair (0.639 <= 1), .04 the third (2.446 > 1.5).
    v = np.array([0.15, 0.12, 0.18, 0.001, 0.04, 0.01, 0.9])
    assert _largest_volume(v, 100, 0.5) == 0.01
    assert _largest_volume(v, 100, 0.9) == 0.04
    assert _largest_volume(v, 100, 0.01) == -1


# --- many copies ----------------------------------------------------------------------------------


def classes_of_ten(seed, dimension=32):
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(20), 10)
    centres = 3 * rng.standard_normal((20, dimension))
    return centres[codes] + rng.standard_normal((200, dimension)), codes


def jittered(x, codes, chosen, copies, seed):
    """`x`, then near copies of the chosen rows; labels; the row each comes from."""
    rng = np.random.default_rng(seed)
    origin = np.concatenate([np.arange(len(x)), np.tile(chosen, copies)])
    y = x[origin]
    y[len(x) :] += 0.05 * rng.standard_normal((len(y) - len(x), x.shape[1]))
    return y, codes[origin], origin


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("copies", [1, 4, 9])
def test_any_share_of_rows_may_have_copies(share, copies):
    x, codes = classes_of_ten(10)
    chosen = np.random.default_rng(11).permutation(200)[: int(200 * share)]
    y, labels, origin = jittered(x, codes, chosen, copies, 12)
    table = found(y, labels)
    is_true = origin[table["first"]] == origin[table["second"]]
    planted = len(chosen) * copies * (copies + 1) // 2
    assert is_true.sum() >= 0.95 * planted
    assert (~is_true).sum() <= 1


@pytest.mark.parametrize("members", [3, 5, 10, 40])
@pytest.mark.parametrize("dimension", [3, 32, 256])
def test_clean_classes_have_hardly_a_copy(members, dimension):
    rng = np.random.default_rng(13)
    codes = np.repeat(np.arange(max(20, 300 // members)), members)
    x = 3 * rng.standard_normal((codes[-1] + 1, dimension))[codes]
    x += rng.standard_normal(x.shape)
    wrong = rng.random(len(codes)) < 0.2
    codes[wrong] = rng.integers(0, codes[-1] + 1, wrong.sum())
    assert len(found(x, codes)) <= 3


def test_known_neighbours_change_nothing():
    x, codes = classes_of_ten(14)
    x[150:160] = x[0]  # exact copies fill the lists of known neighbours
    y, labels, _ = jittered(x, codes, np.arange(0, 200, 2), 1, 15)
    rows = grid_unit_rows(torch.as_tensor(y))
    near = nearest_rows(rows, 35)
    plain, known = find_duplicates(rows, labels), find_duplicates(rows, labels, near=near)
    pd.testing.assert_frame_equal(plain, known)
    doubled = Nearest(near.places, 2 * near.squared)  # any multiple of squared distances
    pd.testing.assert_frame_equal(plain, find_duplicates(rows, labels, near=doubled))


def test_pictures_add_pairs_that_embeddings_do_not_show():
    x, codes = classes_of_ten(16)
    x[5], x[20] = x[4], 0  # an exact pair stays exact; a row of norm 0 has a picture, too
    rng = np.random.default_rng(17)
    bits = rng.integers(0, 2**63, (200, 8, 4), dtype=np.uint64)
    bits[[5, 20, 150]] = bits[[4, 190, 1]]
    pictures = PictureHashes(bits, np.ones(200, bool))
    table = found(x, codes, pictures=pictures)
    pairs = set(zip(table["kind"], table["first"], table["second"], strict=True))
    assert pairs == {("exact", 4, 5), ("near", 20, 190), ("near", 1, 150)}


def test_pictures_somewhat_alike_are_copies_only_where_neighbours_are_nearer_than_usual():
    x, codes = classes_of_ten(16)
    x[151] = x[150] + 0.6 * (x[151] - x[150])  # nearer than neighbours are, no near copy by itself
    asked = []

    class Pictures:
        def pairs(self, near):
            asked.append({tuple(sorted(pair)) for pair in near.tolist()})
            return near

    table = found(x, codes, pictures=Pictures())
    rows = x / np.linalg.norm(x, axis=1, keepdims=True)
    squared = 2 - 2 * rows @ rows.T + np.diag([9.0] * len(rows))
    order = np.argsort(squared, 1)
    usual = np.median(squared.min(1)[order[:, :10]], 1)
    expected = {
        tuple(sorted((i, int(order[i, 0]))))
        for i in range(len(rows))
        if squared[i].min() <= 0.8 * min(usual[i], usual[order[i, 0]])
    }
    assert asked == [expected]
    assert 0 < len(expected) < len(rows) / 4
    assert expected <= set(zip(table["first"], table["second"], strict=True))
