"""What a classification or regression experiment can say: `task: classification` or `regression`.

Here every sample has a label of its own (a class, or a number) that a head predicts, where the
metric-learning experiments of `bspml.experiment.config.schema` compare samples with each other.  A
setting that nothing would read is refused, not dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from bspml.experiment.config.common import (
    Count,
    DeviceName,
    FilePath,
    Fraction,
    Positive,
    RunName,
    Section,
    Seed,
    check_name,
    check_planted,
    fill_noise,
)
from bspml.experiment.config.names import (
    CLASS_LOSSES,
    CLASS_NOISE,
    CLASSIFIERS,
    IMAGE_SETS,
    TARGET_NOISE,
    VALUE_LOSSES,
)
from bspml.experiment.config.sample_loss import SampleLossConfig
from bspml.experiment.config.schema import OptimizerConfig

Task = Literal["classification", "regression"]

# Kinds of noise that read a key; see `bspml.noise`.
_NOISE_READS = {
    "per_class": ("symmetric", "pair-flip", "sibling-flip"),
    "keep_original": ("symmetric", "uniform"),
}


class ImageSetConfig(Section):
    """Which images, how many of them, and whether the test split may be looked at."""

    name: str = "digits"
    root: FilePath | None = None  # folder with CIFAR's files; digits come with scikit-learn
    subset: Annotated[int, Field(ge=2)] | None = None  # training samples kept; null: all
    validation: bool = False  # true: a noisy fifth of the training split takes the test's place
    augment: bool = False  # pad by 4 pixels, crop at random, mirror half of the images

    @field_validator("name")
    @classmethod
    def _known(cls, value: str) -> str:
        return check_name(value, IMAGE_SETS)

    @model_validator(mode="after")
    def _consistent(self) -> ImageSetConfig:
        if self.name == "digits" and self.root is not None:
            raise ValueError(
                "`data.root` is given, but the digits are part of scikit-learn; leave it out, or "
                "set data.name to cifar10 or cifar100"
            )
        if self.name != "digits" and self.root is None:
            raise ValueError(
                f"`data.root` must be the folder with the files of {self.name}; nothing is "
                "downloaded"
            )
        if self.name == "digits" and self.augment:
            raise ValueError(
                "`data.augment` mirrors images, and a mirrored digit is none; set it to false"
            )
        return self


class TargetNoiseConfig(Section):
    """Wrong labels put into the training split, or a file that holds the labels to train on."""

    kind: str = "symmetric"  # regression: uniform
    rate: Fraction = 0.4  # share of labels changed
    per_class: bool = False  # round(rate * N_c) of each class instead of round(rate * N) overall
    keep_original: bool = False  # true: drawn from all classes or values, its own included
    exact: bool = True  # false: each sample is changed with probability `rate`
    seed: Seed | None = None  # null: the experiment's seed
    labels_file: FilePath | None = None  # labels to train on, such as those of CIFAR-N
    label_set: str | None = None  # which labels of that file, where it holds several

    @field_validator("kind")
    @classmethod
    def _known(cls, value: str) -> str:
        return check_name(value, tuple(dict.fromkeys(CLASS_NOISE + TARGET_NOISE)))

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, given: Any) -> Any:
        return fill_noise(given, ("labels_file",))

    @model_validator(mode="after")
    def _consistent(self) -> TargetNoiseConfig:
        check_planted(self.kind, self.rate, {"labels_file": self.labels_file})
        if self.label_set is not None and self.labels_file is None:
            raise ValueError(
                "`noise.label_set` names labels inside `noise.labels_file`, which is null; give "
                "the file, or leave both null"
            )
        for key, kinds in _NOISE_READS.items():
            if getattr(self, key) and self.kind not in kinds:
                raise ValueError(
                    f"`noise.{key}` is true, but `noise.kind` {self.kind} does not read it "
                    f"({' and '.join(kinds)} would); set it to false"
                )
        if not self.exact and self.kind == "none":
            raise ValueError(
                "`noise.exact` is false, but no noise is planted; set it to true, or name a kind "
                "of noise"
            )
        if self.per_class and not self.exact:
            raise ValueError(
                "`noise.per_class` counts the changed samples of each class, and `noise.exact` "
                "false draws each sample by itself; set one of them the other way"
            )
        return self


class HeadConfig(Section):
    """The network that predicts the label, from scratch."""

    name: str = "mlp"  # or torchvision:MODEL
    hidden: Annotated[int, Field(ge=0, le=65_536)] = 256  # mlp: width of its layer; 0: linear

    @field_validator("name")
    @classmethod
    def _known(cls, value: str) -> str:
        if value.startswith("torchvision:"):
            return value
        return check_name(value, (*CLASSIFIERS, "torchvision:MODEL"))

    @model_validator(mode="after")
    def _consistent(self) -> HeadConfig:
        if self.name != "mlp" and self.hidden != HeadConfig.model_fields["hidden"].default:
            raise ValueError(
                f"`network.hidden` is {self.hidden}, but only the network mlp reads it; leave it "
                "at 256"
            )
        return self


class ScheduleConfig(Section):
    """The learning rate over the training."""

    name: Literal["constant", "step", "cosine"] = "constant"
    milestones: tuple[Count, ...] = Field(default=(), strict=False)  # step: iterations
    factor: Annotated[float, Field(gt=0, le=1)] = 0.1  # step: the rate times this at each

    @model_validator(mode="after")
    def _consistent(self) -> ScheduleConfig:
        if self.name == "step" and not self.milestones:
            raise ValueError(
                "`schedule.name` step needs `schedule.milestones`, in iterations, such as "
                "[32000, 48000]"
            )
        if self.name != "step" and self.milestones:
            raise ValueError(
                f"`schedule.milestones` are given, but `schedule.name` is {self.name}; set it to "
                "step"
            )
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(
                f"`schedule.milestones` must rise without repeats; got {list(self.milestones)}"
            )
        return self


class FittingConfig(Section):
    """How long to train, and beside what."""

    epochs: Count = 60
    batch_size: Annotated[int, Field(ge=2)] = 64
    # Train the plain loss too: ce, or the base of superloss; null: unless it is `loss.name` itself.
    baseline: bool | None = None
    relabel: bool = False  # then train afresh on the labels that the network predicts
    checkpoint_every: Count | None = None  # iterations; null: at the end of each epoch


class ScoringConfig(Section):
    """What is measured, and how often."""

    every: Count = 1  # epochs; the last epoch is always measured
    batch_size: Count = 512
    truncation: Positive = 1.0  # regression: errors count up to this, the error to choose by


class ClassificationConfig(Section):
    """One classification or regression experiment.

    `ClassificationConfig()` is SuperLoss beside cross-entropy on scikit-learn's digits with 40 %
    wrong labels.
    """

    task: Task = "classification"
    name: RunName = "digits"
    seed: Seed = 0
    device: DeviceName = "auto"  # auto, cpu, cuda, cuda:N or mps
    # On a CPU; null: one for mlp and small-conv, else as many as torch takes.
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    data: ImageSetConfig = ImageSetConfig()
    noise: TargetNoiseConfig = TargetNoiseConfig()
    network: HeadConfig = HeadConfig()
    loss: SampleLossConfig = SampleLossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    training: FittingConfig = FittingConfig()
    evaluation: ScoringConfig = ScoringConfig()

    @property
    def noise_seed(self) -> int:
        """Seed of the label noise: its own, or the experiment's."""
        return self.seed if self.noise.seed is None else self.noise.seed

    @property
    def plain_loss(self) -> SampleLossConfig:
        """The loss to compare with: what superloss is put around, else ce or mse."""
        default = "mse" if self.task == "regression" else "ce"
        return SampleLossConfig(name=self.loss.base or default)

    @property
    def has_baseline(self) -> bool:
        """Whether the plain loss is trained too."""
        wanted = self.training.baseline
        return self.loss != self.plain_loss if wanted is None else wanted

    @model_validator(mode="before")
    @classmethod
    def _regression_defaults(cls, given: Any) -> Any:
        """Noise on numbers is of another kind than on classes."""
        if not isinstance(given, Mapping) or given.get("task") != "regression":
            return given
        noise = given.get("noise", {})
        if isinstance(noise, Mapping) and noise.get("labels_file") is None:
            return {**given, "noise": {"kind": "uniform", **noise}}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> ClassificationConfig:
        (_check_regression if self.task == "regression" else _check_classes)(self)
        if self.training.baseline and self.loss == self.plain_loss:
            raise ValueError(
                f"`training.baseline` trains {self.loss.name} too, but `loss.name` is that "
                "already; set training.baseline to false, or name another loss"
            )
        return self


