"""Margins of the left-out discriminant against refitting without each sample."""

import numpy as np
import pytest
import torch

from bspml.statistics.margins import label_margins
from helpers.draws import clouds


def refitted_margin(x, codes, weights, i, shrink):
    """Best other class less the label, everything fitted again without sample i."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    w = weights.copy()
    w[i] = 0
    dims, present = x.shape[1], np.unique(codes[w > 0])
    mass = {c: w[codes == c].sum() for c in present}
    means = {c: w[codes == c] @ x[codes == c] / mass[c] for c in present}
    scatter = sum(w[j] * np.outer(x[j] - means[codes[j]], x[j] - means[codes[j]])
                  for j in np.flatnonzero(w > 0))  # fmt: skip
    freedom = w.sum() - len(present)
    sigma = (1 - shrink) * scatter / freedom
    sigma += shrink * np.trace(scatter) / (freedom * dims) * np.eye(dims)
    fit = {}
    for c in present:
        gap = x[i] - means[c]
        fit[c] = -gap @ np.linalg.solve(sigma, gap) / 2 + dims / (2 * mass[c]) + np.log(mass[c])
    return max(fit[c] for c in present if c != codes[i]) - fit[codes[i]]


def test_they_are_those_of_refitting_without_each_sample():
    x, codes = clouds(np.random.default_rng(0), 4, 6, 5, 0.5)
    weights = np.ones(len(x))
    weights[3] = 0  # judged, and nobody's reference
    found = label_margins(x, codes, weights, shrink=0.3)
    expected = [refitted_margin(x, codes, weights, i, 0.3) for i in range(len(x))]
    assert found.numpy() == pytest.approx(expected, rel=1e-7, abs=1e-7)


def test_blocks_change_nothing(monkeypatch):
    x, codes = clouds(np.random.default_rng(1), 5, 8, 6, 0.5)
    whole = label_margins(x, codes)
    monkeypatch.setattr("bspml.statistics.discriminant._BLOCK_VALUES", 60)
    assert torch.allclose(label_margins(x, codes), whole)


def test_a_label_that_nothing_else_has_and_a_row_of_norm_zero_have_none():
    x, codes = clouds(np.random.default_rng(2), 3, 6, 4, 0.5)
    codes[0], x[7] = 9, 0
    found = label_margins(x, codes)
    assert found.isnan().nonzero()[:, 0].tolist() == [0, 7]


def test_float32_embeddings_give_float64_margins():
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(20, 4, generator=generator)
    labels = torch.arange(20) % 4
    single = label_margins(embeddings, labels)
    assert single.dtype == torch.float64
    torch.testing.assert_close(
        single, label_margins(embeddings.double(), labels), rtol=1e-3, atol=1e-3
    )
