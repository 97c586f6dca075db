"""An audit of labels of which a person has decided some already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from bspml.auditing.class_shares import flagged_by_class
from bspml.auditing.columns import ARRAYS
from bspml.auditing.judging import audit
from bspml.auditing.picture_hashes import PictureHashes
from bspml.auditing.report import AuditReport
from bspml.data.labels.carried import CarriedDecisions
from bspml.errors import InputError
from bspml.files.arrays import text_objects
from bspml.files.cells import plain_labels
from bspml.statistics.copies.copy_groups import copy_groups
from bspml.statistics.copies.distinct import Distinct
from bspml.statistics.label_shares import wrong_share_of_kept
from bspml.statistics.noise_rate import all_in_one_place
from bspml.tensors.checks import some_of
from bspml.tensors.copies import first_equal
from bspml.tensors.unit_rows import grid_unit_rows
from bspml.words import counted, error_sentence

# What is known of a sample that was left out; of its labels, the given one.
_UNKNOWN = {"f": np.nan, "b": False, "i": -1}


def audit_decided(
    embeddings: Any,
    carried: CarriedDecisions,
    names: Sequence[str],
    pictures: PictureHashes | None = None,
    **settings: Any,
) -> AuditReport:
    """Audit labels that earlier decisions corrected; what was decided is no suspect again.

    Decided labels keep their weight, and every rate counts them as right.  Samples without a right
    label are left out of the audit, as they would vouch for a wrong class, and have their row in
    the report all the same.

    Args:
        embeddings: (N, D).
        carried: what was decided of them.
        names: N names.
        pictures: see `bspml.audit`.
        **settings: of `bspml.audit`: seed, map_method.

    Raises:
        InputError: see `bspml.audit`.
    """
    kept = np.flatnonzero(~carried.is_dropped)
    kept_names = [names[i] for i in kept.tolist()]
    if pictures is not None:
        pictures = PictureHashes(pictures.bits[kept], pictures.is_hashed[kept])
    kept_labels = carried.labels[kept]
    if len(classes := np.unique(kept_labels)) < 2:
        raise InputError(
            f"the earlier decisions leave {counted(len(kept), 'sample')} of "
            f"{counted(len(classes), 'class', 'classes')} to audit; an audit needs two classes or "
            "more. Look at what they drop or relabel, or leave them out."
        )
    report = audit(embeddings[kept], kept_labels, kept_names, pictures=pictures, **settings)
    labels = plain_labels(carried.labels)
    columns: dict[str, Any] = {}
    for name in set(ARRAYS) - {"labels", "names"}:
        values = getattr(report, name)
        if name.endswith("_neighbours"):
            values = np.where(values >= 0, kept[values], -1)
        rest = labels if name.endswith("_labels") else _UNKNOWN[values.dtype.kind]
        shape, kind = (len(labels), *values.shape[1:]), np.asarray(rest).dtype
        columns[name] = np.array(np.broadcast_to(rest, shape), kind)
        columns[name][kept] = values
    is_kept = np.where(carried.decided != "", ~carried.is_dropped, columns["weights"])
    columns |= {"labels": labels, "names": text_objects(names), "weights": is_kept * 1.0}
    pairs = report.duplicates
    pairs = pairs.assign(first=kept[pairs["first"]], second=kept[pairs["second"]])
    is_right = (carried.decided != "") & ~carried.is_dropped
    copies = _copies_of_dropped(embeddings, carried)
    _tell_copies_of_dropped(columns, copies)
    group = copy_groups(pairs, len(labels))
    told, is_wrong = _tell_copies(columns, group, is_right)
    least = (is_wrong | (copies & ~told)).sum() / len(kept)
    most = 1 - (is_right | (told & ~is_wrong)).sum() / len(kept)
    places = np.zeros((len(labels), 2), np.float32)  # what was dropped lies in the middle
    places[kept] = report.embedding_map
    # Nobody is in doubt of a label that a person decided, or of its copies: doubt and what they
    # turned out to be change places in every rate.
    doubt = np.nansum(np.where(is_right, 0.0, columns["wrong_probability"]))
    sure = float(np.nansum(report.wrong_probability) - doubt) / len(kept)

    def less(share: Any) -> Any:  # of 1 nothing is known
        left = np.clip(np.subtract(share, sure), least, most)
        left = np.where(np.equal(share, 1) & (least < most), share, left).tolist()
        return tuple(left) if isinstance(share, tuple) else left

    rates = "noise_rate", "interval", "total_rate", "total_interval", "lower_bound", "upper_bound"
    shares = {name: less(getattr(report, name)) for name in rates}
    ends = shares["lower_bound"], shares["upper_bound"]
    sentence = error_sentence(shares["total_rate"], shares["total_interval"], ends)
    merged = replace(
        report,
        **columns,
        **shares,
        sentence=sentence if sure else report.sentence,
        notes=(carried.sentence, *_contradictions(group, labels, is_right), *report.notes),
        duplicates=pairs,
        groups=report.groups.assign(rows=[_placed(rows, kept) for rows in report.groups["rows"]]),
        embedding_map=places,
        decided=carried.decided,
        given_labels=carried.given,
        picture_keys=None if carried.pictures is None else np.array(carried.pictures),
    )
    return replace(merged, classes=flagged_by_class(merged, merged.weights))


def _copies_of_dropped(embeddings: Any, carried: CarriedDecisions) -> np.ndarray:
    """Say which are exact copies of what was dropped, under the label that is wrong for it."""
    x, n = torch.as_tensor(embeddings), len(carried.labels)
    if not carried.is_dropped.any() or all_in_one_place(x):
        return np.zeros(n, bool)
    rows = grid_unit_rows(x)
    first = np.where((rows != 0).any(1).cpu().numpy(), first_equal(rows), -1)
    key = first * n + np.unique(carried.labels, return_inverse=True)[1]
    return np.isin(key, key[carried.is_dropped & (first >= 0)]) & (carried.decided == "")


def _contradictions(group: np.ndarray, labels: np.ndarray, is_right: np.ndarray) -> tuple[str, ...]:
    """Say where labels of one picture were all decided to be right."""
    rights, codes = np.flatnonzero(is_right), np.unique(labels, return_inverse=True)[1]
    once = Distinct.of_groups(group[rights], codes[rights])
    rows = rights[once.num_labels[once.place] > 1]
    sentence = (
        f"Rows {some_of(rows)} were decided to be right and are copies of others with other labels "
        "that were, too. One of a picture's is right at most: decide anew; no rate counts others."
    )
    return (sentence,) if len(rows) else ()


def _tell_copies_of_dropped(columns: dict[str, Any], copies: np.ndarray) -> None:
    """Write that these labels are wrong: another one is suggested, its chances in proportion."""
    chances, suggested = columns["suggestion_probability"], columns["suggested_labels"]
    own = copies & (suggested == columns["labels"])  # of the next best no chance is known
    suggested[own], chances[own] = columns["other_labels"][own], np.nan
    rest = copies & ~own
    chances[rest] = np.minimum(chances[rest] / columns["wrong_probability"][rest], 1)
    columns["wrong_probability"][copies], columns["weights"][copies] = 1, 0


def _tell_copies(
    columns: dict[str, Any], group: np.ndarray, is_right: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Write what a person decided on one copy to the others: right ones under its label, wrong ones
    under other labels.

    Args:
        columns: of N samples, which are written to.
        group: (N,) int64 of copies.
        is_right: (N,) bool, decided so.

    Returns:
        (N,) bool, what is known of by a copy, and what is known to be wrong.
    """
    n, labels = len(group), columns["labels"]
    key = group * n + np.unique(labels, return_inverse=True)[1]
    told = np.isin(group, group[is_right]) & ~is_right
    wrong = told & ~np.isin(key, key[is_right])
    decided = np.zeros(n, np.int64)
    decided[group[is_right]] = np.flatnonzero(is_right)
    twin = decided[group[wrong]]
    columns["wrong_probability"][told] = wrong[told]
    columns["q_values"] = wrong_share_of_kept(
        np.where(columns["testable"], columns["wrong_probability"], np.nan)
    )
    columns["weights"][told] = ~wrong[told]
    columns["suggestion_probability"][told] = 1
    columns["suggested_labels"][told] = labels[told]
    columns["suggested_labels"][wrong] = columns["other_labels"][wrong] = labels[twin]
    columns["other_neighbours"][wrong] = -1
    columns["other_neighbours"][wrong, 0] = twin
    return told, wrong


def _placed(rows: str, kept: np.ndarray) -> str:
    """The row numbers of a group, among all samples."""
    return " ".join(str(kept[int(row)]) for row in rows.split())
