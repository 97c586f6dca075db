"""`bspml evaluate`: metrics of a run's test split, or of embeddings and labels in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bspml.cli.labels import labels_of
from bspml.cli.options import EvaluateOptions, flags_of
from bspml.errors import InputError
from bspml.evaluation.retrieval import KS, RetrievalMetrics, evaluate
from bspml.experiment.words import in_lines, seen_and_used, versions
from bspml.files.cells import whole_number
from bspml.files.tables import read_embeddings


def run_evaluate(options: EvaluateOptions) -> None:
    """Print the metrics, and under what conditions they hold, as a table or as JSON."""
    # A mistake in --ks is said before files are read.
    ks = None if options.ks is None else _parse_ks(options.ks)
    if Path(options.what).is_dir():
        metrics, conditions = _of_run(options, ks)
    else:
        metrics, conditions = _of_files(options, KS if ks is None else ks), {}
    conditions["versions"] = versions()
    if options.json:
        print(json.dumps(metrics.as_dict() | conditions, allow_nan=False))
    else:
        print("\n".join([metrics.table(), *in_lines(conditions, metrics.backend)]))


def _of_run(
    options: EvaluateOptions, ks: tuple[int, ...] | None
) -> tuple[RetrievalMetrics, dict[str, Any]]:
    """The metrics of a run's test split, and what the run has seen and used."""
    ignored = flags_of(options, "labels", "gallery", "gallery_labels", "query_in_gallery")
    if ignored:
        raise InputError(
            f"{options.what} is a run folder, which has its own test split: it does not go with "
            f"{' and '.join(ignored)}. Leave that out, or give a file of embeddings."
        )
    from bspml.experiment.embed import embed_test
    from bspml.experiment.load import load

    run = load(options.what, options.method)
    test, searched = embed_test(run)
    gallery = {
        "gallery": None if searched is None else searched.embeddings,
        "gallery_labels": None if searched is None else searched.labels,
    }
    # The K are those in the table of the training.
    ks = run.config.evaluation.ks if ks is None else ks
    metrics = _evaluated(options, test.embeddings, test.labels, ks=ks, **gallery)
    conditions = dict(seen_and_used(run.config))
    if test.seen is not None:
        told = test.seen.without(metrics, test.embeddings, test.labels, **gallery)
        conditions = {"trained_on": told, **conditions}
    if test.changes:
        conditions = {"changes": test.changes, **conditions}
    return metrics, conditions


def _of_files(options: EvaluateOptions, ks: tuple[int, ...]) -> RetrievalMetrics:
    if options.method is not None:
        raise InputError(f"--method is of a run; {options.what} is no run folder. Leave it out.")
    gallery = options.gallery
    if gallery is None and options.gallery_labels is not None:
        raise InputError("--gallery-labels are the labels of --gallery; give that too.")
    if gallery is None and options.query_in_gallery:
        raise InputError("--query-in-gallery is about --gallery; give that too.")
    # Embeddings first: what is wrong with their file is said of it, not of its labels.
    queries = read_embeddings(options.what)
    labels = labels_of(options.what, options.labels, "LABELS")
    searched: dict[str, Any] = {}
    if gallery is not None:
        searched["gallery"] = read_embeddings(gallery)
        searched["gallery_labels"] = labels_of(gallery, options.gallery_labels, "--gallery-labels")
    return _evaluated(options, queries, labels, ks=ks, **searched)


def _evaluated(
    options: EvaluateOptions, embeddings: Any, labels: Any, **searched: Any
) -> RetrievalMetrics:
    """`evaluate`, whose messages about `ks` and `ignore` name the options of the command line."""
    try:
        return evaluate(
            embeddings,
            labels,
            seed=options.seed or 0,
            device=options.device,
            ignore=_parse_labels(options.ignore, labels),
            query_in_gallery=options.query_in_gallery,
            **searched,
        )
    except InputError as err:
        text = str(err)
        text = text.replace("`ks`", "`--ks`").replace("Use ks", "Use --ks")
        raise InputError(text.replace("`ignore`", "`--ignore`")) from err


def _parse_labels(text: str | None, labels: Any) -> list[Any]:
    """Return the labels to ignore, of the kind that the others are."""
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if np.asarray(labels).dtype.kind not in "iu":
        return parts
    numbers = [whole_number(part) for part in parts]
    if None in numbers:
        raise InputError(f"--ignore must be whole numbers, as the labels are; got {text!r}.")
    return numbers


def _parse_ks(text: str) -> tuple[int, ...]:
    ks = tuple(k for part in text.split(",") if (k := whole_number(part)) is not None)
    if len(ks) <= text.count(","):
        raise InputError(f"--ks must be whole numbers with commas, 1,2,4; got {text!r}.")
    return ks
