import numpy as np
import pytest
import torch

from bspml.errors import InputError
from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.whitening import whiten_embeddings


def _rows(n=200, dim=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, dim)) * np.array([10, 3, 1, 1, 0.3])[:dim]


def test_without_shrinkage_the_second_moment_is_the_identity():
    white = whiten_embeddings(_rows(), shrink=1e-12)
    torch.testing.assert_close(white.T @ white / 200, torch.eye(5, dtype=torch.float64))


def test_strong_shrinkage_only_centres():
    rows = _rows()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    centred = unit - unit.mean(0)
    white = whiten_embeddings(rows, shrink=1e9).numpy()
    cosine = (white * centred).sum(1) / np.linalg.norm(white, axis=1)
    np.testing.assert_allclose(cosine, np.linalg.norm(centred, axis=1), rtol=1e-6)


def test_zero_rows_stay_zero_and_equal_rows_do_not_break():
    rows = _rows()
    rows[3] = 0
    assert (whiten_embeddings(rows)[3] == 0).all()
    assert torch.isfinite(whiten_embeddings(np.ones((4, 3)))).all()


def test_a_loud_direction_without_meaning_no_longer_hides_the_classes():
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 4
    rows = rng.normal(size=(4, 10))[labels] + rng.normal(size=(200, 10))
    rows[:, 0] += 20 * rng.normal(size=200)
    plain, white = (
        (contrastive_statistics(e, labels).margin < 0).double().mean().item()
        for e in (rows, whiten_embeddings(rows))
    )
    assert white > plain + 0.1


def test_shrink_must_be_positive():
    with pytest.raises(InputError, match=r"`shrink` must be in \(0, inf\)"):
        whiten_embeddings(_rows(), shrink=0)
