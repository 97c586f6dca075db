"""Where names in a configuration become objects: networks, optimisers, methods, curricula."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bspml.data.sampler import PKSampler
from bspml.errors import ConfigError, InputError
from bspml.experiment import methods
from bspml.experiment.config import ClassificationConfig, Config
from bspml.experiment.data import ExperimentData
from bspml.experiment.methods import MethodContext, MethodParts
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.networks import build_network, freeze_backbone
from bspml.trainers.curriculum import FixedCurriculum, SelfPacedCurriculum
from bspml.weights.state import SampleWeights

PLAIN, WEIGHTED, CLEAN = "multi-similarity", "bspml", "clean-only"
CONFIGURED = (PLAIN, WEIGHTED, CLEAN)  # by the sections `loss` and `curriculum`


def make_weights(method: str, data: ExperimentData) -> SampleWeights:
    """The table of weights: 1, but for those a person decided, which stay what they are.

    Methods without a curriculum weigh nothing, and the clean reference knows better than a person.
    """
    weights = SampleWeights(data.codes)
    if data.decided is not None and method != CLEAN:
        rows = np.flatnonzero(data.decided.fixed)
        weights.fix(rows, data.decided.weights[rows])
    return weights


def make_network(config: Config, width: int, pretrained: bool = True) -> nn.Module:
    """The embedding network, initialised from the configuration's seed, or its file of weights.

    Args:
        config: the experiment.
        width: channels of the images, or length of the features.
        pretrained: False leaves the file of weights out, for a network that gets its state from
            a checkpoint: the file need not be there any more.
    """
    settings = config.network
    options = {"hidden": settings.hidden} if settings.name == "mlp" else {}
    network = build_network(
        settings.name,
        settings.embedding_size,
        in_channels=width,
        weights=settings.weights if pretrained else None,
        seed=config.seed,
        pooling=settings.pooling,
        freeze_batchnorm=settings.freeze_batchnorm,
        **options,
    )
    if settings.freeze:
        freeze_backbone(network)
    return network


def classes_per_batch(config: Config, codes: Tensor) -> int:
    """`sampler.classes_per_batch`, or as many classes as a person's own data have, if fewer.

    Raises:
        ConfigError: a known data set has fewer, or there are fewer than two.
    """
    wanted, counts = config.sampler.classes_per_batch, torch.bincount(codes)
    pairs = int((counts > 1).sum())  # a sample alone in its class has no positive
    there = pairs if pairs > 1 else len(counts)
    if len(counts) < 2:
        raise ConfigError(
            f"`data`: the training has {len(counts)} class, and its samples must be told from "
            "those of another one. Add a class."
        )
    if wanted > len(counts) and not config.data.is_own:
        raise ConfigError(
            f"`sampler.classes_per_batch` is {wanted}, but the training has {len(counts)} "
            f"classes; set sampler.classes_per_batch={len(counts)} or less."
        )
    return min(wanted, there) if config.data.is_own else wanted


def make_sampler(config: Config, codes: Tensor) -> PKSampler:
    """The sampler of P x K batches over samples of these (N,) classes."""
    return PKSampler(
        codes,
        classes_per_batch(config, codes),
        config.sampler.samples_per_class,
        config.training.batches_per_epoch,
        config.seed,
    )


def make_optimizer(
    config: Config | ClassificationConfig, module: nn.Module, lr_factor: float = 1.0
) -> torch.optim.Optimizer:
    """The optimiser over the trainable parameters of a network, or of a loss."""
    settings = config.optimizer
    parameters = [p for p in module.parameters() if p.requires_grad]
    common: dict[str, Any] = {
        "lr": settings.lr * lr_factor,
        "weight_decay": settings.weight_decay,
    }
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


def make_method(
    name: str, config: Config, data: ExperimentData, weights: SampleWeights
) -> MethodParts:
    """The loss of a method, its miner, and what moves the weights.

    The sections `loss` and `curriculum` are about multi-similarity, bspml and clean-only; every
    other method has its own hyper-parameters.

    Raises:
        InputError: no such method or hyper-parameter, or something it needs is not known.
    """
    hyper = config.hyperparameters.get(name, {})
    if name in CONFIGURED:
        if hyper:
            raise InputError(
                f"`hyperparameters.{name}`: the sections loss and curriculum say how {name} is "
                "trained; set the keys there."
            )
        kind = {PLAIN: None, WEIGHTED: "configured", CLEAN: "fixed-clean"}[name]
        return MethodParts(name, make_loss(config, weights), curriculum_kind=kind)
    context = MethodContext(
        num_classes=len(weights.classes),
        embedding_size=config.network.embedding_size,
        weights=weights,
        noise_rate=data.noise_rate,
        seed=config.seed,
        hyper=hyper,
    )
    return methods.build(name, context)


def make_curriculum(
    parts: MethodParts, config: Config, data: ExperimentData, weights: SampleWeights
) -> SelfPacedCurriculum | FixedCurriculum | None:
    """What moves the `weights` of a method; None for methods that do not weigh."""
    if parts.curriculum_kind is None:
        return None
    if parts.curriculum_kind == "configured":
        return _configured_curriculum(config, weights, data)
    if parts.curriculum_kind == "fixed-clean":
        if data.is_noisy is None:
            raise ConfigError(
                f"`training.methods`: {parts.name} trains on the samples whose labels are right, "
                f"and of {config.data.name} data nobody knows which they are, unless `noise.kind` "
                "plants wrong labels; leave it out."
            )
        weights.update(~torch.from_numpy(data.is_noisy))
        return FixedCurriculum(weights)
    return SelfPacedCurriculum(
        weights,
        is_noisy=data.is_noisy,
        is_outlier=data.is_outlier,
        seed=config.seed,
        **parts.curriculum,
    )


def _configured_curriculum(
    config: Config, weights: SampleWeights, data: ExperimentData
) -> SelfPacedCurriculum:
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
            search=settings.search,
            statistics_error=settings.statistics_error,
            is_noisy=data.is_noisy,
            is_outlier=data.is_outlier,
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
        search=settings.search,
        statistics_error=settings.statistics_error,
        is_noisy=data.is_noisy,
        is_outlier=data.is_outlier,
    )
