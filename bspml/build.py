"""Where names in a configuration become objects: data, labels, networks, optimisers, curricula."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bspml import noise
from bspml.checkpoints import fingerprint
from bspml.config import Config
from bspml.curriculum import SelfPacedCurriculum
from bspml.data.decisions import (
    CorrectedLabels,
    apply_decisions,
    is_corrected,
    read_corrected,
    read_decisions,
)
from bspml.data.glyphs import Glyphs
from bspml.data.sampler import PKSampler
from bspml.data.tables import read_labels
from bspml.errors import DataError
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.miners.bspml_miner import BSPMLMiner
from bspml.networks import build_network, freeze_backbone
from bspml.weights.state import SampleWeights


@dataclass(frozen=True)
class ExperimentData:
    """Both splits of a data set in memory, the training labels as given and as they truly are.

    Attributes:
        images: (N, channels, S, S) training images in [0, 1].
        labels: (N,) training labels as given, possibly wrong; names of classes.
        codes: (N,) the same as 0..C-1.
        true_labels: (N,) the truth where the data set knows it, else None.
        is_noisy: (N,) bool, or None.
        decided: what a person said about single labels, or None.
        test_images: (M, channels, S, S).
        test_labels: (M,) class names; disjoint from the training classes.
        fingerprint: changes when images or labels do.
    """

    images: Tensor
    labels: np.ndarray
    codes: Tensor
    true_labels: np.ndarray | None
    is_noisy: np.ndarray | None
    test_images: Tensor
    test_labels: np.ndarray
    fingerprint: str
    decided: CorrectedLabels | None = None

    @property
    def noise_rate(self) -> float | None:
        """True share of wrong labels, where known."""
        return None if self.is_noisy is None else float(self.is_noisy.mean())


def load_data(config: Config) -> ExperimentData:
    """Load the data set and put in the wrong labels the configuration asks for."""
    images, true_labels = _split(config, "train")
    if config.data.validation:
        held_out = _held_out(true_labels)
        test_images, test_labels = images[held_out], true_labels[held_out]
        images, true_labels = images[~held_out], true_labels[~held_out]
    else:
        test_images, test_labels = _split(config, "test")
    given, is_noisy = _training_labels(config, true_labels)
    decided = _decisions(config, given)
    if decided is not None:
        corrected = decided.labels.astype(str)
        is_noisy = np.where(corrected == given, is_noisy, corrected != true_labels)
        given = corrected
    codes = torch.from_numpy(np.unique(given, return_inverse=True)[1].astype(np.int64))
    return ExperimentData(
        images=images,
        labels=given,
        codes=codes,
        true_labels=true_labels,
        is_noisy=is_noisy,
        test_images=test_images,
        test_labels=test_labels,
        fingerprint=fingerprint(images, _what_is_learned(given, decided)),
        decided=decided,
    )


def _split(config: Config, split: str) -> tuple[Tensor, np.ndarray]:
    data = Glyphs(split, config.data.root, config.data.image_size)
    names, labels = np.array(data.names), data.labels.numpy()
    rows = np.ones(len(labels), dtype=bool)
    if config.data.subset is not None:
        if config.data.subset > len(names):
            raise DataError(
                f"`data.subset` is {config.data.subset}, but the {split} split of "
                f"{config.data.name} has {len(names)} classes; lower it."
            )
        rows = labels < config.data.subset
    return data.images[torch.from_numpy(rows)], names[labels[rows]]


def _held_out(labels: np.ndarray) -> np.ndarray:
    """(N,) bool: the samples of a fixed random quarter of the classes."""
    classes = np.unique(labels)
    chosen = np.random.default_rng(0).permutation(len(classes))[: max(2, len(classes) // 4)]
    return np.isin(labels, classes[chosen])


def _training_labels(config: Config, true_labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N,) the labels as given, before a person's decisions; (N,) bool, which are wrong."""
    settings = config.noise
    if settings.labels_file is not None:
        given = read_labels(settings.labels_file).astype(str)
        if len(given) != len(true_labels):
            raise DataError(
                f"{settings.labels_file}: has {len(given)} labels; the training split of "
                f"{config.data.name} has {len(true_labels)} samples."
            )
        return given, given != true_labels
    if settings.kind == "none":
        return true_labels, np.zeros(len(true_labels), dtype=bool)
    noisy = noise.symmetric(
        true_labels, settings.rate, seed=config.noise_seed, per_class=settings.per_class
    )
    return np.asarray(noisy.labels), np.asarray(noisy.is_noisy)


