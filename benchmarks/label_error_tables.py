"""Tables of label_errors.py: measures of rankings, the audit against the best, rates, alarms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from competitors import Opinion
from pairing import paired
from sklearn.metrics import average_precision_score, roc_auc_score

OURS = ("audit", "difficulty", "margin")
OTHERS = ("cleanlab", "cleanlab margin", "vote", "matrix", "posterior")
TOLERATED = 0.005
RESAMPLES = 200


def precision_at(wrong: np.ndarray, scores: np.ndarray) -> float:
    """Share of wrong labels among as many as are wrong; ties count by their share of wrong ones."""
    number = int(wrong.sum())
    last = np.sort(scores)[-number]
    above, tied = scores > last, scores == last
    return float((wrong[above].sum() + (number - above.sum()) * wrong[tied].mean()) / number)


MEASURES = {
    "AUROC": roc_auc_score,
    "average precision": average_precision_score,
    "precision": precision_at,
}


@dataclass(frozen=True)
class Row:
    """All draws of one data set and noise, with what everybody says of each."""

    data: str
    noise: str
    wrong: list[np.ndarray]
    said: list[dict[str, Opinion]]

    def values(self, measure: str) -> dict[str, np.ndarray]:
        """(seeds,) of every ranking."""
        compute = MEASURES[measure]
        return {
            name: np.array([
                compute(wrong, said[name].scores)
                for wrong, said in zip(self.wrong, self.said, strict=True)
            ])
            for name in (*OURS, *OTHERS)
        }  # fmt: skip

    def rates(self, name: str) -> np.ndarray:
        """(seeds, 3) estimate and the ends of its interval, NaN where there are none."""
        nothing = Opinion(np.empty(0), np.empty(0))
        return np.array([said.get(name, nothing).rate for said in self.said])

    def error(self, measure: str, values: dict[str, np.ndarray], other: str) -> float:
        """Standard error of the audit's mean difference from another ranking."""
        if len(self.wrong) > 1:
            return paired(values["audit"], values[other])[1]
        compute, rng, (wrong,), (said,) = (
            MEASURES[measure], np.random.default_rng(0), self.wrong, self.said
        )  # fmt: skip
        differences = []
        for _ in range(RESAMPLES):
            rows = rng.integers(0, len(wrong), len(wrong))
            ours, theirs = (
                compute(wrong[rows], said[name].scores[rows]) for name in ("audit", other)
            )
            differences.append(ours - theirs)
        return float(np.std(differences, ddof=1))

    def verdict(self, measure: str) -> dict[str, Any]:
        """The audit against the best competitor by the mean of `measure`."""
        values = self.values(measure)
        means = {name: float(v.mean()) for name, v in values.items()}
        best = max(OTHERS, key=means.__getitem__)
        difference, error = means["audit"] - means[best], self.error(measure, values, best)
        return {
            "data": self.data, "noise": self.noise, "measure": measure, **means, "best": best,
            "difference": difference, "error": error,
            "behind": bool(difference < -(TOLERATED + 2 * error)),
        }  # fmt: skip


def ranking_table(verdicts: list[dict[str, Any]]) -> Iterator[str]:
    """Lines of a Markdown table of one measure."""
    names = (*OURS, *OTHERS)
    yield "| data | noise | " + " | ".join(names) + " | audit - best (s.e.) | behind |"
    yield "|:--|:--|" + "--:|" * len(names) + ":--|:--|"
    for v in verdicts:
        yield (
            f"| {v['data']} | {v['noise']} | "
            + " | ".join(f"{v[name]:.3f}" for name in names)
            + f" | {v['difference']:+.3f} ({v['error']:.3f}) {v['best']}"
            + f" | {'behind' if v['behind'] else 'no'} |"
        )


def alarm_table(rows: list[Row]) -> Iterator[str]:
    """Lines of a Markdown table: share of the labels that each calls wrong."""
    others = [name for name in OTHERS if name != "cleanlab margin"]  # its flags are cleanlab's
    names = ("audit", "audit at most", *others)
    yield "| data | noise | flagged by audit | to look at by audit | " + " | ".join(others) + " |"
    yield "|:--|:--|" + "--:|" * len(names)
    for row in rows:
        shares = [np.mean([said[name].flags.mean() for said in row.said]) for name in names]
        yield f"| {row.data} | {row.noise} | " + " | ".join(f"{s:.3f}" for s in shares) + " |"


def rate_table(rows: list[Row]) -> Iterator[str]:
    """Lines of a Markdown table: estimates of the share of wrong labels, means over seeds."""
    yield (
        "| data | noise | true rate | random errors (interval) | all errors (interval) "
        "| holds the truth | upper bound | cleanlab | matrix |"
    )
    yield "|:--|:--|--:|:--|:--|--:|--:|--:|--:|"
    for row in rows:
        truth = np.array([wrong.mean() for wrong in row.wrong])
        total = row.rates("audit in all")
        holds = np.mean((total[:, 1] <= truth) & (truth <= total[:, 2]))
        cells = [
            row.data, row.noise, f"{truth.mean():.3f}", _estimate(row.rates("audit")),
            _estimate(total), "" if np.isnan(total).any() else f"{holds:.1f}",
            *(_estimate(row.rates(name)) for name in ("audit at most", "cleanlab", "matrix")),
        ]  # fmt: skip
        yield "| " + " | ".join(cells) + " |"


def _estimate(rates: np.ndarray) -> str:
    mean, low, high = rates.mean(0)
    if np.isnan(mean):
        return ""
    return f"{mean:.3f}" if np.isnan(low) else f"{mean:.3f} ({low:.3f} to {high:.3f})"
