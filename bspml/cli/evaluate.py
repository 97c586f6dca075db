"""`bspml evaluate`: metrics of a run's test split, or of embeddings and labels in files."""

from __future__ import annotations

import json
from pathlib import Path

from bspml.cli.labels import labels_of
from bspml.data.tables import read_embeddings
from bspml.errors import InputError
from bspml.evaluation.retrieval import evaluate


def run_evaluate(
    what: str,
    labels: str | None,
    gallery: str | None,
    gallery_labels: str | None,
    ks: str,
    method: str,
    seed: int,
    device: str | None,
    as_json: bool,
) -> None:
    """Print the metrics as a table or as JSON."""
    wanted = _parse_ks(ks)
    if Path(what).is_dir():
        given_too = {"LABELS": labels, "--gallery": gallery, "--gallery-labels": gallery_labels}
        ignored = [name for name, value in given_too.items() if value is not None]
        if ignored:
            raise InputError(
                f"{what} is a run folder, which has its own test split: it does not go with "
                f"{' and '.join(ignored)}. Leave that out, or give a file of embeddings."
            )
        from bspml.run import load
        from bspml.run_embeddings import embed_named

        test = embed_named(load(what, method), "test")
        found = evaluate(test.embeddings, test.labels, ks=wanted, seed=seed, device=device)
    else:
        if gallery is None and gallery_labels is not None:
            raise InputError("--gallery-labels are the labels of --gallery; give that too.")
        # Embeddings first: what is wrong with their file is said of it, not of its labels.
        queries = read_embeddings(what)
        found = evaluate(
            queries,
            labels_of(what, labels, "LABELS"),
            ks=wanted,
            gallery=None if gallery is None else read_embeddings(gallery),
            gallery_labels=None
            if gallery is None
            else labels_of(gallery, gallery_labels, "--gallery-labels"),
            seed=seed,
            device=device,
        )
    print(json.dumps(found.as_dict(), allow_nan=False) if as_json else found.table())


def _parse_ks(text: str) -> list[int]:
    try:
        return [int(k) for k in text.replace(" ", "").split(",")]
    except ValueError:
        raise InputError(f"--ks must be whole numbers with commas, 1,2,4; got {text!r}.") from None
