"""`bspml embed`: images to embeddings with the network of a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bspml.files import atomic_write
from bspml.run import SPLITS, embed_named, load


def run_embed(run: str, what: str, output: str | None, method: str, as_json: bool) -> None:
    """Write `embeddings`, `labels` and `names` into one .npz file."""
    if what in SPLITS and Path(what).is_dir():
        print(
            f"bspml: note: {what} is the run's own {what} split; for the folder write ./{what}",
            file=sys.stderr,
        )
    embeddings, labels, names = embed_named(load(run, method), what)
    path = Path(output or f"{Path(what).name or 'images'}-embeddings.npz")
    columns: dict[str, Any] = {
        "embeddings": embeddings.numpy(),
        "labels": labels.astype(str),
        "names": np.array(names, dtype=str),
    }
    atomic_write(path, lambda file: np.savez(file, **columns))
    shape = list(embeddings.shape)
    if as_json:
        print(json.dumps({"file": str(path), "shape": shape}))
    else:
        print(f"{path}: embeddings {tuple(shape)}, labels, names")
