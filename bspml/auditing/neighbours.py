"""The nearest samples of a sample's own class and of the class that fits best instead."""

from __future__ import annotations

import hashlib

import numpy as np
import torch

from bspml.evaluation.neighbours import ranked_neighbours
from bspml.shapes import Float, Tensor


def groups(codes: np.ndarray) -> dict[int, np.ndarray]:
    """Return {code: its positions}, both ascending; negative codes are left out."""
    order = np.argsort(codes, kind="stable")
    if len(order) == 0:
        return {}
    distinct, starts = np.unique(codes[order], return_index=True)
    parts = np.split(order, starts[1:])
    return {int(c): rows for c, rows in zip(distinct, parts, strict=True) if c >= 0}


def row_digest(row: np.ndarray) -> bytes:
    """Return a hash of a row of float32, the same for equal rows: -0 counts as 0."""
    return hashlib.blake2b((row + np.float32(0)).tobytes(), digest_size=16).digest()


def nearest_in_class(
    rows: Float[Tensor, "N D"], codes: np.ndarray, asked: np.ndarray, k: int = 3
) -> np.ndarray:
    """Return the k samples labelled `asked[i]` most similar to sample i, best first, without i.

    One small exact search per class: no N x N table.  Equal similarities go by index.

    Args:
        rows: from `bspml.tensors.unit_rows.grid_unit_rows`; rows of norm 0 are nobody's neighbour.
        codes: (N,) int64 labels.
        asked: (N,) int64, the class to search for each sample; negative: none.
        k: neighbours per sample.

    Returns:
        (N, k) int64 sample indices, -1 where the class has no further sample.
    """
    neighbours = np.full((len(codes), k), -1, np.int64)
    directed = (rows != 0).any(1).numpy()
    members = groups(np.where(directed, codes, -1))
    for c, askers in groups(np.where(directed, asked, -1)).items():
        gallery = members.get(c, askers[:0])
        # Whether the asker itself is in the gallery depends on its label.
        for inside in (True, False):
            queries = askers[(codes[askers] == c) == inside]
            count = min(k, len(gallery) - inside)
            if len(queries) and count > 0:
                own = torch.from_numpy(np.searchsorted(gallery, queries)) if inside else None
                for part, places in ranked_neighbours(
                    rows[queries], rows[gallery], count, self_rows=own
                ):
                    neighbours[queries[part], :count] = gallery[places.numpy()]
    return neighbours
