"""What the training is measured against: the network before its first step.

Where it begins with features of a pretrained backbone, these, without the new layer on them, are
what a user would have for nothing; a training that ends below them says so.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bspml.experiment.build import make_network
from bspml.experiment.config import Config
from bspml.experiment.data import ExperimentData
from bspml.experiment.measuring import Measuring, rows_of
from bspml.files.run import EpochRecord
from bspml.networks.heads import features_alone, start_orthogonal, start_principal

_ENOUGH = 4096  # training samples that the principal components are of, at most


def first_network(config: Config, data: ExperimentData, device: torch.device) -> nn.Module:
    """Build the network that every method starts from, on the device.

    Args:
        config: the experiment.
        data: its data; the head may start from the training images.
        device: where it shall live.
    """
    network = make_network(config, data.width).to(device)
    if config.head == "orthogonal":
        start_orthogonal(network, config.seed)
    elif config.head == "principal":
        start_principal(network, _training_features(config, data, network, device))
    return network


def _training_features(
    config: Config, data: ExperimentData, network: nn.Module, device: torch.device
) -> torch.Tensor:
    """Return (n, F) features of the training set, or of rows drawn from it."""
    generator = torch.Generator().manual_seed(config.seed)
    rows = torch.randperm(len(data.codes), generator=generator)[:_ENOUGH].sort().values
    return Measuring(config, data, device).embed(
        features_alone(network), rows_of(data.images, rows)
    )


def untrained_network(config: Config, data: ExperimentData, network: nn.Module) -> nn.Module:
    """Return what a user would have without training: the pretrained features, as they are.

    Args:
        config: the experiment.
        data: its data; features of a frozen backbone are taken as they are.
        network: before its first step; returned where nothing in it is a feature.
    """
    if data.features is not None:
        return nn.Identity()
    return features_alone(network) if config.network.starts_from_features else network


def untrained_fields(
    config: Config, measuring: Measuring, network: nn.Module
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Measure the features that a training starts from, and the network that it starts with.

    Args:
        config: the experiment.
        measuring: of the experiment.
        network: before its first step.

    Returns:
        Fields of two records, the same where there are no features.
    """
    first, bare = measuring.evaluate(network), untrained_network(config, measuring.data, network)
    return (first if bare is network else measuring.evaluate(bare)), first


def worse_than_untrained(config: Config, record: EpochRecord, untrained: EpochRecord) -> str | None:
    """Say that a trained network is worse than what it started from, and what to try.

    Args:
        config: the experiment.
        record: of the network that is kept.
        untrained: of what it started from.

    Returns:
        A sentence; None where it is as good or better in Recall@K and in MAP@R.
    """
    k = config.evaluation.ks[0]
    pairs = {
        f"Recall@{k}": (record.recall_at_k.get(k), untrained.recall_at_k.get(k)),
        "MAP@R": (record.map_at_r, untrained.map_at_r),
    }
    known = {name: (a, b) for name, (a, b) in pairs.items() if a is not None and b is not None}
    lost = {name: (a, b) for name, (a, b) in known.items() if a < b}
    if not lost:
        return None
    words = ", ".join(f"{n} {100 * a:.1f} % after {100 * b:.1f} %" for n, (a, b) in lost.items())
    but = next((f" ({name} is not)" for name in known if name not in lost), "")
    remedies = _remedies(config, record.epoch == 0)
    return f"worse than untrained: {words}{but}. Try {' or '.join(remedies)}."


def _remedies(config: Config, before_training: bool) -> list[str]:
    """Return the settings that may help and are not in use."""
    remedies = []
    if config.validation_share == 0 and not config.data.validation:
        remedies.append("data.validation_classes=0.2 (keeps the network that held-out classes say)")
    if config.network.starts_from_features and config.head == "random":
        remedies.append("network.head=principal (starts from the features)")
    if before_training:  # it is the network's shape that lost, and not its training
        return [*remedies, "a larger network.embedding_size", "network.hidden=0 of an mlp"]
    return [*remedies, f"optimizer.lr={config.optimizer.lr / 10:g}", "fewer training.epochs"]
