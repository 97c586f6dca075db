"""The compiled sums over p against scipy's softmax, label by label."""

import numpy as np
import pytest
from scipy.special import softmax

from bspml.statistics.label_terms import alternatives, label_terms, leads, pair_shares

M, CLASSES = 30, 7
ROUNDING = 2e-6  # of a sum over p, which is formed in float32
STARTS, SOURCES = np.array([0, 2, 2, 5, 5, 5, 6, 7]), np.array([3, 6, 0, 1, 5, 2, 4])


def case(dtype=np.float64, spread=5.0):
    rng = np.random.default_rng(0)
    tables = [spread * rng.standard_normal((M, CLASSES)) for _ in range(2)]
    tables = [(t - t.max(1, keepdims=True)).astype(np.float32).astype(dtype) for t in tables]
    tables[0][3, 2] = -1e7  # a class without references
    slopes, codes = np.array([0.7, 1.9]), rng.integers(0, CLASSES, M)
    p = softmax(sum(b * t.astype(float) for b, t in zip(slopes, tables, strict=True)), 1)
    return tables, slopes, codes, rng.random(len(SOURCES)), rng.normal(size=len(SOURCES)), p


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [0.1, 5.0, 300.0])
def test_the_terms_are_their_definitions(dtype, spread):
    tables, slopes, codes, taken, values, p = case(dtype, spread)
    found = label_terms(tables, slopes, codes, (STARTS, SOURCES, taken, values))
    rel = ROUNDING * max(1, spread)  # logits are rounded to their last digits, too
    for i, z in enumerate(codes):
        pairs = range(STARTS[z], STARTS[z + 1])
        routed = {SOURCES[e]: p[i, SOURCES[e]] * taken[e] for e in pairs}
        assert found.own[i] == pytest.approx(p[i, z], rel=rel, abs=1e-290)
        assert found.largest[i] == pytest.approx(p[i].max(), rel=rel)
        assert found.g[i] == pytest.approx(sum(routed.values()), rel=rel, abs=1e-35)
        tilt = sum(p[i, SOURCES[e]] * taken[e] * values[e] for e in pairs)
        assert found.tilt[i] == pytest.approx(tilt, rel=rel, abs=1e-35)
        for j, table in enumerate(tables):
            assert found.expected[j, i] == pytest.approx(p[i] @ table[i], rel=rel, abs=1e-9)
            expected = sum(share * table[i, y] for y, share in routed.items())
            assert found.routed[j, i] == pytest.approx(expected, rel=rel, abs=1e-30)


@pytest.mark.parametrize("shares", [(1.0, 0.0), (0.03, 0.4)])
def test_the_alternative_is_the_best_other_class(shares):
    tables, slopes, codes, taken, _, p = case(spread=1.0)
    found = alternatives(tables, slopes, codes, (STARTS, SOURCES, taken), shares)
    for i, z in enumerate(codes):
        score = shares[0] * p[i]
        for e in range(STARTS[z], STARTS[z + 1]):
            score[SOURCES[e]] += shares[1] * p[i, SOURCES[e]] * taken[e]
        score[z] = -1
        assert found.best[i] == score.argmax()
        assert found.value[i] == pytest.approx(score.max(), rel=ROUNDING)
        assert found.total[i] == pytest.approx(score.sum() + 1, rel=ROUNDING)
        assert found.shown[i] == pytest.approx(p[i, found.best[i]], rel=ROUNDING)
        assert found.own[i] == pytest.approx(p[i, z], rel=ROUNDING)
        assert found.others[i] == pytest.approx(np.delete(p[i], z).sum(), rel=ROUNDING)


def test_shares_of_pairs_sum_to_one_over_each_source():
    sources, distances = np.array([1, 0, 1, 1]), np.array([0.0, 0.0, 2.0, 5000.0])
    shares, beyond = pair_shares(sources, distances, 2.0, 3)
    assert shares == pytest.approx([1 / (1 + np.exp(-1)), 1, 1 / (1 + np.exp(1)), 0])
    mean = np.exp(-1) / (1 + np.exp(-1))
    assert beyond == pytest.approx([-mean, 0, 1 - mean, 700 - mean])


def test_the_lead_is_to_the_second_largest():
    table = np.random.default_rng(1).standard_normal((20, 5)).round(1)
    ordered = np.sort(table, 1)
    assert leads(table) == pytest.approx(ordered[:, -1] - ordered[:, -2])


def test_what_is_nearly_sure_keeps_its_digits():
    tables = [np.array([[0.0, -40.0, -60.0]]), np.zeros((1, 3))]
    none = np.zeros(4, int), np.zeros(0, int), np.zeros(0)
    found = alternatives(tables, np.ones(2), np.array([0]), none, (1.0, 0.0))
    assert found.others[0] == pytest.approx(np.exp(-40) + np.exp(-60), rel=ROUNDING)
    assert found.own[0] == 1
