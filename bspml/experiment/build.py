"""Build what a configuration names: networks, samplers, optimisers, methods, curricula."""

from __future__ import annotations

from dataclasses import replace
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
from bspml.experiment.methods.multi_similarity import multi_similarity_loss
from bspml.experiment.methods.weighing import Automatic, CleanOnly, check_rule
from bspml.networks import build_network, freeze_backbone
from bspml.networks.freezing import head_of
from bspml.trainers.curriculum import FixedCurriculum, SelfPacedCurriculum
from bspml.trainers.schedules import Rate, Schedule
from bspml.trainers.settings import AutoSettings, Scales, keywords_of, qualified
from bspml.weights.state import SampleWeights
from bspml.words import counted

PLAIN, WEIGHTED, CLEAN = "multi-similarity", "bspml", "clean-only"
# Their loss is the section `loss`; and whatever is automatic follows the section `curriculum`.
CONFIGURED = {
    PLAIN: None,
    WEIGHTED: Automatic,
    CLEAN: CleanOnly,
    f"{Automatic.name}:{PLAIN}": Automatic,
    f"{CleanOnly.name}:{PLAIN}": CleanOnly,
}


def is_automatic(method: str) -> bool:
    """Say whether the section `curriculum` moves the weights of a method.

    Args:
        method: its name in `training.methods`.
    """
    return method == WEIGHTED or methods.parsed(method).weighing is Automatic


def is_clean(method: str) -> bool:
    """Say whether a method is told which labels are right.

    Args:
        method: its name in `training.methods`.
    """
    return method == CLEAN or methods.parsed(method).weighing is CleanOnly


def make_weights(method: str, data: ExperimentData) -> SampleWeights:
    """Build the table of weights: 1, but for those the user decided, which stay what they are.

    The clean reference takes no decisions: it knows which labels are right.

    Args:
        method: its name in `training.methods`.
        data: the training set, with the user's decisions where there are any.
    """
    weights = SampleWeights(data.codes)
    if data.decided is not None and not is_clean(method):
        rows = np.flatnonzero(data.decided.fixed)
        weights.fix(rows, data.decided.weights[rows])
    return weights


def embedding_size(config: Config, width: int) -> int:
    """Return `network.embedding_size`, or the length of the features where that is null.

    Args:
        config: the experiment.
        width: length of the features.
    """
    return config.network.embedding_size or width


