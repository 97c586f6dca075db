"""The paper's problem with our statistics: rule="quadratic" of the automatic curriculum."""

from __future__ import annotations

from typing import Any

from bspml.shapes import Bool, Float, Tensor
from bspml.statistics.contrastive import ContrastiveStatistics
from bspml.weights.age import age_for_maw


def quadratic_weights(
    stats: ContrastiveStatistics, testable: Bool[Tensor, " N"], balance: float, maw: float
) -> tuple[Float[Tensor, " M"], dict[str, Any]]:
    """Solve eq. (6) with xi_pos = -s_i(y_i), xi_neg = t_i, each shifted to a minimum of 0.

    Args:
        stats: of all samples.
        testable: (N,) the M samples to weigh.
        balance: the paper's mu.
        maw: mean average weight to meet.

    Returns:
        Their weights, and fields of a `CurriculumRecord` about the solution.
    """
    xi_pos, xi_neg = -stats.own[testable], stats.everyone[testable]
    search = age_for_maw(
        xi_pos - xi_pos.min(), xi_neg - xi_neg.min(), stats.codes[testable], balance, maw
    )
    return search.solution.weights, {"age": search.age, **search.solution.fields()}
