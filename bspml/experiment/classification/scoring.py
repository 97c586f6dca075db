"""What a network has learnt: from clean samples, from wrong labels, and for new images.

Accuracies as in table 6 of [Wang IMAE 2019] and table 11 of [Wang GR 2019].  *Hybrid* accuracy is
that on test and training images together, all with their true labels.  The text of [Wang IMAE
2019] speaks of the "clean training set"; that it means all training images follows from the table:
at 40 % noise, ResNet-20 and cross-entropy, 67.0 on 10,000 test images and 93.3 on the 30,000
samples of the clean subset would make 86.7, and 72.6 is printed.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from bspml.experiment.classification.data import TaskData
from bspml.shapes import Float, Tensor

Scores = dict[str, float | None]


@torch.no_grad()
def predict(
    network: nn.Module, images: Tensor, batch_size: int, device: torch.device
) -> Float[Tensor, "N ..."]:
    """Return what a network says of uint8 images, in evaluation mode.

    The network is in train mode afterwards.

    Args:
        network: on `device`; maps images in [0, 1] to outputs.
        images: (N, channels, H, W) uint8.
        batch_size: images per forward pass.
        device: of the network.

    Returns:
        (N, C) logits or (N,) numbers, on the CPU.
    """
    network.eval()
    try:
        parts = [
            network(part.to(device, non_blocking=True).float() / 255).float().cpu()
            for part in images.split(batch_size)
        ]
    finally:
        network.train()
    return torch.cat(parts)


def score(outputs: Tensor, test_outputs: Tensor, data: TaskData, truncation: float) -> Scores:
    """Compute accuracies, or errors of a regression, on each part of the data; None: no such part.

    Classification, shares of 1: `held_out` (test images, or noisy validation); on the training
    images `clean` (subset with right labels), `noisy` (wrong labels reproduced), `noisy_true`
    (true labels found in spite of them), `given` (all, labels as given), `true` (all, true
    labels); and `hybrid`.  Regression: the same, mean absolute errors, and `truncated`, the mean
    of min(error, truncation) on the held-out samples [Castells 2020, supplement 3.1], by which
    settings can be chosen although some of their targets are wrong.

    Args:
        outputs: (N, C) or (N,), of the training images.
        test_outputs: (M, C) or (M,).
        data: which targets they should have.
        truncation: above 0.
    """
    held_out = _per_sample(test_outputs, data.test_targets)
    given, true = _per_sample(outputs, data.targets), _per_sample(outputs, data.true_targets)
    noisy = data.is_noisy
    found: Scores = {
        "held_out": _mean(held_out),
        "clean": _mean(given[~noisy]),
        "noisy": _mean(given[noisy]),
        "noisy_true": _mean(true[noisy]),
        "given": _mean(given),
        "true": _mean(true),
        "hybrid": _mean(torch.cat([held_out, true])) if data.held_out == "test" else None,
    }
    if outputs.ndim == 1:
        found["truncated"] = _mean(held_out.clamp(max=truncation))
    return found


def _per_sample(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 where the predicted class is the target's, else 0; of a regression, the absolute error."""
    hits = outputs.argmax(1) == targets if outputs.ndim == 2 else (outputs - targets).abs()
    return hits.double()


def _mean(values: Tensor) -> float | None:
    return float(values.mean()) if len(values) else None


def final_row(
    history: list[Mapping[str, float | None]], regression: bool, held_out: str
) -> dict[str, float | None]:
    """Return a method's row of the final table: its best epoch on held-out samples, then its last.

    `best` looks at every measured epoch with the held-out labels in hand: it is the papers' figure,
    not a way to choose a model.

    Args:
        history: `score` of every measured epoch, oldest first; at least one.
        regression: errors, of which the least is best, instead of accuracies.
        held_out: "test" or "validation".
    """
    last = history[-1]
    values = [scores["held_out"] for scores in history]
    known = [value for value in values if value is not None]
    best = (min if regression else max)(known, default=None)
    if regression:
        return {
            f"{held_out} MAE, best": best,
            f"{held_out} MAE": last["held_out"],
            f"{held_out}, truncated": last["truncated"],
            "clean MAE": last["clean"],
            "noisy MAE": last["noisy"],
            "noisy MAE to truth": last["noisy_true"],
        }
    row = {
        f"{held_out}, best %": best,
        f"{held_out} %": last["held_out"],
        "clean %": last["clean"],
        "noisy %": last["noisy"],
        "noisy, true label %": last["noisy_true"],
        "train, given %": last["given"],
        "train, true %": last["true"],
        "hybrid %": last["hybrid"],
    }
    return {key: None if value is None else 100 * value for key, value in row.items()}
