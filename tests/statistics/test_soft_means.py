"""Soft means against their definition, sample by sample."""

import numpy as np
import pytest
import torch

from bspml.statistics import soft_means
from bspml.statistics.soft_means import SHARPNESS, SoftMeans
from bspml.tensors.checks import encode_labels
from helpers.draws import clouds


def by_definition(x, codes, weights, classes):
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    out = np.full((len(x), classes), -np.inf)
    for i in range(len(x)):
        for c in range(classes):
            others = [j for j in range(len(x)) if codes[j] == c and j != i and weights[j] > 0]
            if others:
                w = weights[others]
                out[i, c] = np.log(w @ np.exp(SHARPNESS * (x[others] @ x[i] - 1)) / w.sum())
            elif codes[i] == c and weights[i] > 0:
                out[i, c] = np.nan
    return out


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("run", [1, 9, 4096])  # references to a product
def test_the_table_is_its_definition(weighted, run, monkeypatch):
    monkeypatch.setattr(soft_means, "_RUN", run)
    monkeypatch.setattr(soft_means, "_BLOCK_VALUES", 100)
    rng = np.random.default_rng(0)
    x, codes = clouds(rng, 4, 6, 5, 0.5)
    codes[0] = 4  # a class of one
    weights = rng.uniform(0.1, 1, len(x)) if weighted else np.ones(len(x))
    weights[7] = 0
    labels = encode_labels(codes)
    table = SoftMeans.of(torch.tensor(x), labels, torch.tensor(weights)).table(torch.arange(24))
    assert table.numpy() == pytest.approx(
        by_definition(x, codes, weights, 5), rel=1e-9, nan_ok=True
    )


def test_rows_are_judged_in_any_order_and_number():
    rng = np.random.default_rng(1)
    x, codes = clouds(rng, 5, 8, 6, 0.4)
    means = SoftMeans.of(torch.tensor(x), encode_labels(codes), torch.ones(40).double())
    everyone = means.table(torch.arange(40))
    some = torch.tensor([31, 2, 2, 7])
    assert means.table(some).numpy() == pytest.approx(everyone[some].numpy())


def test_what_is_far_from_everything_is_a_number():
    x = torch.tensor([[1.0, 0], [1, 0.1], [-1, 0], [-1, 0.1]]).repeat(1, 1)
    table = SoftMeans.of(x, encode_labels([0, 0, 1, 1]), torch.ones(4).double())
    assert torch.isfinite(table.table(torch.arange(4))).all()


@pytest.mark.parametrize("known", [False, True])
def test_reweighted_is_computed_anew(known):
    rng = np.random.default_rng(2)
    x, codes = clouds(rng, 5, 8, 6, 0.4)
    codes[0] = 5  # a class of one
    weights, labels = np.ones(40), encode_labels(codes)
    weights[9] = 0  # nobody's reference, then as now
    given, everyone = (torch.tensor(x), labels), torch.arange(40)
    table = SoftMeans.of(*given, torch.tensor(weights)).table(everyone)
    means = SoftMeans.of(*given, torch.tensor(weights), table if known else None)
    for _ in range(2):  # and reweighted again
        some = np.array([3, 11, 12, 30])
        weights[some] = rng.uniform(1e-4, 1, 4)
        means = means.reweighted(labels, torch.tensor(weights))
        expected = by_definition(x, codes, weights, 6)
        assert means.table(everyone).numpy() == pytest.approx(expected, rel=1e-9, nan_ok=True)
