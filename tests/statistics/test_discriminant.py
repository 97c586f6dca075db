"""The left-out discriminant against refitting without each sample, and its laws."""

import numpy as np
import pytest
import torch

from bspml.statistics import discriminant
from bspml.statistics.discriminant import Discriminant
from helpers.draws import clouds


def refitted(x, codes, weights, classes, shrink, i):
    """G_i(c) from scratch, sample i left out of everything; NaN and -inf as documented."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    w = weights.copy()
    w[i] = 0
    dims = x.shape[1]
    mass = np.array([w[codes == c].sum() for c in range(classes)])
    means = np.array([
        w[codes == c] @ x[codes == c] / mass[c] if mass[c] else np.zeros(dims)
        for c in range(classes)
    ])  # fmt: skip
    centred = x - means[codes]
    scatter = (centred * w[:, None]).T @ centred
    freedom = w.sum() - (mass > 0).sum()
    sigma = (1 - shrink) * scatter / freedom
    sigma += shrink * np.trace(scatter) / (freedom * dims) * np.eye(dims)
    out = np.full(classes, -np.inf)
    for c in np.flatnonzero(mass > 0):
        gap = x[i] - means[c]
        out[c] = -gap @ np.linalg.solve(sigma, gap) / 2 + dims / (2 * mass[c]) + np.log(mass[c])
    if mass[codes[i]] == 0 and weights[i] > 0:
        out[codes[i]] = np.nan
    return out


def case(classes=4, each=6, dims=5, seed=0):
    rng = np.random.default_rng(seed)
    x, codes = clouds(rng, classes, each, dims, 0.5)
    return x, codes, rng


def table_of(x, codes, weights, classes, shrink, dtype=torch.float64):
    judge = Discriminant.of(
        torch.as_tensor(x, dtype=dtype), torch.as_tensor(codes), torch.as_tensor(weights), classes
    )
    return judge.table(torch.arange(len(x)), shrink).numpy()


@pytest.mark.parametrize("shrink", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dims", [3, 5, 40])
def test_leaving_out_is_refitting(shrink, weighted, dims):
    x, codes, rng = case(dims=dims)
    weights = rng.uniform(0.2, 1.5, len(x)) if weighted else np.ones(len(x))
    weights[5] = 0  # nobody's reference
    found = table_of(x, codes, weights, 4, shrink)
    for i in range(len(x)):
        expected = refitted(x, codes, weights, 4, shrink, i)
        assert found[i] == pytest.approx(expected, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("classes", [3, 100])  # products of pairs of classes, and of all rows
def test_large_blocks_interpolate_and_still_refit(classes, monkeypatch):
    monkeypatch.setattr(discriminant, "_CLASSES", 2 if classes == 3 else 33)
    x, codes, rng = case(classes, 300 // classes, 6)
    weights = rng.uniform(0.2, 1, 300)
    weights[:2] = 0
    judge = Discriminant.of(*(torch.as_tensor(v) for v in (x, codes, weights)), classes)
    order = rng.permutation(300)
    assert 0 < len(judge._nodes) < 300
    table = judge.table(torch.from_numpy(order), 0.4).numpy()
    for place in range(0, 300, 13):
        expected = refitted(x, codes, weights, classes, 0.4, order[place])
        assert table[place] == pytest.approx(expected, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reweighted_is_computed_anew(dtype):
    x, codes, rng = case()
    weights = np.ones(len(x))
    given = torch.as_tensor(x, dtype=dtype), torch.as_tensor(codes)
    judge = Discriminant.of(*given, torch.tensor(weights), 4)
    for _ in range(2):  # and reweighted again
        some = rng.permutation(len(x))[:7]
        weights[some] = rng.uniform(1e-4, 1, 7)
        judge = judge.reweighted(torch.tensor(weights))
        found = judge.table(torch.arange(len(x)), 0.3).numpy()
        expected = table_of(x, codes, weights, 4, 0.3, dtype)
        rounding = 1e-9 if dtype == torch.float64 else 2e-4
        assert found == pytest.approx(expected, rel=rounding, abs=rounding)


def test_a_class_of_one_is_unknown_to_its_sample_and_absent_classes_are_impossible():
    x, codes, _ = case()
    codes[:6] = np.where(np.arange(6) == 0, 0, 1)
    found = table_of(x, codes, np.ones(len(x)), 5, 0.3)
    assert np.isnan(found[0, 0])
    assert np.isfinite(found[0, 1:4]).all()
    assert (found[:, 4] == -np.inf).all()
    for i in (0, 1, 20):
        expected = refitted(x, codes, np.ones(len(x)), 5, 0.3, i)
        assert found[i] == pytest.approx(expected, rel=1e-7, nan_ok=True)


def test_float32_is_near_float64():
    x, codes, _ = case(classes=20, each=15, dims=64)
    wide = table_of(x, codes, np.ones(len(x)), 20, 0.3)
    narrow = table_of(x, codes, np.ones(len(x)), 20, 0.3, torch.float32)
    assert narrow == pytest.approx(wide, rel=1e-4, abs=2e-2)


def test_order_names_and_lengths_do_not_matter():
    x, codes, rng = case()
    weights = rng.uniform(0.5, 1, len(x))
    found = table_of(x, codes, weights, 4, 0.3)
    order = rng.permutation(len(x))
    assert table_of(x[order], codes[order], weights[order], 4, 0.3) == pytest.approx(found[order])
    names = np.array([2, 0, 3, 1])
    assert table_of(x, names[codes], weights, 4, 0.3)[:, names] == pytest.approx(found)
    longer = x * rng.uniform(0.1, 9, (len(x), 1))
    assert table_of(longer, codes, weights, 4, 0.3) == pytest.approx(found)


def test_nearest_classes_are_those_of_the_means_in_the_same_metric():
    x, codes, rng = case(classes=6, dims=4)
    weights, share = np.ones(len(x)), rng.uniform(0.3, 1, len(x))
    judge = Discriminant.of(torch.tensor(x), torch.tensor(codes), torch.tensor(weights), 6)
    nearest, further = judge.nearest_classes(3, 0.4, torch.tensor(share))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    plain = np.array([unit[codes == c].mean(0) for c in range(6)])
    means = np.array([np.average(unit[codes == c], 0, share[codes == c]) for c in range(6)])
    scatter = (unit - plain[codes]).T @ (unit - plain[codes])
    freedom = len(x) - 6
    sigma = 0.6 * scatter / freedom + 0.4 * np.trace(scatter) / (freedom * 4) * np.eye(4)
    gaps = means[:, None] - means[None]
    distance = np.einsum("ycd,de,yce->yc", gaps, np.linalg.inv(sigma), gaps) / 2
    np.fill_diagonal(distance, np.inf)
    assert (nearest.numpy() == np.argsort(distance, 1)[:, :3]).all()
    ordered = np.sort(distance, 1)
    assert further.numpy() == pytest.approx(ordered[:, :3] - ordered[:, :1], rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("dims", [3, 40])
def test_columns_of_zeros_change_nothing(dims):
    x, codes, rng = case(dims=dims)
    weights = rng.uniform(0.2, 1.5, len(x))
    wide = np.insert(x, [0, 2, dims, dims], 0.0, axis=1)
    judges = [
        Discriminant.of(torch.as_tensor(v), torch.as_tensor(codes), torch.as_tensor(weights), 4)
        for v in (x, wide)
    ]
    changed = torch.as_tensor(weights) * 0.5
    for plain, other in (judges, [judge.reweighted(changed) for judge in judges]):
        tables = [judge.table(torch.arange(len(x)), 0.3).numpy() for judge in (plain, other)]
        np.testing.assert_allclose(tables[1], tables[0], rtol=1e-9)
        near = [judge.nearest_classes(2, 0.3, torch.ones(len(x))) for judge in (plain, other)]
        assert torch.equal(near[0][0], near[1][0])
        np.testing.assert_allclose(near[1][1], near[0][1], rtol=1e-9, atol=1e-9)
    nothing = Discriminant.of(torch.zeros(4, 3), torch.tensor([0, 0, 1, 1]), torch.ones(4), 2)
    assert nothing.dims == 1
