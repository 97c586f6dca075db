"""The map of embeddings: PCA against the covariance's eigenvectors, and its laws; UMAP as asked."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from bspml.auditing.embedding_map import embedding_map
from bspml.errors import InputError, MissingDependencyError

CLOSE = 2e-5  # float32 through a singular value decomposition


@pytest.fixture
def rows(request):
    rng = np.random.default_rng(3)
    scale = np.array([1.0, 3.0, 0.2, 2.0, 0.1])
    return torch.from_numpy((rng.standard_normal((60, 5)) * scale).astype(np.float32))


def test_the_axes_are_the_two_directions_that_vary_most(rows):
    centred = rows.double().numpy() - rows.double().numpy().mean(0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    axes = vectors[:, [-1, -2]]
    axes *= np.sign(axes[np.abs(axes).argmax(0), [0, 1]])
    places = embedding_map(rows)
    assert places.dtype == np.float32
    np.testing.assert_allclose(places, centred @ axes, atol=CLOSE)


def test_the_signs_are_ours_whatever_the_library_gives(rows, monkeypatch):
    class Flipped(PCA):
        """As another version of the library may give the axes."""

        def fit(self, x):
            super().fit(x)
            self.components_ *= [[-1], [1]]
            return self

    expected = embedding_map(rows)
    monkeypatch.setattr("bspml.auditing.embedding_map.PCA", Flipped)
    np.testing.assert_allclose(embedding_map(rows), expected, atol=CLOSE)


def test_the_order_of_samples_changes_no_place(rows):
    order = np.random.default_rng(0).permutation(len(rows))
    np.testing.assert_allclose(embedding_map(rows[order]), embedding_map(rows)[order], atol=CLOSE)


def test_the_same_rows_have_the_same_map(rows):
    assert (embedding_map(rows) == embedding_map(rows.clone())).all()


@pytest.mark.parametrize("shape", [(4, 1), (2, 6), (5, 3)])
def test_small_and_equal_rows_have_a_place_each(shape):
    rng = np.random.default_rng(0)
    for values in (rng.standard_normal(shape), np.ones(shape)):
        places = embedding_map(torch.tensor(values, dtype=torch.float32))
        assert places.shape == (shape[0], 2)
        assert np.isfinite(places).all()
    assert np.ptp(places) == 0  # equal rows lie in one place


def test_umap_is_asked_for_one_seeded_map(rows, monkeypatch):
    asked = {}

    def make(**settings):
        asked.update(settings)
        return SimpleNamespace(fit_transform=lambda x: x[:, :2].astype(np.float64))

    monkeypatch.setitem(sys.modules, "umap", SimpleNamespace(UMAP=make))
    places = embedding_map(rows[:9], "umap")
    assert (places == rows[:9, :2].numpy()).all()
    assert places.dtype == np.float32
    assert (asked["random_state"], asked["n_jobs"], asked["n_neighbors"]) == (0, 1, 8)
    with pytest.raises(InputError, match="at least 4 for the method 'umap'; got 3"):
        embedding_map(rows[:3], "umap")


def test_without_umap_the_message_says_how_to_get_it(rows, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'bspml\[map\]'"):
        embedding_map(rows, "umap")


def test_another_method_is_refused(rows):
    with pytest.raises(InputError, match="`map_method` must be"):
        embedding_map(rows, "tsne")
