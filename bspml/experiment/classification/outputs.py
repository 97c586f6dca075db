"""What a finished classification or regression leaves behind, besides its records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bspml.experiment.classification.data import TaskData
from bspml.experiment.classification.losses import SampleLoss
from bspml.experiment.classification.scoring import final_row
from bspml.experiment.config import ClassificationConfig
from bspml.files.cells import label_cells
from bspml.files.delimited import write_table
from bspml.files.run import SUSPECT_BELOW, EpochRecord, RunFolder, WeightsTable, write_weights
from bspml.report import tables
from bspml.report.tables import Results
from bspml.shapes import Tensor

_SHARED = ("AUROC", "false alarms", "seconds")  # columns that a retrieval has, too
LIBRARIES = ("torch", "numpy", "scikit-learn")  # that compute the results


def final_results(
    records: Sequence[EpochRecord], config: ClassificationConfig, data: TaskData
) -> Results:
    """Return the final table: the columns of `final_row`, and seconds of training.

    Where it is known which labels are right also the AUROC of the detection, and as false alarms
    the share of right labels trusted below `SUSPECT_BELOW`.

    Args:
        records: of every method.
        config: the run's.
        data: the run's.

    Returns:
        {method: {column: value}}.
    """
    results: Results = {}
    for method, shared in tables.final_results(records).items():
        measured = [r for r in records if r.method == method and "scores" in r.extra]
        history = [record.extra["scores"] for record in measured]
        row = final_row(history, config.task == "regression", data.held_out)
        results[method] = row | {name: shared[name] for name in _SHARED if name in shared}
    return results


def write_samples(folder: RunFolder, data: TaskData, loss: SampleLoss, outputs: Tensor) -> None:
    """Write what the trained network makes of every training sample, in two tables.

    weights.csv holds the trust in [0, 1] (see `bspml.experiment.classification.losses`), as the
    audit and the report read it; predictions.csv the prediction, the probability of the given
    label, the plain loss and the weight as the papers define it.

    Args:
        folder: of the run.
        data: the run's.
        loss: in the state of the end of the training.
        outputs: (N, C) or (N,), of the training images.
    """
    weight, trust = loss.weights(outputs, data.targets)
    given, true = _labels(data, data.targets), _labels(data, data.true_targets)
    doubted = (trust < SUSPECT_BELOW).tolist()
    write_weights(
        folder.weights,
        WeightsTable(
            given,
            trust.double().numpy(),
            flags=[["suspect"] if d else [] for d in doubted],
            is_noisy=data.is_noisy.numpy(),
            true_labels=true,
        ),
    )
    columns = {"index": [str(i) for i in range(len(given))]}
    if data.classes:
        columns |= {"label": label_cells(given), "true_label": label_cells(true)}
        columns["predicted"] = label_cells(_labels(data, outputs.argmax(1)))
        own = outputs.softmax(1).gather(1, data.targets[:, None])[:, 0]
        columns["probability"] = _numbers(own)
    else:
        columns["label"], columns["true_label"] = map(_numbers, (data.targets, data.true_targets))
        columns["predicted"] = _numbers(outputs)
    columns["loss"] = _numbers(loss.plain(outputs, data.targets))
    columns["weight"] = _numbers(weight)
    write_table(folder.path / "predictions.csv", columns)


def _labels(data: TaskData, targets: Tensor) -> np.ndarray:
    """Names of classes, or integers where those are numbers; the numbers of a regression."""
    if not data.classes:
        return targets.numpy()
    names = np.array(data.classes)
    if all(name.isdecimal() for name in data.classes):
        names = names.astype(np.int64)
    return names[targets.numpy()]


def _numbers(values: Tensor) -> list[str]:
    return [f"{value:.6g}" for value in values.tolist()]
