"""`bspml embed`: images, or features, to embeddings with the network of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bspml.cli.terminal import note
from bspml.errors import InputError
from bspml.experiment.embed import SPLITS, TRAINED_ON_THEM, embed_named
from bspml.experiment.load import load
from bspml.files.arrays import text_column
from bspml.files.atomic import atomic_write, check_not_read, remove_leftovers


def run_embed(run: str, what: str, output: str | None, method: str | None, as_json: bool) -> None:
    """Write `embeddings`, `labels` and `splits` (where known) and `names` into one .npz file.

    Where the network was trained on these samples, `trained_on` says so to `bspml audit`.

    Args:
        run: the run folder.
        what: folder of images, a split of the run, or a file of features.
        output: the file to write; None is WHAT-embeddings.npz.
        method: of the run; None is its automatic one.
        as_json: print JSON.
    """
    if what in SPLITS and Path(what).is_dir():
        note(f"bspml: note: {what} is the run's own {what} split; for the folder write ./{what}")
    stem = Path(what).stem if Path(what).is_file() else Path(what).name
    path = Path(output or f"{stem or 'images'}-embeddings.npz")
    if path.suffix.lower() != ".npz":
        raise InputError(f"--output must end in .npz, which is what is written; got {path.name}.")
    loaded = load(run, method)
    root = loaded.config.data.root
    for read in (what, *((root, Path(root) / path.name) if root else ())):
        check_not_read(path, read)
    result = embed_named(loaded, what)
    columns: dict[str, Any] = {"embeddings": result.embeddings.numpy()}
    if result.labels is not None:
        columns["labels"] = result.labels.astype(str)
    found = {"names": result.names, "splits": result.splits}
    texts = {name: values for name, values in found.items() if values}
    column_names = ", ".join([*columns, *texts])
    for name, values in texts.items():
        columns |= text_column(name, values)
    if result.changes:
        note(f"bspml: note: {result.changes}")
    if result.trained_on:
        columns["trained_on"] = np.array(True)
        note(f"bspml: note: {TRAINED_ON_THEM}")
    remove_leftovers(path.parent)
    atomic_write(path, lambda file: np.savez(file, **columns))
    shape = list(result.embeddings.shape)
    if as_json:
        print(json.dumps({"file": str(path), "shape": shape, "trained_on": result.trained_on}))
    else:
        print(f"{path}: {column_names.replace('embeddings', f'embeddings {tuple(shape)}', 1)}")
