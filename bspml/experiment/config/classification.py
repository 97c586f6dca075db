"""What a classification or regression experiment can say: `task: classification` or `regression`.

Here every sample has a label of its own (a class, or a number) that a head predicts, where the
metric-learning experiments of `bspml.experiment.config.schema` compare samples with each other.  A
setting that nothing would read is refused, not dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from bspml.experiment.config.common import (
    AtLeast2,
    DeviceName,
    FilePath,
    Observers,
    PlantedNoise,
    RunName,
    Seed,
    Threads,
    one_of,
)
from bspml.experiment.config.names import (
    CLASS_LOSSES,
    CLASS_NOISE,
    CLASSIFIERS,
    IMAGE_SETS,
    TARGET_NOISE,
    VALUE_LOSSES,
    check_network,
)
from bspml.experiment.config.sample_loss import SampleLossConfig
from bspml.experiment.config.schema import OptimizerConfig
from bspml.experiment.config.unread import PLANTED, check_read, may_stand
from bspml.trainers.schedules import Schedule
from bspml.trainers.settings import Count, Epochs, Fraction, Positive, ReadBy, Section

Task = Literal["classification", "regression"]

ClassifierName = Annotated[
    str, AfterValidator(partial(check_network, names=CLASSIFIERS, families=("torchvision",)))
]
_BY_CLASS = ReadBy("kind", ("symmetric", "pair-flip", "sibling-flip"))
_BY_DRAWS = ReadBy("kind", ("symmetric", "uniform"))
_BY_NOISE = ReadBy("kind", tuple(k for k in (*CLASS_NOISE, *TARGET_NOISE) if k != "none"))


class ImageSetConfig(Section):
    """Which images, how many of them, and whether the test split may be looked at."""

    name: Annotated[str, one_of(*IMAGE_SETS)] = "digits"
    root: FilePath | None = None  # folder with CIFAR's files; digits come with scikit-learn
    subset: AtLeast2 | None = None  # training samples kept; null: all
    validation: bool = False  # true: a noisy fifth of the training split takes the test's place
    augment: bool = False  # pad by 4 pixels, crop at random, mirror half of the images

    @model_validator(mode="after")
    def _consistent(self) -> ImageSetConfig:
        if self.name == "digits" and self.root is not None:
            raise ValueError(
                "`root` is given, but the digits are part of scikit-learn; leave it out, or "
                "set `name` to cifar10 or cifar100"
            )
        if self.name != "digits" and self.root is None:
            raise ValueError(
                f"`root` must be the folder with the files of {self.name}; nothing is downloaded"
            )
        if self.name == "digits" and self.augment:
            raise ValueError(
                "`augment` mirrors images, and a mirrored digit is none; set it to false"
            )
        return self


class TargetNoiseConfig(PlantedNoise):
    """Wrong labels put into the training split, or a file that holds the labels to train on."""

    label_files = ("labels_file",)

    # Of regression: uniform.
    kind: Annotated[str, one_of(*CLASS_NOISE, *TARGET_NOISE)] = "symmetric"
    rate: Fraction = 0.4
    per_class: Annotated[bool, _BY_CLASS] = False
    # True: drawn from all classes or values, its own included.
    keep_original: Annotated[bool, _BY_DRAWS] = False
    # False: each sample is changed with probability `rate`.
    exact: Annotated[bool, _BY_NOISE] = True
    seed: Seed | None = None  # null: the experiment's seed
    labels_file: FilePath | None = None  # labels to train on, such as those of CIFAR-N
    # Which labels of that file, where it holds several.
    label_set: Annotated[str | None, ReadBy("labels_file")] = None

    @model_validator(mode="after")
    def _consistent(self) -> TargetNoiseConfig:
        if self.per_class and not self.exact:
            raise ValueError(
                "`per_class` counts the changed samples of each class, and `exact` "
                "false draws each sample by itself; set one of them the other way"
            )
        return self


class HeadConfig(Section):
    """The network that predicts the label, from scratch."""

    name: ClassifierName = "mlp"
    # Width of the layer; 0: linear.
    hidden: Annotated[int, Field(ge=0, le=65_536), ReadBy("name", ("mlp",))] = 256


class FittingConfig(Section):
    """How long to train, and beside what."""

    epochs: Epochs = 60
    batch_size: AtLeast2 = 64
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
    threads: Threads | None = None
    observers: Observers = ()  # told of every round, beside records.jsonl
    data: ImageSetConfig = ImageSetConfig()
    noise: TargetNoiseConfig = TargetNoiseConfig()
    network: HeadConfig = HeadConfig()
    loss: SampleLossConfig = SampleLossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    schedule: Schedule = Schedule()
    training: FittingConfig = FittingConfig()
    evaluation: ScoringConfig = ScoringConfig()

    @property
    def noise_seed(self) -> int:
        """Return the seed of the label noise: its own, or the experiment's."""
        return self.seed if self.noise.seed is None else self.noise.seed

    @property
    def plain_loss(self) -> SampleLossConfig:
        """Return the loss to compare with: what superloss is put around, else ce or mse."""
        default = "mse" if self.task == "regression" else "ce"
        return SampleLossConfig(name=self.loss.base or default)

    @property
    def has_baseline(self) -> bool:
        """Say whether the plain loss is trained too."""
        wanted = self.training.baseline
        return self.loss != self.plain_loss if wanted is None else wanted

    @model_validator(mode="before")
    @classmethod
    def _regression_defaults(cls, tree: Any) -> Any:
        """Let the noise on numbers be uniform, unless the experiment says otherwise."""
        if not isinstance(tree, Mapping) or tree.get("task") != "regression":
            return tree
        noise = tree.get("noise", {})
        if isinstance(noise, Mapping) and noise.get("labels_file") is None:
            return {**tree, "noise": {"kind": "uniform", **noise}}
        return tree

    @model_validator(mode="after")
    def _consistent(self, info: Any) -> ClassificationConfig:
        (_check_regression if self.task == "regression" else _check_classes)(self)
        if self.training.baseline and self.loss == self.plain_loss:
            raise ValueError(
                f"`training.baseline` trains {self.loss.name} too, but `loss.name` is that "
                "already; set training.baseline to false, or name another loss"
            )
        if not may_stand(info):
            check_read(self, PLANTED)
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
        raise ValueError("`noise.labels_file` holds classes but `task` is regression; leave it out")


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
