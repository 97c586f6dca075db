"""Labels beside embeddings: in a file of their own, or inside."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bspml.errors import DataError, InputError
from bspml.files.tables import read_labels


def labels_of(what: str, labels: str | None, option: str) -> np.ndarray:
    """Return (N,) labels of the embeddings in the file `what`.

    Args:
        what: the file of embeddings.
        labels: the file of labels, or None: they are inside.
        option: what the command line calls that file.

    Raises:
        InputError: `what` can hold no labels.
        DataError: it could and does not, or a file is damaged.
    """
    if labels is not None:
        return read_labels(labels)
    if Path(what).suffix.lower() == ".npy":
        raise InputError(
            f"{option} is missing: {what} holds embeddings only. Name a file of labels, or give a "
            ".npz, .csv or .parquet file with both."
        )
    try:
        return read_labels(what)
    except DataError as err:
        raise DataError(f"{err} Or give {option} as a file of their own.") from err
