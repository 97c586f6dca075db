"""Embeddings that do not tell the classes apart: nothing is judged by them, and every label kept.

Told as an audit tells it, against permuted labels (`bspml.statistics.telling_apart`).
Without this, labels that fit like random ones are taken for random, and most are left out.
"""

from __future__ import annotations

from typing import Any

import torch

from bspml.errors import InputError
from bspml.shapes import Bool, Int, Tensor
from bspml.statistics import telling_apart as telling
from bspml.statistics.contrastive import ContrastiveStatistics
from bspml.trainers.curriculum.samples import Samples

NOT_JUDGED = "not judged"

_BLIND = (
    "{embeddings} do not tell the classes apart: permuted labels would fit as well. No label was "
    "judged, and all keep their weight. {remedy}"
)
_REMEDIES = {
    "features": (
        "Take the features of another backbone, one that knows such data, or train a network "
        'from scratch with warmup="cross-fit".'
    ),
    "cross-fit": (
        "Train the warm-up longer (`warmup_rounds`), or judge by the features of a pretrained "
        'backbone with warmup="features".'
    ),
}
_HONEST = {
    "features": "the embeddings of the first update",
    "cross-fit": "the networks of both halves",
}
_NOW = {
    "features": "the embeddings",
    "cross-fit": "the embeddings of a network trained on the other half",
}


def tell_apart(stats: ContrastiveStatistics, judged: Bool[Tensor, " N"], samples: Samples) -> bool:
    """Say whether the best class of the judged samples is their label more often than by chance.

    Where they judge each other and are few a class, as in an audit against permuted labels: of
    thousands of random samples, two a class, the best class is the label too often.

    Args:
        stats: of all samples, exact or sampled.
        judged: (N,) those that count.
        samples: all of them.
    """
    classes = len(samples.codes[judged].unique())
    fewest = max(telling.FEWEST_TESTED, telling.FEWEST_OF_CLASS * classes)
    if judged.sum() < fewest and bool((samples.reference[judged] > 0).all()):
        # The others become classes of one, which are not tested.
        codes = torch.where(judged, samples.codes, ~torch.arange(len(judged)))
        return telling.tells_apart_anew(samples.embeddings, codes.numpy())
    exact = stats.exact_part
    told = judged & ~exact.margin.isnan()
    return telling.finds_labels(exact.best_class[told].numpy(), exact.codes[told].numpy())


def not_judged(warmup: str, later: bool = False) -> dict[str, Any]:
    """Return the fields of a `CurriculumRecord` that say so.

    Args:
        warmup: "features" or "cross-fit".
        later: in a round whose network was trained on the labels, and may not judge them.

    Example:
        >>> not_judged("features")["message"].split(":")[0]
        'the embeddings do not tell the classes apart'
    """
    who = (_HONEST if later else _NOW)[warmup]
    message = _BLIND.format(embeddings=who, remedy=_REMEDIES[warmup])
    if later:
        message = message.replace("do not tell", "did not tell")
        message += " The network has seen the labels since, and may not judge them either."
    return {"status": NOT_JUDGED, "message": message}


def check_left(codes: Int[Tensor, " M"], rate: float) -> None:
    """Refuse weights that keep fewer than two classes: labels are judged by comparing these.

    Args:
        codes: (M,) classes of the samples that keep weight.
        rate: share of labels that is left out.

    Raises:
        InputError: one class is left, or none.
    """
    left = codes.unique()
    if len(left) < 2:
        raise InputError(
            f"the embeddings fit hardly any label better than a random one (estimated noise "
            f"rate {rate:.2f}): {len(left)} classes would keep a sample, and two "
            "are needed to judge by. Are the embeddings collapsed, or the labels shuffled?"
        )
