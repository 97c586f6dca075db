"""The compiled sums over p against scipy's softmax, label by label."""

import numpy as np
import pytest
from scipy.special import softmax

from bspml.statistics import label_terms as module
from bspml.statistics.label_pairs import STRENGTH, Pairs, nobody
from bspml.statistics.label_terms import added_counts, alternatives, label_terms, leads

M, CLASSES = 30, 7
STARTS, SOURCES = np.array([0, 2, 2, 5, 5, 5, 6, 7]), np.array([3, 6, 0, 1, 5, 2, 4])


@pytest.fixture(params=["few", "many"])
def rounding(request, monkeypatch):
    """Of a sum over p, which is formed in float64 for few labels, and in float32 for many."""
    if request.param == "many":
        monkeypatch.setattr(module, "EXACT", 0)
    return {"few": 1e-13, "many": 2e-6}[request.param]


def case(dtype=np.float64, spread=5.0):
    rng = np.random.default_rng(0)
    tables = [spread * rng.standard_normal((M, CLASSES)) for _ in range(2)]
    tables = [(t - t.max(1, keepdims=True)).astype(np.float32).astype(dtype) for t in tables]
    tables[0][3, 2] = -1e7  # a class without references
    slopes, codes = np.array([0.7, 1.9]), rng.integers(0, CLASSES, M)
    p = softmax(sum(b * t.astype(float) for b, t in zip(slopes, tables, strict=True)), 1)
    shares, beyond = rng.random(len(SOURCES)), rng.normal(size=len(SOURCES))
    counts = rng.choice([0.0, 0.3, 2.5], len(SOURCES))
    totals = np.bincount(SOURCES, counts, CLASSES)
    return tables, slopes, codes, Pairs(STARTS, SOURCES, shares, beyond, counts, totals), p


def taken_for(pairs, e, less):
    """Q_i(y, z) of a pair, as the module has it."""
    less = min(less, pairs.counts[e])
    rest = pairs.totals[SOURCES[e]] - less + STRENGTH
    return (pairs.counts[e] - less + STRENGTH * pairs.shares[e]) / rest


def left_out(p, pairs, z, u, k):
    """What a label z adds to its pairs, by bisection; p (C,)."""
    places = range(STARTS[z], STARTS[z + 1])
    added = dict.fromkeys(places, 0.0)
    for _ in range(6):
        q = {e: taken_for(pairs, e, added[e]) for e in places}
        likely = (1 - u - k) * p[z] + u / CLASSES + k * sum(p[SOURCES[e]] * q[e] for e in places)
        for e in places:
            new = p[SOURCES[e]] * (max(u, 0.01) / CLASSES + k * q[e]) / likely
            added[e] = (added[e] + min(1.0, new)) / 2
    return list(added.values())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [0.1, 5.0, 300.0])
def test_the_terms_are_their_definitions(dtype, spread, rounding):
    tables, slopes, codes, pairs, p = case(dtype, spread)
    sizes = np.diff(STARTS)[codes]
    added = np.random.default_rng(1).random(sizes.sum())
    own_added = np.split(added, np.cumsum(sizes)[:-1])
    found = label_terms(tables, slopes, codes, pairs, added)
    rel = rounding * max(1, spread)  # logits are rounded to their last digits, too
    for i, z in enumerate(codes):
        places = range(STARTS[z], STARTS[z + 1])
        less = dict(zip(places, own_added[i], strict=True))
        routed = {SOURCES[e]: p[i, SOURCES[e]] * taken_for(pairs, e, less[e]) for e in places}
        assert found.own[i] == pytest.approx(p[i, z], rel=rel, abs=1e-290)
        assert found.largest[i] == pytest.approx(p[i].max(), rel=rel)
        assert found.g[i] == pytest.approx(sum(routed.values()), rel=rel, abs=1e-35)
        by_distance = pairs._replace(counts=0 * pairs.counts)
        tilt = 0.0
        for e in places:
            rest = pairs.totals[SOURCES[e]] - min(less[e], pairs.counts[e]) + STRENGTH
            tilt += p[i, SOURCES[e]] * STRENGTH * by_distance.shares[e] / rest * pairs.beyond[e]
        assert found.tilt[i] == pytest.approx(tilt, rel=rel, abs=1e-35)
        for j, table in enumerate(tables):
            assert found.expected[j, i] == pytest.approx(p[i] @ table[i], rel=rel, abs=1e-9)
            expected = sum(share * table[i, y] for y, share in routed.items())
            assert found.routed[j, i] == pytest.approx(expected, rel=rel, abs=1e-30)


@pytest.mark.parametrize("errors", [(0.2, 0.3), (0.0, 0.4), (0.0, 0.0)])
def test_a_label_adds_the_probability_that_it_is_this_error(errors, rounding):
    tables, slopes, codes, pairs, p = case(spread=1.0)
    found = added_counts(tables, slopes, codes, pairs, (*errors, CLASSES))
    expected = [left_out(p[i], pairs, z, *errors) for i, z in enumerate(codes)]
    assert found == pytest.approx(np.concatenate(expected), rel=5 * rounding)
    assert found.max() <= 1


@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.03, 0.4)])
@pytest.mark.parametrize("counted", [False, True])
def test_the_alternative_is_the_best_other_class(shares, counted, rounding):
    tables, slopes, codes, pairs, p = case(spread=1.0)
    if not counted:
        pairs = pairs._replace(counts=0 * pairs.counts, totals=0 * pairs.totals)
    errors = (0.1, 0.3)
    found = alternatives(tables, slopes, codes, pairs, shares, (*errors, CLASSES))
    for i, z in enumerate(codes):
        score = shares[0] * p[i]
        less = left_out(p[i], pairs, z, *errors)
        for e, own in zip(range(STARTS[z], STARTS[z + 1]), less, strict=True):
            score[SOURCES[e]] += shares[1] * p[i, SOURCES[e]] * taken_for(pairs, e, own)
        score[z] = -1
        assert found.best[i] == score.argmax()
        assert found.value[i] == pytest.approx(score.max(), rel=5 * rounding)
        assert found.total[i] == pytest.approx(score.sum() + 1, rel=5 * rounding)
        assert found.shown[i] == pytest.approx(p[i, found.best[i]], rel=rounding)
        assert found.own[i] == pytest.approx(p[i, z], rel=rounding)
        assert found.others[i] == pytest.approx(np.delete(p[i], z).sum(), rel=rounding)


def test_the_lead_is_to_the_second_largest():
    table = np.random.default_rng(1).standard_normal((20, 5)).round(1)
    ordered = np.sort(table, 1)
    assert leads(table) == pytest.approx(ordered[:, -1] - ordered[:, -2])


def test_what_is_nearly_sure_keeps_its_digits(rounding):
    tables = [np.array([[0.0, -40.0, -60.0]]), np.zeros((1, 3))]
    found = alternatives(tables, np.ones(2), np.array([0]), nobody(3).pairs(1.0), (1.0, 0.0))
    assert found.others[0] == pytest.approx(np.exp(-40) + np.exp(-60), rel=rounding)
    assert found.own[0] == 1