def _check_classes(config: ClassificationConfig) -> None:
    _check_names(config, CLASS_LOSSES, ("ce",), CLASS_NOISE)
    needs = {"cifar10-pairs": "cifar10", "sibling-flip": "cifar100", "sibling-swap": "cifar100"}
    wanted = needs.get(config.noise.kind)
    if wanted is not None and config.data.name != wanted:
        raise ValueError(
            f"`noise.kind` {config.noise.kind} confuses classes of {wanted}, but `data.name` is "
            f"{config.data.name}; use symmetric or pair-flip"
        )
    if config.evaluation.truncation != 1.0:
        raise ValueError(
            "`evaluation.truncation` cuts the errors of a regression, but `task` is "
            "classification; leave it at 1"
        )


def _check_regression(config: ClassificationConfig) -> None:
    _check_names(config, VALUE_LOSSES, ("mse", "smooth-l1"), TARGET_NOISE)
    if config.loss.tau == "log-classes":
        raise ValueError(
            "`loss.tau` log-classes is the logarithm of the number of classes, and a regression "
            "has none; use ema, mean or a number"
        )
    if config.data.name != "digits":
        raise ValueError(
            f"`task` regression predicts the value of a digit, and {config.data.name} has no "
            "values; set data.name to digits"
        )
    if config.training.relabel:
        raise ValueError(
            "`training.relabel` replaces labels by predicted classes, and a regression has none; "
            "set it to false"
        )
    if config.noise.labels_file is not None:
        raise ValueError(
            "`noise.labels_file` holds classes, and `task` is regression; leave it out"
        )


def _check_names(
    config: ClassificationConfig,
    losses: tuple[str, ...],
    bases: tuple[str, ...],
    kinds: tuple[str, ...],
) -> None:
    for key, value, names in (
        ("loss.name", config.loss.name, losses),
        ("loss.base", config.loss.base or bases[0], bases),
        ("noise.kind", config.noise.kind, kinds),
    ):
        if value not in names:
            raise ValueError(
                f"`{key}` must be one of {', '.join(names)} where `task` is {config.task}; "
                f"got {value!r:.60}"
            )
