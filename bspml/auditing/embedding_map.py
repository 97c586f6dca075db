"""A map of the embeddings: every sample as a point in the plane."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.decomposition import PCA

from bspml.errors import InputError, import_optional
from bspml.shapes import Float, Tensor
from bspml.tensors.checks import check_choice

_ITERATIONS = 3  # of the power method; each looks at all rows twice
_NEIGHBOURS = 15  # of UMAP: its default, fewer in smaller data


def check_map_method(method: str, name: str = "map_method") -> None:
    """Refuse a method that cannot be had, before any work.

    Args:
        method: "pca" or "umap".
        name: of the option, for the message.

    Raises:
        InputError: no such method.
        MissingDependencyError: umap-learn is not installed.
    """
    check_choice(method, name, ("pca", "umap"))
    if method == "umap":
        _import_umap()


def _import_umap() -> Any:
    return import_optional(
        "umap", "this map needs umap-learn, which is not installed; `pip install 'bspml[map]'`."
    )


def embedding_map(rows: Float[Tensor, "N D"], method: str = "pca") -> np.ndarray:
    """Place samples in the plane so that similar ones tend to lie near each other.

    Deterministic: axes of PCA point where their largest loading is positive, and UMAP runs with a
    fixed seed, thus on one core.

    Args:
        rows: unit rows, such as from `bspml.tensors.unit_rows.grid_unit_rows`.
        method: "pca", the two directions that vary most: fast, but classes overlap; or "umap",
            which keeps neighbours together: needs `pip install 'bspml[map]'` and minutes for
            60,000 rows.

    Returns:
        (N, 2) float32; only distances between points mean something, and those of "umap" little.

    Raises:
        InputError: another method, or fewer than 4 rows for "umap".
        MissingDependencyError: umap-learn is not installed.

    Example:
        >>> import torch
        >>> embedding_map(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])).shape
        (3, 2)
    """
    check_map_method(method)
    array = rows.detach().cpu().numpy()
    places = _umap(array) if method == "umap" else _pca(array)
    return places.astype(np.float32)


def _pca(rows: np.ndarray) -> np.ndarray:
    axes = min(2, *rows.shape)
    with np.errstate(invalid="ignore"):  # rows that are all equal have no share of variance
        fitted = PCA(axes, random_state=0, iterated_power=_ITERATIONS).fit(rows)
    components = fitted.components_
    largest = np.abs(components).argmax(1)
    signs = np.sign(components[np.arange(axes), largest])
    places = np.zeros((len(rows), 2))
    places[:, :axes] = fitted.transform(rows) * np.where(signs == 0, 1, signs)
    return places


def _umap(rows: np.ndarray) -> np.ndarray:
    if len(rows) < 4:
        raise InputError(f"`rows` must be at least 4 for the method 'umap'; got {len(rows)}.")
    neighbours = min(_NEIGHBOURS, len(rows) - 1)
    reducer = _import_umap().UMAP(n_neighbors=neighbours, min_dist=0.1, random_state=0, n_jobs=1)
    return np.asarray(reducer.fit_transform(rows))
