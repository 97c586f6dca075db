"""`bspml evaluate`: metrics of a run's test split, or of embeddings and labels in files."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bspml.cli.labels import labelled, says_trained_on
from bspml.cli.options import EvaluateOptions, flags_of
from bspml.cli.terminal import note
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.data.sets.path_table import rows_of_splits
from bspml.data.split_copies import split_copies
from bspml.errors import DataError, InputError
from bspml.evaluation.retrieval import KS, RetrievalMetrics, evaluate
from bspml.experiment.seen import Seen
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
        metrics, conditions = _of_files(options, KS if ks is None else ks)
    conditions["versions"] = versions()
    if options.json:
        print(json.dumps(metrics.as_dict() | conditions, allow_nan=False))
    else:
        print("\n".join([metrics.table(), *in_lines(conditions, metrics.backend)]))


def _of_run(
    options: EvaluateOptions, ks: tuple[int, ...] | None
) -> tuple[RetrievalMetrics, dict[str, Any]]:
    """The metrics of a run's test split, and what the run has seen and used."""
    if ignored := flags_of(options, "labels", "gallery", "gallery_labels", "query_in_gallery"):
        raise InputError(
            f"{options.what} is a run folder, which has its own test split: it does not go with "
            f"{' and '.join(ignored)}. Leave that out, or give a file of embeddings."
        )
    from bspml.experiment.embed import embed_test
    from bspml.experiment.load import load

    run = load(options.what, options.method)
    test, searched = embed_test(run)
    gallery: dict[str, Any] = {}
    if searched is not None:
        gallery = {"gallery": searched.embeddings, "gallery_labels": searched.labels}
    # The K are those in the table of the training.
    ks = run.config.evaluation.ks if ks is None else ks
    # So are the draws behind intervals and NMI.
    options = replace(options, seed=run.config.seed if options.seed is None else options.seed)
    metrics = _evaluated(options, test.embeddings, test.labels, ks=ks, **gallery)
    seen = _told_of(test.seen, options, metrics, test.embeddings, test.labels, **gallery)
    conditions = seen | seen_and_used(run.config)
    if test.changes:
        conditions = {"changes": test.changes, **conditions}
    return metrics, conditions


def _of_files(
    options: EvaluateOptions, ks: tuple[int, ...]
) -> tuple[RetrievalMetrics, dict[str, Any]]:
    """The metrics of embeddings in files, and of which of their splits."""
    if options.method is not None:
        raise InputError(f"--method is of a run; {options.what} is no run folder. Leave it out.")
    gallery = options.gallery
    if gallery is None and options.gallery_labels is not None:
        raise InputError("--gallery-labels are the labels of --gallery; give that too.")
    if gallery is None and options.query_in_gallery:
        raise InputError("--query-in-gallery is about --gallery; give that too.")
    found = _read(options.what, options.labels, "LABELS")
    split, queries, labels = _of_split(*found, "query", "test")
    files, searched = [(found, [split])], {}
    measured = f"{len(labels):,} rows" + (f" of {split}" if split else "")
    if gallery is not None:
        files.append((_read(gallery, options.gallery_labels, "--gallery-labels"), []))
    if gallery is not None or split == "query":
        file, used = files[-1]
        place, rows, theirs = _of_split(*file, "gallery", *["test"] * (file is not found))
        used.append(place)
        searched = {"gallery": rows, "gallery_labels": theirs}
        measured += f" in {len(theirs):,} of {place or 'the gallery'}"
    parts = [(*part, used) for file, used in files for part in (file[3] or {}).items()]
    left = [f"{int(rows.sum()):,} of {name}" for name, rows, used in parts if name not in used]
    measured += f", not the {' and '.join(left)}" if left else ""
    metrics = _evaluated(options, queries, labels, ks=ks, **searched)
    told = _told_of(_seen_in_file(found, split), options, metrics, queries, labels, **searched)
    if learned := [file[0] for file, _ in files if says_trained_on(file[0])]:
        told["caution"] = (
            f"the network was trained on some samples of {' and '.join(learned)}: retrieval among "
            "them is better than among new ones"
        )
    return metrics, ({"measured": measured} if parts else {}) | told


def _seen_in_file(found: Any, split: str) -> Seen | None:
    """Which rows of the split that is measured are rows of a training split beside it."""
    what, embeddings, labels, of = found
    if not split or "train" not in of:
        return None
    x, y, names = torch.from_numpy(embeddings), labels.astype(str), ["train", split]
    names += ["gallery"] * (split == "query")
    sides = [RetrievalSplit(name, y[of[name]], features=x[of[name]]) for name in names]
    copies = split_copies(RetrievalData.of(what, sides))
    return Seen.of(copies, len(sides[1]), len(sides[2]) if split == "query" else None)


def _told_of(
    seen: Seen | None, options: EvaluateOptions, metrics: RetrievalMetrics, *side: Any, **other: Any
) -> dict[str, Any]:
    """Name the samples that training saw, and return the metrics without them, in words."""
    if seen is None:
        return {}
    for sentence in seen.sentences:
        note(f"note: {sentence}")
    ignore = _parse_labels(options.ignore, side[1], other.get("gallery_labels"))
    told = seen.without(metrics, *side, ignore=ignore, **other)
    return {"trained_on": told} if told else {}


def _read(what: str, labels: str | None, option: str) -> tuple[str, np.ndarray, np.ndarray, Any]:
    """The file's name, its embeddings, their labels, and the rows of each split; None without."""
    # Embeddings first: what is wrong with their file is said of it, not of its labels.
    embeddings, found = read_embeddings(what), labelled(what, labels, option)
    splits = found.columns.get("split") if len(found.labels) == len(embeddings) else None
    return what, embeddings, found.labels, splits and rows_of_splits(splits, Path(what))


def _of_split(
    what: str, embeddings: np.ndarray, labels: np.ndarray, parts: Any, *wanted: str
) -> tuple[str, np.ndarray, np.ndarray]:
    """The first wanted split that the file has, and its rows; "" and all without splits."""
    if parts is None:
        return "", embeddings, labels
    name = next((name for name in wanted if name in parts), None)
    if name is None:
        raise DataError(
            f"{what}: its rows are of {' and '.join(parts)}; those of {' or '.join(wanted)} would "
            "be measured. Name the splits so, or remove their column to measure all rows."
        )
    return name, embeddings[parts[name]], labels[parts[name]]


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
            ignore=_parse_labels(options.ignore, labels, searched.get("gallery_labels")),
            query_in_gallery=options.query_in_gallery,
            **searched,
        )
    except InputError as err:
        text = str(err).replace("`ks`", "`--ks`").replace("Use ks", "Use --ks")
        raise InputError(text.replace("`ignore`", "`--ignore`")) from err


def _parse_labels(text: str | None, labels: Any, others: Any) -> list[Any]:
    """Return the labels to ignore, of the kind that the others are: as they stand where they are
    labels, else between commas, in quotes or not, without spaces around them."""
    if text is None:
        return []
    known = {str(label) for side in (labels, others) if side is not None for label in side}
    is_one = text in known or text.splitlines() != [text]  # of which csv makes nothing
    cells = [text] if is_one else next(csv.reader([text]))
    parts = [cell if cell in known else cell.strip() for cell in cells]
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
