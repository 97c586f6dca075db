"""What a finished classification or regression leaves behind, besides its records."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from bspml.experiment.classification.data import TaskData
from bspml.experiment.classification.losses import SampleLoss
from bspml.experiment.classification.scoring import final_row
from bspml.experiment.config import ClassificationConfig
from bspml.files.cells import label_cells
from bspml.files.delimited import write_table
from bspml.files.run import EpochRecord, RunFolder, WeightsTable, write_json, write_weights
from bspml.files.versions import versions_of
from bspml.shapes import Tensor

Results = dict[str, dict[str, float | None]]

_SUSPECT = 0.5
_LIBRARIES = ("torch", "numpy", "scikit-learn")  # that compute the results


def final_results(
    records: Sequence[EpochRecord], config: ClassificationConfig, data: TaskData
) -> Results:
    """{method: {column: value}}: see `final_row`; seconds of training.

    Where it is known which labels are right also the AUROC of the detection, and as false alarms
    the share of right labels trusted below 0.5.
    """
    results: Results = {}
    judged = any(record.detection_auroc is not None for record in records)
    known = any(record.false_alarm_rate is not None for record in records)
    for method in dict.fromkeys(record.method for record in records):
        own = [record for record in records if record.method == method]
        history = [record.extra["scores"] for record in own if "scores" in record.extra]
        row = final_row(history, config.task == "regression", data.held_out)
        if judged or known:
            row["AUROC"] = own[-1].detection_auroc
        if known:
            row["false alarms"] = own[-1].false_alarm_rate
        row["seconds"] = sum(record.seconds or 0.0 for record in own)
        results[method] = row
    return results


def write_samples(
    folder: RunFolder, data: TaskData, loss: SampleLoss, outputs: Tensor
) -> tuple[Tensor, Tensor]:
    """weights.csv and predictions.csv: what the trained network makes of every training sample.

    weights.csv holds the trust in [0, 1] (see `bspml.experiment.classification.losses`), as the
    audit and the report read it; predictions.csv the prediction, the probability of the given
    label, the plain loss and the weight as the papers define it.

    Args:
        folder: of the run.
        data: the run's.
        loss: in the state of the end of the training.
        outputs: (N, C) or (N,), of the training images.

    Returns:
        (N,) weight and (N,) trust.
    """
    weight, trust = loss.weights(outputs, data.targets)
    given, true = _labels(data, data.targets), _labels(data, data.true_targets)
    doubted = (trust < _SUSPECT).tolist()
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
    return weight, trust


def write_summary(
    folder: RunFolder, config: ClassificationConfig, data: TaskData, results: Results
) -> None:
    """summary.json, whose presence marks the run as complete."""
    write_json(
        folder.summary,
        {
            "name": config.name,
            "task": config.task,
            "held_out": data.held_out,
            "results": results,
            "true_noise_rate": data.noise_rate,
            "estimated_noise_rate": None,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "versions": versions_of(_LIBRARIES),
        },
    )


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
