"""Which rows a round samples: those that the curriculum keeps, as far as they fill its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bspml.data.sampler import PKSampler

if TYPE_CHECKING:
    from bspml.trainers.curriculum import FixedCurriculum, SelfPacedCurriculum


def choose_rows(
    sampler: PKSampler, curriculum: SelfPacedCurriculum | FixedCurriculum | None
) -> tuple[str, ...]:
    """Restrict the sampler to the curriculum's rows and draw classes by the current labels.

    Where what is kept has fewer classes than a batch needs (very high noise), all rows that the
    phase may see are sampled instead; their weights still apply.

    Args:
        sampler: of the training; it starts its epoch anew.
        curriculum: of the same rows; None allows every row.

    Returns:
        What is to be said of it: a sentence, or nothing.
    """
    if curriculum is None:
        sampler.set_rows(None, None)
        return ()
    notes: tuple[str, ...] = ()
    rows, codes = curriculum.training_rows(), curriculum.weights.current_codes
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
