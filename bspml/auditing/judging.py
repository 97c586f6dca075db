"""`bspml.audit`: which labels are wrong, what they should be, copies, and doubtful classes.

The labels are judged once with every sample at weight 1; this gives the noise rate, p and q.  The
samples that look wrong are then left out, as references, of a second pass that gives the margins
and the suggested labels: a class is better described without its wrong members (at 50 % wrong
labels the right one is suggested for 3 to 4 more of 100).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from bspml.auditing.classes import ClassFindings, examine_classes
from bspml.auditing.columns import column
from bspml.auditing.duplicates import find_duplicates
from bspml.auditing.embedding_map import check_map_method, embedding_map
from bspml.auditing.neighbours import nearest_in_class
from bspml.auditing.report import AuditReport
from bspml.errors import InputError
from bspml.files.cells import empty_rows, plain_labels
from bspml.shapes import Float, Tensor
from bspml.statistics.confusions import plausible_confusions
from bspml.statistics.contrastive import ContrastiveStatistics, contrastive_statistics
from bspml.statistics.noise_rate import (
    NoiseEstimate,
    best_fitting,
    estimate_noise,
    no_estimate,
    why_unjudgeable,
)
from bspml.tensors.checks import (
    Labels,
    check_choice,
    check_embeddings,
    check_whole,
    encode_labels,
    some_of,
)
from bspml.tensors.unit_rows import grid_unit_rows


def audit(
    embeddings: Any,
    labels: Any,
    names: Sequence[str] | None = None,
    a: float = 10.0,
    seed: int = 0,
    *,
    neighbours: int = 3,
    backend: str = "auto",
    map_method: str = "pca",
) -> AuditReport:
    """Judge every label by how well its sample's embedding fits the others of its class.

    The embedding must not have been trained on these labels: a network pulls its training samples
    towards the classes they were given, right or wrong, and the noise rate comes out too low.

    Memory beside the embeddings: two normalised copies and some hundred MiB, whatever N and C.
    Deterministic.

    Args:
        embeddings: (N, D) of images, texts, sounds, anything; rows are normalised here.
        labels: (N,) integers or text, none of it empty, at least two classes.  Booleans become 0
            and 1.
        names: N texts to recognise the samples by, such as file names.
        a: inverse temperature of the soft means, in [0.001, 40]; see
            `bspml.statistics.contrastive`.
        seed: of the simulations behind the class flags; nothing else is random.
        neighbours: nearest samples reported per sample and class.
        backend: of the search for copies: "auto", "faiss" or "torch"; the same result.
        map_method: of the map on the page: "pca" or "umap", which needs `bspml[map]`.

    Returns:
        `AuditReport`.

    Raises:
        InputError: wrong shapes or values, empty labels, or fewer than two classes.

    Example:
        >>> rays = [[1, 0], [9, 1], [8, 1], [0, 1], [1, 9], [1, 8]] * 5
        >>> report = audit(rays, ["a", "a", "a", "b", "b", "b"] * 4 + list("baabbb"))
        >>> report.table()["index"][0].item(), report.suggested_labels[24].item()
        (24, 'a')
    """
    embeddings = check_embeddings(embeddings)
    encoded = encode_labels(labels, n=len(embeddings))
    encoded = replace(encoded, classes=plain_labels(encoded.classes))
    seed, neighbours = check_whole(seed, "seed", 0), check_whole(neighbours, "neighbours")
    check_choice(backend, "backend", ("auto", "faiss", "torch"))
    check_map_method(map_method)
    name_array = _check_names(names, len(embeddings))
    _check_not_empty(encoded)
    stats = contrastive_statistics(embeddings, encoded, a=a)
    reason = why_unjudgeable(stats)
    if reason:
        estimate = no_estimate(stats, reason)
    else:
        estimate = estimate_noise(stats, plausible_confusions(embeddings, stats).upper_bound)
    testable = stats.testable.numpy() & (reason == "")
    weights = keep_weights(stats, estimate, estimate.supported_rate)
    # To leave a right one out as a reference costs little, to keep a wrong one more.
    references = keep_weights(stats, estimate, estimate.noise_rate)
    second_stats = _second_pass(embeddings, encoded, references, stats)
    codes, other = stats.codes.numpy(), second_stats.other_class.numpy()
    margin, suggested = _suggestions(stats, second_stats)
    if reason:  # what is left of the margins is rounding
        margin, suggested = np.full(len(codes), np.nan), codes
    rows = grid_unit_rows(embeddings.detach().cpu())
    findings = examine_classes(rows, codes, references > 0, other, len(stats.classes), seed)
    return AuditReport(
        noise_rate=estimate.noise_rate,
        interval=estimate.interval,
        lower_bound=estimate.lower_bound,
        upper_bound=1.0 if estimate.upper_bound is None else estimate.upper_bound,
        sentence=estimate.sentence,
        notes=(*estimate.notes, *_note_on_weights(estimate)),
        labels=stats.classes[codes],
        names=name_array,
        p_values=estimate.p_values.numpy(),
        q_values=estimate.q_values.numpy(),
        weights=weights,
        margins=margin,
        suggested_labels=stats.classes[suggested],
        other_labels=stats.classes[np.where(other >= 0, other, codes)],
        testable=testable,
        own_neighbours=nearest_in_class(rows, codes, codes, neighbours),
        other_neighbours=nearest_in_class(rows, codes, other, neighbours),
        classes=_class_table(stats.classes, codes, weights, testable, findings),
        duplicates=find_duplicates(rows, codes, backend=backend),
        embedding_map=embedding_map(rows, map_method),
        map_method=map_method,
    )


def _check_names(names: Sequence[str] | None, n: int) -> np.ndarray:
    if names is None:
        return np.full(n, "")
    if isinstance(names, str) or len(names) != n:
        raise InputError(
            f"`names` must be one text per sample, {n}; got "
            f"{'a single text' if isinstance(names, str) else len(names)}."
        )
    return np.array([str(name) for name in names], dtype=str)


def _check_not_empty(labels: Labels) -> None:
    empty = empty_rows(labels.classes.tolist()) if labels.classes.dtype.kind == "U" else []
    if empty:
        rows = np.flatnonzero(np.isin(labels.codes.numpy(), empty))
        raise InputError(
            f"`labels` must not be empty; rows {some_of(rows)} are. Name these labels, or drop "
            "the samples."
        )


def _note_on_weights(estimate: NoiseEstimate) -> tuple[str, ...]:
    if estimate.supported_rate >= estimate.noise_rate:
        return ()
    return (
        "The interval reaches down to 0, where correct labels of samples that fit badly explain "
        f"what is seen: only {100 * estimate.supported_rate:.1f} % of the labels get weight 0.",
    )


def keep_weights(stats: ContrastiveStatistics, estimate: NoiseEstimate, rate: float) -> np.ndarray:
    """Return (N,) 0 for the share `rate` of the testable samples with the largest p, else 1.

    Labels are flagged at the `supported_rate`: that is the noise rate where the data prove that
    some labels are wrong.  Where they do not, flagging as many would accuse correct labels, 4 to
    12 of 100 in clean classes that overlap; the supported rate accuses 0 or 1.

    Equal p-values go by difficulty.  What cannot be judged keeps weight 1.

    Args:
        stats: of all samples at weight 1.
        estimate: from them.
        rate: share of the testable samples, in [0, 1].
    """
    weights, testable = torch.ones(len(stats.codes), dtype=torch.float64), stats.testable
    fits = best_fitting(estimate.p_values[testable], stats.difficulty[testable], 1 - rate)
    weights[testable] = fits.double()
    return weights.numpy()


def _second_pass(
    embeddings: Float[Tensor, "N D"],
    labels: Labels,
    weights: np.ndarray,
    stats: ContrastiveStatistics,
) -> ContrastiveStatistics:
    """Statistics without the samples of weight 0 as references, where enough remain."""
    remaining = (weights > 0) & ~np.isin(np.arange(len(weights)), stats.zero_rows.numpy())
    classes = np.unique(labels.codes.numpy()[remaining])
    if remaining.all() or len(classes) < 2 or not (weights == 0).any():
        return stats
    return contrastive_statistics(embeddings, labels, weights, a=stats.a)


def _suggestions(
    stats: ContrastiveStatistics, second_stats: ContrastiveStatistics
) -> tuple[np.ndarray, np.ndarray]:
    """(N,) margins and codes of the best class, of the first pass where the second has none."""
    margin, best = second_stats.margin.numpy(), second_stats.best_class.numpy()
    is_missing = np.isnan(margin)  # all others of its class look wrong too
    return (
        np.where(is_missing, stats.margin.numpy(), margin),
        np.where(is_missing, stats.best_class.numpy(), best),
    )


def _class_table(
    classes: np.ndarray,
    codes: np.ndarray,
    weights: np.ndarray,
    testable: np.ndarray,
    findings: ClassFindings,
) -> pd.DataFrame:
    support = np.bincount(codes, minlength=len(classes))
    tested = np.bincount(codes, testable, minlength=len(classes))
    num_flagged = np.bincount(codes, weights == 0, minlength=len(classes))
    text = classes.astype(str)
    return pd.DataFrame(
        {
            "label": column(classes),
            "support": support,
            "mean_weight": np.bincount(codes, weights, minlength=len(classes)) / support,
            "share_flagged": np.where(tested > 0, num_flagged / np.maximum(tested, 1), np.nan),
            "looks_like_two": findings.looks_like_two,
            "two_score": np.where(np.isinf(findings.two_score), np.nan, findings.two_score),
            "looks_like": column(np.where(findings.looks_like >= 0, text[findings.looks_like], "")),
            "same_p": findings.same_p,
            "same_distance": findings.same_distance,
            "nearest_class": column(np.where(findings.nearest >= 0, text[findings.nearest], "")),
        }
    )
