"""How well weights find the wrong labels and the outliers, where the truth is known."""

from __future__ import annotations

from typing import Any

import torch

from bspml.errors import InputError
from bspml.evaluation.detection import NoiseDetection, detected
from bspml.shapes import Bool, Float, Tensor
from bspml.tensors.checks import as_numbers
from bspml.weights.state import SampleWeights


class Truth:
    """Know which labels are wrong, and which samples belong to no class that a label names.

    Outliers are wrong without a right answer.  They count neither as wrong nor as right labels:
    they are left out of the detection, and told from the right labels in figures of their own.
    Labels that a person decided on count nowhere: nobody else found them.
    """

    def __init__(self, is_noisy: Any, is_outlier: Any, n: int) -> None:
        self.is_noisy = _mask(is_noisy, "is_noisy", n)
        outliers = torch.zeros(n, dtype=torch.bool)
        self.is_outlier = outliers if is_outlier is None else _mask(is_outlier, "is_outlier", n)

    def figures(self, table: SampleWeights, scores: Float[Tensor, " N"] | None) -> dict[str, Any]:
        """Return the fields of a `CurriculumRecord` that need the truth.

        Args:
            table: of the weights of N labels, and of what was decided.
            scores: (N,) p-values behind them, large where suspicious, NaN where unknown; or None.
        """
        weights, decided = table.of_given_labels.detach().cpu(), table.fixed.cpu()
        wrong = self._wrong(weights, decided)
        fields: dict[str, Any] = {
            "detection_auroc": wrong.auroc,
            "detection_precision": wrong.precision,
            "detection_recall": wrong.recall,
            "false_alarm_rate": wrong.false_alarm_rate,
        }
        # The p-values, where there are any, order the samples better than weights of 0 and 1.
        ranks, unknown = weights, decided
        if scores is not None and not scores.isnan().all():
            ranks, unknown = 1 - scores.nan_to_num(), scores.isnan() | decided
            fields["score_auroc"] = self._wrong(ranks, unknown).auroc
        if self.is_outlier.any():
            fields["outlier_auroc"] = self._outliers(ranks, unknown).auroc
            fields["outlier_recall"] = self._outliers(weights, decided).recall
        return fields

    def _wrong(self, ranks: Tensor, unknown: Tensor) -> NoiseDetection:
        return detected(ranks, self.is_noisy, ignore=self.is_outlier | unknown)

    def _outliers(self, ranks: Tensor, unknown: Tensor) -> NoiseDetection:
        # Against right labels: wrong ones of a known class are left out.
        ignored = (self.is_noisy & ~self.is_outlier) | unknown
        return detected(ranks, self.is_outlier, ignore=ignored)


def _mask(values: Any, name: str, n: int) -> Bool[Tensor, " N"]:
    mask = as_numbers(values, name, f"({n},) bools, one per sample", "True marks a sample.").cpu()
    if mask.shape != (n,):
        raise InputError(
            f"`{name}` must be (N,) = ({n},) like the weights; got {tuple(mask.shape)}."
        )
    other = (mask != 0) & (mask != 1)  # NaN too
    if other.any():
        row = int(other.nonzero()[0, 0])
        raise InputError(
            f"`{name}` must be True or False per sample; got {float(mask[row]):g} at row {row}. "
            "Compare a score with a threshold first."
        )
    return mask.bool()
