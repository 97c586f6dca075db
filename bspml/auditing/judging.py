"""`bspml.audit`: which labels are wrong, what they should be, copies, and doubtful classes.

The labels are judged once with every sample at weight 1; this gives the noise rate, p and q.  The
samples that look wrong are then left out, as references, of a second pass that gives the margins
and the suggested labels: a class is better described without its wrong members (at 50 % wrong
labels the right one is suggested for 3 to 4 more of 100).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from bspml.auditing.classes import ClassFindings, examine_classes
from bspml.auditing.duplicates import find_duplicates
from bspml.auditing.neighbours import nearest_in_class
from bspml.auditing.report import AuditReport, column
from bspml.checks import check_choice, check_embeddings, check_whole, encode_labels
from bspml.confusions import plausible_confusions
from bspml.contrastive import ContrastiveStatistics, contrastive_statistics
from bspml.errors import InputError
from bspml.evaluation.neighbours import unit_rows
from bspml.noise_rate import NoiseEstimate, estimate_noise
from bspml.shapes import Float, Tensor

__all__ = ["audit"]


def audit(
    embeddings: Any,
    labels: Any,
    names: Sequence[str] | None = None,
    a: float = 10.0,
    seed: int = 0,
    *,
    neighbours: int = 3,
    backend: str = "auto",
) -> AuditReport:
    """Judge every label by how well its sample's embedding fits the others of its class.

    The embedding must not have been trained on these labels: a network pulls its training samples
    towards the classes they were given, right or wrong, and the noise rate comes out too low.

    Memory beside the embeddings: two normalised copies and some hundred MiB, whatever N and C.
    Deterministic.

    Args:
        embeddings: (N, D) of images, texts, sounds, anything; rows are normalised here.
        labels: (N,) integers or text, at least two classes.
        names: N texts to recognise the samples by, such as file names.
        a: inverse temperature of the soft means, in (0, 40]; see `bspml.contrastive`.
        seed: of the simulations behind the class flags; nothing else is random.
        neighbours: nearest samples reported per sample and class.
        backend: of the search for copies: "auto", "faiss" or "torch"; the same result.

    Returns:
        `AuditReport`.

    Raises:
        InputError: wrong shapes or values, or fewer than two classes.

    Example:
        >>> rays = [[1, 0], [9, 1], [8, 1], [0, 1], [1, 9], [1, 8]] * 5
        >>> report = audit(rays, ["a", "a", "a", "b", "b", "b"] * 4 + list("baabbb"))
        >>> report.table()["index"][0].item(), report.suggested_labels[24].item()
        (24, 'a')
    """
    embeddings = check_embeddings(embeddings)
    encoded = encode_labels(labels, n=len(embeddings))
    seed, neighbours = check_whole(seed, "seed", 0), check_whole(neighbours, "neighbours")
    check_choice(backend, "backend", ("auto", "faiss", "torch"))
    listed = _check_names(names, len(embeddings))
    given = encoded.classes[encoded.codes.numpy()]
    stats = contrastive_statistics(embeddings, given, a=a)
    estimate = estimate_noise(stats, plausible_confusions(embeddings, stats).upper_bound)
    weights = keep_weights(stats, estimate)
    cleaned = _second_pass(embeddings, given, weights, stats)
    codes, other = stats.codes.numpy(), cleaned.other_class.numpy()
    margin, suggested = _suggestions(stats, cleaned)
    rows = unit_rows(embeddings.detach().cpu())
    found = examine_classes(rows, codes, weights > 0, other, len(stats.classes), seed)
    return AuditReport(
        noise_rate=estimate.noise_rate,
        interval=estimate.interval,
        lower_bound=estimate.lower_bound,
        upper_bound=1.0 if estimate.upper_bound is None else estimate.upper_bound,
        sentence=estimate.sentence,
        notes=estimate.notes,
        labels=given,
        names=listed,
        p_values=estimate.p_values.numpy(),
        q_values=estimate.q_values.numpy(),
        weights=weights,
        margins=margin,
        suggested_labels=stats.classes[suggested],
        other_labels=stats.classes[np.where(other >= 0, other, codes)],
        testable=stats.testable.numpy(),
        own_neighbours=nearest_in_class(rows, codes, codes, neighbours),
        other_neighbours=nearest_in_class(rows, codes, other, neighbours),
        classes=_class_table(stats.classes, codes, weights, stats.testable.numpy(), found),
        duplicates=find_duplicates(rows, codes, backend=backend),
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


def keep_weights(stats: ContrastiveStatistics, estimate: NoiseEstimate) -> np.ndarray:
    """(N,) 1 for the share 1 - noise rate of the testable samples with the smallest p, else 0.

    Equal p-values go by difficulty.  What cannot be judged keeps weight 1.
    """
    testable = np.flatnonzero(stats.testable.numpy())
    p, difficulty = estimate.p_values.numpy()[testable], stats.difficulty.numpy()[testable]
    by_fit = testable[np.lexsort((difficulty, p))]
    weights = np.ones(len(stats.codes))
    weights[by_fit[round((1 - estimate.noise_rate) * len(by_fit)) :]] = 0.0
    return weights


def _second_pass(
    embeddings: Float[Tensor, "N D"],
    labels: np.ndarray,
    weights: np.ndarray,
    stats: ContrastiveStatistics,
) -> ContrastiveStatistics:
    """Statistics without the samples of weight 0 as references, where enough remain."""
    remaining = (weights > 0) & ~np.isin(np.arange(len(weights)), stats.zero_rows.numpy())
    if remaining.all() or len(np.unique(labels[remaining])) < 2 or not (weights == 0).any():
        return stats
    return contrastive_statistics(embeddings, labels, weights, a=stats.a)


def _suggestions(
    stats: ContrastiveStatistics, cleaned: ContrastiveStatistics
) -> tuple[np.ndarray, np.ndarray]:
    """(N,) margins and codes of the best class, of the first pass where the second has none."""
    margin, best = cleaned.margin.numpy(), cleaned.best_class.numpy()
    gone = np.isnan(margin)  # all others of its class look wrong too
    return (
        np.where(gone, stats.margin.numpy(), margin),
        np.where(gone, stats.best_class.numpy(), best),
    )


def _class_table(
    classes: np.ndarray,
    codes: np.ndarray,
    weights: np.ndarray,
    testable: np.ndarray,
    found: ClassFindings,
) -> pd.DataFrame:
    support = np.bincount(codes, minlength=len(classes))
    tested = np.bincount(codes, testable, minlength=len(classes))
    flagged = np.bincount(codes, weights == 0, minlength=len(classes))
    text = classes.astype(str)
    return pd.DataFrame(
        {
            "label": column(classes),
            "support": support,
            "mean_weight": np.bincount(codes, weights, minlength=len(classes)) / support,
            "share_flagged": np.where(tested > 0, flagged / np.maximum(tested, 1), np.nan),
            "looks_like_two": found.looks_like_two,
            "two_score": np.where(np.isinf(found.two_score), np.nan, found.two_score),
            "looks_like": column(np.where(found.looks_like >= 0, text[found.looks_like], "")),
            "same_p": found.same_p,
            "same_distance": found.same_distance,
            "nearest_class": column(np.where(found.nearest >= 0, text[found.nearest], "")),
        }
    )
