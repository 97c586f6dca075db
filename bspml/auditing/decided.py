"""An audit of labels of which a person has decided some already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bspml.auditing.judging import audit
from bspml.auditing.report import AuditReport
from bspml.data.labels.carried import CarriedDecisions
from bspml.files.cells import plain_labels


def audit_decided(
    embeddings: Any, carried: CarriedDecisions, names: Sequence[str], seed: int = 0
) -> AuditReport:
    """Audit labels that earlier decisions corrected; what was decided is no suspect again.

    Decided labels keep their weight.  Samples without a right label are left out of the audit, as
    they would vouch for a wrong class, and have their row in the report all the same.

    Args:
        embeddings: (N, D).
        carried: what was decided of them.
        names: N names.
        seed: see `bspml.audit`.

    Raises:
        InputError: see `bspml.audit`.
    """
    kept = np.flatnonzero(~carried.is_dropped)
    kept_names = [names[i] for i in kept.tolist()]
    report = audit(embeddings[kept], carried.labels[kept], kept_names, seed=seed)
    labels = plain_labels(carried.labels)

    def spread(values: np.ndarray, rest: Any) -> np.ndarray:
        """The values at the places of the samples they are of, `rest` at the others."""
        whole = np.array(np.broadcast_to(rest, (len(labels), *values.shape[1:])), values.dtype)
        whole[kept] = values
        return whole

    def at_home(indices: np.ndarray) -> np.ndarray:
        return np.where(indices >= 0, kept[indices], -1)

    pairs = report.duplicates
    return replace(
        report,
        notes=(carried.sentence, *report.notes),
        labels=labels,
        names=np.array([str(name) for name in names], dtype=str),
        p_values=spread(report.p_values, np.nan),
        q_values=spread(report.q_values, np.nan),
        weights=np.where(carried.decided != "", ~carried.is_dropped, spread(report.weights, 0.0)),
        margins=spread(report.margins, np.nan),
        suggested_labels=spread(report.suggested_labels.astype(labels.dtype), labels),
        other_labels=spread(report.other_labels.astype(labels.dtype), labels),
        testable=spread(report.testable, False),
        own_neighbours=spread(at_home(report.own_neighbours), -1),
        other_neighbours=spread(at_home(report.other_neighbours), -1),
        duplicates=pairs.assign(first=kept[pairs["first"]], second=kept[pairs["second"]]),
        decided=carried.decided,
    )
