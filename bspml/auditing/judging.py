"""`bspml.audit`: which labels are wrong, what they should be, copies, and doubtful classes.

    embeddings, labels -> copies -> distinct samples -> contrastive statistics -> p, random rate
                                                     -> label model -> P(wrong), total rate, class

Copies count once: samples of one group of copies under one label are one sample, so that none is
vouched for by its own copies, and what is found of it holds for all of them.  A picture under
several labels vouches for the one that most of its copies have, or for none, and at most one of
its labels is right.  One under three labels or more, none of them on most copies, is no sample of a
class but a finding of its own; its labels are left out of the statistics and counted as wrong, but
for each label's share.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from bspml.auditing.class_shares import weights_by_class
from bspml.auditing.classes import ClassFindings, examine_classes
from bspml.auditing.columns import column, texts_of_rows
from bspml.auditing.embedding_map import check_map_method, embedding_map
from bspml.auditing.evidence import judge_distinct
from bspml.auditing.groups_table import groups_table
from bspml.auditing.neighbours import nearest_in_class
from bspml.auditing.picture_hashes import PictureHashes
from bspml.auditing.report import AuditReport, fits_nothing
from bspml.errors import InputError, MissingDependencyError
from bspml.evaluation.neighbours import find_faiss
from bspml.files.cells import empty_rows, plain_labels
from bspml.statistics.contrastive import contrastive_tables
from bspml.statistics.copies.distinct import Distinct
from bspml.statistics.copies.duplicates import OUTER, find_duplicates, renumbered
from bspml.statistics.copies.nearest import LISTS, Nearest, nearest_of_all, nearest_of_candidates
from bspml.statistics.label_shares import wrong_share_of_kept
from bspml.tensors.arguments import check_flags, check_kind
from bspml.tensors.checks import (
    Labels,
    check_choice,
    check_embeddings,
    check_whole,
    encode_labels,
    some_of,
)
from bspml.tensors.copies import content_order
from bspml.tensors.precision import full_precision
from bspml.tensors.row_index import check_same_rows
from bspml.tensors.unit_rows import rows_to_judge
from bspml.weights.problem import by_first_appearance
from bspml.words import counted, shown

FLAGGED_ABOVE = 0.5  # probability of being wrong
_SPARE = 16  # candidates beyond the neighbours, by which these are proved the nearest
NEIGHBOURS_FROM = 200_000  # below, an exact audit takes no longer than an approximate one
_SEARCHED = 2048  # samples of a class among which an approximate audit seeks neighbours


@full_precision()
def audit(
    embeddings: Any,
    labels: Any,
    names: Any = None,
    a: float = 10.0,
    seed: int = 0,
    *,
    neighbours: int = 3,
    backend: str = "auto",
    pictures: PictureHashes | None = None,
    map_method: str = "pca",
    texts: Any = None,
    search: str = "auto",
    across_ranks: bool = False,
) -> AuditReport:
    """Judge every label by how well its sample's embedding fits the others of its class.

    The embedding must not have been trained on these labels: a network pulls its training samples
    towards the classes they were given, right or wrong, and the noise rate comes out too low.

    Memory beside the embeddings: two normalised copies and some hundred MiB, whatever N and C.
    Deterministic.

    Args:
        embeddings: (N, D) of images, texts, sounds, anything; rows are normalised here.  A column
            of zeros changes nothing; one that repeats others, or a turn that fills columns of
            zeros, is a dimension more to the label model.  Drop such columns first.
        labels: (N,) integers or text, none of it empty, at least two classes.  Booleans become 0
            and 1.  Pandas objects must have one index, which `AuditReport.table` has, too.
        names: N texts, or None, to recognise the samples by, such as file names.
        a: inverse temperature of the soft means, in [0.001, 40]; see
            `bspml.statistics.contrastive`.
        seed: of the simulations behind the class flags; nothing else is random.
        neighbours: nearest samples reported per sample and class.
        backend: of the search for copies: "auto", "faiss" or "torch"; the same result.
        pictures: of `bspml.auditing.picture_hashes.hash_pictures`, to find altered copies of
            photos that the embeddings set apart.
        map_method: of the map on the page: "pca" or "umap", which needs `bspml[map]`.
        texts: N texts that the embeddings are of, to be read on the page where a photo would be
            seen.
        search: "exact"; "neighbours", nearly linear in N, with faiss: neighbours and copies from
            inverted lists with a measured recall, sampled statistics, and judges with fewer
            references; the notes say with what error.  "auto": exact below `NEIGHBOURS_FROM`
            samples, and wherever faiss is not installed.
        across_ranks: share the neighbour search and the sampled statistics among the processes of
            a torch.distributed group.  Each must make this call, with the same arguments, and gets
            the whole report.

    Returns:
        `AuditReport`.

    Raises:
        InputError: wrong shapes or values, other pandas indices, empty labels, or fewer than two
            classes.

    Example:
        >>> x = np.repeat(np.eye(4), 8, 0) + 0.2 * np.random.default_rng(0).normal(size=(32, 4))
        >>> report = audit(x, ["b", *"aaaaaaa", *"bbbbbbbb", *"cccccccc", *"dddddddd"])
        >>> report.table()["index"].iloc[0].item(), report.suggested_labels[0].item()
        (0, 'a')
    """
    check_flags(across_ranks=across_ranks)
    index = check_same_rows(embeddings=embeddings, labels=labels, names=names, texts=texts)
    if index is not None and not index.is_unique:
        repeated = shown(index[index.duplicated()].tolist()[0])
        warnings.warn(
            f"the index of these data says {repeated} of several samples, so "
            "`AuditReport.table()`, which has it too, cannot be joined to them. Give each sample "
            "its own, as `reset_index(drop=True)` does.",
            stacklevel=3,
        )
    embeddings = check_embeddings(embeddings)
    encoded = encode_labels(labels, n=len(embeddings))
    encoded = replace(encoded, classes=plain_labels(encoded.classes))
    if pictures is not None:
        check_kind(pictures, "pictures", PictureHashes, "what hash_pictures returned, or None")
        if len(pictures.bits) != len(embeddings):
            raise InputError(
                f"`pictures` must be hashes of all {len(embeddings)} samples, in their order; got "
                f"{len(pictures.bits)}. Hash one file a sample, None where it has none."
            )
    seed = check_whole(seed, "seed", 0)
    neighbours = check_whole(neighbours, "neighbours", high=2**24)
    check_choice(backend, "backend", ("auto", "faiss", "torch"))
    approximate = is_approximate(search, len(embeddings))
    check_map_method(map_method)
    name_array = texts_of_rows(names, "names", len(embeddings))
    text_array = None if texts is None else texts_of_rows(texts, "texts", len(embeddings))
    _check_not_empty(encoded)
    rows = rows_to_judge(embeddings)
    # All is told of samples in the order of their content, so that sums are rounded alike, and the
    # same one of several copies stands for them, whatever the order and the names.
    order = content_order(rows, encoded.codes.numpy())
    rows, given = rows[order], encoded.codes.numpy()[order]
    codes = by_first_appearance(given)
    named = given[np.unique(codes, return_index=True)[1]]
    classes = encoded.classes[named]
    told = Labels(torch.from_numpy(codes), classes)
    if pictures is not None:
        pictures = PictureHashes(pictures.bits[order], pictures.is_hashed[order])
    seen, near = None, None
    if embeddings.device.type == "cpu" and not approximate:
        # One pass serves the statistics and the search.
        seen = contrastive_tables(rows, told, None, a, candidates=OUTER + _SPARE)
        near = nearest_of_candidates(rows, seen.candidates, OUTER)
        seen = seen._replace(candidates=None)
    backend = LISTS if approximate else backend
    if near is None:
        near = nearest_of_all(rows, min(OUTER, len(rows) - 1), backend, across_ranks)
    copies = find_duplicates(rows, codes, backend=backend, near=near, pictures=pictures)
    once = Distinct.of(copies, codes)
    judged = judge_distinct(
        rows.to(embeddings.device), told, once, a, seen, approximate, across_ranks
    )
    wrong, other = judged.wrong_probability, judged.other
    fits_better = judged.other_probability > 1 - wrong
    fits_better &= ~fits_nothing(wrong, judged.outlier_score)
    suggested = np.where(fits_better, other, codes)
    weights = np.where(wrong > FLAGGED_ABOVE, 0.0, 1.0)
    findings = examine_classes(rows, codes, weights > 0, other, len(classes), seed)
    by_label = np.argsort(named)
    most = _SEARCHED if approximate else None
    place = np.argsort(order)  # of each sample as given

    def nearest(asked: np.ndarray) -> np.ndarray:
        found = nearest_in_class(rows, codes, asked, neighbours, near, most)
        return np.where(found < 0, -1, order[found])[place]

    duplicates = renumbered(copies, order)
    as_judged: dict[str, Any] = {
        name: value[place] if isinstance(value, np.ndarray) else value
        for name, value in vars(judged).items()
        if name not in ("notes", "other", "other_probability")
    }
    return AuditReport(
        **as_judged,
        notes=(*_notes_on_search(near, approximate), *judged.notes, *_notes_on_names(name_array)),
        labels=classes[codes][place],
        names=name_array,
        q_values=wrong_share_of_kept(np.where(judged.testable, wrong, np.nan))[place],
        weights=weights[place],
        suggested_labels=classes[suggested][place],
        suggestion_probability=np.where(suggested == codes, 1 - wrong, judged.other_probability)[
            place
        ],
        other_labels=classes[np.where(other >= 0, other, codes)][place],
        own_neighbours=nearest(codes),
        other_neighbours=nearest(other),
        classes=_class_table(classes, codes, weights, judged.testable, findings)
        .iloc[by_label]
        .reset_index(drop=True),
        duplicates=duplicates,
        groups=groups_table(duplicates, encoded.codes.numpy(), encoded.classes),
        embedding_map=embedding_map(rows, map_method)[place],
        map_method=map_method,
        index=index,
        texts=text_array,
    )


def is_approximate(search: str, n: int, name: str = "search") -> bool:
    """Return whether an audit is approximate; refuse one that cannot be had, before any work.

    Args:
        search: "auto", "exact" or "neighbours".
        n: samples.
        name: of the option, for the message.

    Raises:
        InputError: another search.
        MissingDependencyError: "neighbours" without faiss.

    Example:
        >>> is_approximate("auto", 1000), is_approximate("exact", 10**9)
        (False, False)
    """
    check_choice(search, name, ("auto", "exact", "neighbours"))
    if search == "neighbours" and find_faiss() is None:
        raise MissingDependencyError(
            f"{name}='neighbours' needs faiss, which is not installed; `pip install "
            f"'bspml[cpu]'`, or {name}='exact'."
        )
    if search == "auto":
        return n >= NEIGHBOURS_FROM and find_faiss() is not None
    return search == "neighbours" and n > 1  # one sample has no neighbour to look for


def _notes_on_search(near: Nearest, approximate: bool) -> tuple[str, ...]:
    if not approximate:
        return ()
    return (
        f"This audit is approximate: {near.recall:.1%} of the true nearest neighbours of some "
        "samples were found, so as many copies may be missing. `search='exact'` finds all, in a "
        "time that grows like the square of the samples.",
    )


def _notes_on_names(names: np.ndarray) -> tuple[str, ...]:
    counts = Counter(names[names != ""].tolist())
    shared = [name for name, count in counts.items() if count > 1]
    if not shared:
        return ()
    return (
        f"{counted(len(shared), 'name')} {'stands' if len(shared) == 1 else 'stand'} for several "
        f"samples each, the first is {shown(shared[0])}: decisions are found by name, so that "
        "those of this audit cannot be carried over.",
    )


def _check_not_empty(labels: Labels) -> None:
    empty = empty_rows(labels.classes.tolist()) if labels.classes.dtype.kind == "U" else []
    if empty:
        rows = np.flatnonzero(np.isin(labels.codes.numpy(), empty))
        raise InputError(
            f"`labels` must not be empty; rows {some_of(rows)} are. Name these labels, or drop "
            "the samples."
        )


def _class_table(
    classes: np.ndarray,
    codes: np.ndarray,
    weights: np.ndarray,
    testable: np.ndarray,
    findings: ClassFindings,
) -> pd.DataFrame:
    shares = weights_by_class(codes, weights, weights == 0, len(classes))
    tested = np.bincount(codes, testable, minlength=len(classes))
    flagged = shares["share_flagged"]
    shares["share_flagged"] = np.where(tested + flagged > 0, flagged, np.nan)
    text = classes.astype(str)
    return pd.DataFrame(
        {
            "label": column(classes),
            **shares,
            "looks_like_two": findings.looks_like_two,
            "two_score": np.where(np.isinf(findings.two_score), np.nan, findings.two_score),
            "looks_like": column(np.where(findings.looks_like >= 0, text[findings.looks_like], "")),
            "same_p": findings.same_p,
            "same_distance": findings.same_distance,
            "nearest_class": column(np.where(findings.nearest >= 0, text[findings.nearest], "")),
        }
    )