def make_network(config: Config, width: int, pretrained: bool = True) -> nn.Module:
    """Build the embedding network, from the configuration's seed or its file of weights.

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
        embedding_size(config, width),
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
    """Return `sampler.classes_per_batch`, or as many classes as the user's own data have, if fewer.

    Args:
        config: the experiment.
        codes: (N,) class codes of what trains.

    Raises:
        ConfigError: a known data set has fewer, or there are fewer than two, or all have a single
            sample.
    """
    setting, counts = config.sampler.classes_per_batch, codes.unique(return_counts=True)[1]
    pairs = int((counts > 1).sum())  # a sample alone in its class has no positive
    usable = pairs if pairs > 1 else len(counts)
    if len(counts) < 2:
        raise ConfigError(
            f"`data`: the training has {counted(len(counts), 'class', 'classes')} left to train "
            "on, and samples must be told from those of another one. Add a class."
        )
    if pairs == 0:
        raise ConfigError(
            f"`data`: each of the {len(counts)} training classes has one sample, so that no two "
            "samples of one class can be compared. Add samples, or group the classes."
        )
    if setting > len(counts) and not config.data.is_own:
        raise ConfigError(
            f"`sampler.classes_per_batch` is {setting}, but the training has {len(counts)} "
            f"classes; set sampler.classes_per_batch={len(counts)} or less."
        )
    return min(setting, usable) if config.data.is_own else setting


def make_sampler(config: Config, data: ExperimentData) -> PKSampler:
    """Build the sampler of P x K batches.

    Args:
        config: the experiment.
        data: its training set.

    Raises:
        ConfigError: a batch that cannot be computed in `training.micro_batches` parts.
    """
    parts, classes = config.training.micro_batches, classes_per_batch(config, data.trained_codes)
    if classes % parts or classes < 2 * parts:
        raise ConfigError(
            f"`training.micro_batches` is {parts}: it must divide the {classes} classes of a batch "
            "(`sampler.classes_per_batch`, or those that there are) into parts of at least 2, "
            "since a part is mined alone; lower it or change the classes."
        )
    return PKSampler(
        data.codes,
        classes,
        config.sampler.samples_per_class,
        config.training.batches_per_epoch,
        config.seed,
    )


def make_optimizer(
    config: Config | ClassificationConfig, module: nn.Module, lr_factor: float | None = None
) -> torch.optim.Optimizer:
    """Build the optimiser over the trainable parameters of a network, or of a loss.

    Parameters of one learning rate and one weight decay are a group, in the module's order.

    Args:
        config: the experiment.
        module: the network or loss.
        lr_factor: of a loss, its learning rate over the configured one; None: a network, whose head
            and backbone have theirs in the configuration.

    Raises:
        ConfigError: a factor of a part that has no trainable parameters.
    """
    settings, groups = config.optimizer, dict[tuple[float, float], list[nn.Parameter]]()
    for factor, parameters in _factors(config, module, lr_factor):
        for parameter in parameters:
            decays = settings.decay_1d or parameter.ndim > 1
            group = (settings.lr * factor, settings.weight_decay if decays else 0.0)
            groups.setdefault(group, []).append(parameter)
    options = [{"params": p, "lr": lr, "weight_decay": wd} for (lr, wd), p in groups.items()]
    if settings.name == "sgd":
        return torch.optim.SGD(options, momentum=settings.momentum)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[settings.name](options)


def _factors(
    config: Config | ClassificationConfig, module: nn.Module, lr_factor: float | None
) -> list[tuple[float, list[nn.Parameter]]]:
    """Return trainable parameters with the factor of their learning rate."""
    settings = config.optimizer
    parameters = [p for p in module.parameters() if p.requires_grad]
    if lr_factor is not None:
        return [(lr_factor, parameters)]
    factors = {"backbone": settings.backbone_lr_factor, "head": settings.head_lr_factor}
    if set(factors.values()) == {1.0}:
        return [(1.0, parameters)]
    ids = {id(p) for p in head_of(module).parameters()}
    parts = {
        "backbone": [p for p in parameters if id(p) not in ids],
        "head": [p for p in parameters if id(p) in ids],
    }
    for name, part in parts.items():
        if factors[name] != 1 and not part:
            raise ConfigError(
                f"`optimizer.{name}_lr_factor` is {factors[name]:g}, but the {name} of this "
                "network has nothing to train; leave it at 1."
            )
    return [(factors[name], part) for name, part in parts.items()]


def make_schedule(config: Config | ClassificationConfig, steps: int) -> Rate:
    """Stretch the schedule of the learning rate over the steps of the training.

    Args:
        config: the experiment.
        steps: of the whole training.

    Raises:
        ConfigError: the warm-up takes more than half of them.
    """
    try:
        config.schedule.check_steps(steps)
    except InputError as err:
        raise ConfigError(qualified(str(err), Schedule, "schedule.")) from None
    return config.schedule.over(steps)


def make_method(
    name: str, config: Config, data: ExperimentData, weights: SampleWeights
) -> MethodParts:
    """Build the loss of a method, its miner, and say what moves the weights.

    The section `loss` is about multi-similarity, alone, automatic (bspml) and clean-only; the
    section `curriculum` about everything automatic.  The rest is hyper-parameters.

    Args:
        name: of the method, in `training.methods`.
        config: the experiment.
        data: its training set.
        weights: the table of sample weights.

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
        parts = MethodParts(name, multi_similarity_loss(config.loss, weights))
        if CONFIGURED[name] is CleanOnly:
            return replace(parts, curriculum_kind="fixed-clean")
        return parts if CONFIGURED[name] is None else _under_curriculum(parts, config)
    context = MethodContext(
        num_classes=len(weights.classes),
        embedding_size=embedding_size(config, data.width),
        weights=weights,
        noise_rate=data.noise_rate,
        seed=config.seed,
        hyper=hyper,
    )
    parts = methods.build(name, context)
    if methods.parsed(name).weighing is not Automatic:
        return parts
    set_twice = sorted(hyper.keys() & AutoSettings.model_fields.keys())
    if set_twice:
        raise InputError(
            f"`hyperparameters.{name}.{set_twice[0]}`: the section curriculum says how weights "
            f"move; set curriculum.{set_twice[0]}."
        )
    if config.curriculum.preset != "auto":
        raise InputError(
            f"{name} follows the automatic curriculum, but `curriculum.preset` is "
            f"{config.curriculum.preset}; set it to auto, or leave {name} out."
        )
    return _under_curriculum(parts, config)


def _under_curriculum(parts: MethodParts, config: Config) -> MethodParts:
    """Let the section `curriculum` move the weights of a method."""
    keywords = _curriculum_keywords(config)
    check_rule(parts, keywords.get("rule", ""))
    return replace(parts, curriculum_kind=keywords["preset"], curriculum=keywords)


def _curriculum_keywords(config: Config) -> dict[str, Any]:
    """Say what the sections `curriculum` and `loss` mean as keywords of `SelfPacedCurriculum`."""
    settings = config.curriculum
    keywords = {"preset": settings.preset, **settings.keywords()}
    if settings.preset == "paper":
        return keywords | keywords_of(Scales, config.loss)
    warmup = "cross-fit" if config.cross_fitted else "features"
    return keywords | {"warmup": warmup, "warmup_rounds": settings.warmup_epochs}


def make_curriculum(
    parts: MethodParts, config: Config, data: ExperimentData, weights: SampleWeights
) -> SelfPacedCurriculum | FixedCurriculum | None:
    """Build what moves the `weights` of a method; None for one that trains on every sample.

    Labels that the user decided to be wrong train under no method.

    Args:
        parts: of the method.
        config: the experiment.
        data: its training set.
        weights: the table to move.

    Raises:
        ConfigError: the method needs to know which labels are right, and nobody does.
    """
    if parts.curriculum_kind is None:
        return FixedCurriculum(weights) if (weights.weights == 0).any() else None
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
