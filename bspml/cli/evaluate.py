"""`bspml evaluate`: metrics of a run's test split, or of embeddings and labels in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bspml.cli.labels import labels_of
from bspml.errors import InputError
from bspml.evaluation.retrieval import RetrievalMetrics, evaluate
from bspml.experiment.words import in_lines, seen_and_used, versions
from bspml.files.tables import read_embeddings

_FILES_KS = (1, 2, 4, 8, 16, 32)


def run_evaluate(
    what: str,
    labels: str | None,
    gallery: str | None,
    gallery_labels: str | None,
    ks: str | None,
    method: str,
    seed: int,
    device: str | None,
    as_json: bool,
) -> None:
    """Print the metrics, and under what conditions they hold, as a table or as JSON."""
    wanted = _FILES_KS if ks is None else _parse_ks(ks)
    conditions: dict[str, Any] = {}
    if Path(what).is_dir():
        given_too = {"LABELS": labels, "--gallery": gallery, "--gallery-labels": gallery_labels}
        ignored = [name for name, value in given_too.items() if value is not None]
        if ignored:
            raise InputError(
                f"{what} is a run folder, which has its own test split: it does not go with "
                f"{' and '.join(ignored)}. Leave that out, or give a file of embeddings."
            )
        from bspml.experiment.embed import embed_test
        from bspml.experiment.load import load

        run = load(what, method)
        if ks is None:
            wanted = run.config.evaluation.ks  # as in the table of the training
        test, searched = embed_test(run)
        found = _evaluated(
            test.embeddings,
            test.labels,
            ks=wanted,
            gallery=None if searched is None else searched.embeddings,
            gallery_labels=None if searched is None else searched.labels,
            seed=seed,
            device=device,
        )
        conditions |= seen_and_used(run.config)
    else:
        if gallery is None and gallery_labels is not None:
            raise InputError("--gallery-labels are the labels of --gallery; give that too.")
        # Embeddings first: what is wrong with their file is said of it, not of its labels.
        queries = read_embeddings(what)
        found = _evaluated(
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
    conditions["versions"] = versions()
    if as_json:
        print(json.dumps(found.as_dict() | conditions, allow_nan=False))
    else:
        print("\n".join([found.table(), *in_lines(conditions, found.backend)]))


def _evaluated(embeddings: Any, labels: Any, **options: Any) -> RetrievalMetrics:
    """`evaluate`, whose messages about `ks` name the option of the command line."""
    try:
        return evaluate(embeddings, labels, **options)
    except InputError as err:
        text = str(err)
        if not text.startswith("`ks`"):
            raise
        raise InputError(text.replace("`ks`", "`--ks`").replace("Use ks", "Use --ks")) from err


def _parse_ks(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(k) for k in text.replace(" ", "").split(","))
    except ValueError:
        raise InputError(f"--ks must be whole numbers with commas, 1,2,4; got {text!r}.") from None
