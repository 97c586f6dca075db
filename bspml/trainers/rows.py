"""Which rows a round draws its batches from."""

from __future__ import annotations

from typing import Any

from bspml.data.sampler import PKSampler


def choose_rows(sampler: PKSampler, curriculum: Any) -> tuple[str, ...]:
    """Restrict a sampler to the curriculum's rows and labels, as far as they fill its batches.

    Args:
        sampler: of the training set.
        curriculum: a `SelfPacedCurriculum` or `FixedCurriculum`; None allows every row.

    Returns:
        Notes for the record of the round: what could not be done as the curriculum asks.
    """
    if curriculum is None:
        sampler.set_rows(None)
        return ()
    rows, codes = curriculum.training_rows(), curriculum.weights.current_codes
    notes: tuple[str, ...] = ()
    if rows is not None:
        classes = len(codes.cpu()[rows].unique())
        if classes < sampler.classes_per_batch:
            notes = (
                f"the weights keep {int(rows.sum())} rows of {classes} classes, fewer than the "
                f"{sampler.classes_per_batch} classes of a batch; rows of weight 0 were sampled "
                "too",
            )
            rows = curriculum.allowed_rows()
    sampler.set_rows(rows, codes)
    return notes