def _decisions(config: Config, given: np.ndarray) -> CorrectedLabels | None:
    """A person's verdicts: in a file of their own, or in the corrected labels made from one."""
    settings = config.noise
    corrected = settings.labels_file is not None and is_corrected(settings.labels_file)
    if settings.decisions_file is not None:
        if corrected:
            raise DataError(
                f"{settings.labels_file} already holds decisions; put those of "
                f"{settings.decisions_file} into it with `bspml audit FOLDER --apply`, and leave "
                "`noise.decisions_file` out."
            )
        return apply_decisions(given, read_decisions(settings.decisions_file))
    return read_corrected(settings.labels_file) if corrected else None


def _what_is_learned(given: np.ndarray, decided: CorrectedLabels | None) -> np.ndarray:
    """The labels, and after them the weights that are fixed; what a resumed run must find again."""
    if decided is None:
        return given
    # A verdict of "unsure" changes nothing.
    words = np.where(decided.fixed, decided.weights.astype(str), "")
    return np.concatenate([given, words])


def make_weights(data: ExperimentData) -> SampleWeights:
    """The table of weights: 1, but for those a person decided, which stay what they are."""
    weights = SampleWeights(data.codes)
    if data.decided is not None:
        rows = np.flatnonzero(data.decided.fixed)
        weights.fix(rows, data.decided.weights[rows])
    return weights


def make_network(config: Config, channels: int, pretrained: bool = True) -> nn.Module:
    """The embedding network, initialised from the configuration's seed, or its file of weights.

    Args:
        config: the experiment.
        channels: of the images.
        pretrained: False leaves the file of weights out, for a network that gets its state from
            a checkpoint: the file need not be there any more.
    """
    network = build_network(
        config.network.name,
        config.network.embedding_size,
        in_channels=channels,
        weights=config.network.weights if pretrained else None,
        seed=config.seed,
    )
    if config.network.freeze:
        freeze_backbone(network)
    return network


def make_sampler(config: Config, codes: Tensor) -> PKSampler:
    """The sampler of P x K batches over samples of these (N,) classes."""
    return PKSampler(
        codes,
        config.sampler.classes_per_batch,
        config.sampler.samples_per_class,
        config.training.batches_per_epoch,
        config.seed,
    )


def make_optimizer(config: Config, network: nn.Module) -> torch.optim.Optimizer:
    """The optimiser over the network's trainable parameters."""
    settings = config.optimizer
    parameters = [p for p in network.parameters() if p.requires_grad]
    common: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.name == "sgd":
        return torch.optim.SGD(parameters, momentum=settings.momentum, **common)
    kind = torch.optim.Adam if settings.name == "adam" else torch.optim.AdamW
    return kind(parameters, **common)


def make_loss(config: Config, weights: SampleWeights) -> BSPMLLoss:
    """The loss with its miner inside: one similarity matrix serves both, without pair lists."""
    settings = config.loss
    return BSPMLLoss(
        weights,
        alpha=settings.alpha,
        beta=settings.beta,
        base=settings.base,
        weighting=settings.weighting,
        miner=BSPMLMiner(weights, epsilon=settings.epsilon, skip_zero=settings.skip_zero),
    )


def make_curriculum(
    config: Config, weights: SampleWeights, is_noisy: np.ndarray | None
) -> SelfPacedCurriculum:
    """The curriculum that updates `weights`."""
    settings = config.curriculum
    if settings.preset == "auto":
        return SelfPacedCurriculum(
            weights,
            preset="auto",
            rule=settings.rule,
            warmup="cross-fit" if config.cross_fitted else "features",
            warmup_rounds=settings.warmup_epochs,
            reset=settings.reset,
            balance=settings.balance,
            is_noisy=is_noisy,
            seed=config.seed,
        )
    return SelfPacedCurriculum(
        weights,
        preset="paper",
        age=settings.age,
        age_growth=settings.age_growth,
        age_max=settings.age_max,
        target_maw=settings.target_maw,
        balance=settings.balance,
        alpha=config.loss.alpha,
        beta=config.loss.beta,
        base=config.loss.base,
        statistics=settings.statistics,
        solver=settings.solver,
        is_noisy=is_noisy,
    )
