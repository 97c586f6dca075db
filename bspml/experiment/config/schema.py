"""What an experiment can say: frozen sections, their defaults, and what rules out what.

The defaults are the main job.  A setting that would be ignored is refused, not dropped: whoever
sets `curriculum.age` under the automatic preset believes that it does something.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from bspml.experiment.config.common import (
    AtLeast2,
    DeviceName,
    FilePath,
    Observers,
    RunName,
    Seed,
    Threads,
    Width,
)
from bspml.experiment.config.curriculum import CurriculumConfig
from bspml.experiment.config.data import DataConfig, NoiseConfig
from bspml.experiment.config.names import NETWORKS, OWN_DATA, check_network
from bspml.experiment.config.unread import check_read, may_stand
from bspml.trainers.schedules import Schedule
from bspml.trainers.settings import (
    RHO,
    BelowOne,
    Count,
    Epochs,
    NotNegative,
    Number,
    Positive,
    ReadBy,
    Rising,
    Scales,
    Section,
    key,
)

OPEN_SECTIONS = ("hyperparameters",)  # {method: {name: value}}, checked where methods are built

NetworkName = Annotated[str, AfterValidator(partial(check_network, names=NETWORKS))]
# Chosen on held-out training classes of CUB: ten times as much forgets what the features knew.
_LR_ON_FEATURES = 1e-4
_LARGEST_BATCH = 65_536  # samples; the loss compares each with each


class NetworkConfig(Section):
    """The embedding network, from scratch or from a file of weights."""

    name: NetworkName = "small-conv"
    # null: as long as the features, of a linear layer on these, where it is the default.
    embedding_size: Width | None = 128
    weights: FilePath | None = None  # state dict, from other data; null: from scratch
    freeze: bool = False  # train the last linear layer only
    freeze_batchnorm: bool = False  # keep the batch statistics of the file of weights
    pooling: Literal["avg", "gem"] | None = None  # of a backbone's last maps; null: its own
    # Width of a hidden layer; 0: one linear layer.
    hidden: Annotated[int, Field(ge=0, le=65_536), ReadBy("name", ("mlp",))] = 0
    # What the last linear layer starts as; null: principal on features of a pretrained backbone.
    head: Literal["random", "orthogonal", "principal"] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> NetworkConfig:
        for name, why in (
            ("freeze", "a network from scratch would never learn"),
            ("freeze_batchnorm", "there are no statistics to keep"),
        ):
            if getattr(self, name) and self.weights is None and self.name != "efficientnet-lite0":
                raise ValueError(
                    f"`{name}` is true, but `weights` is null: {why}; name a file of weights, or "
                    f"set `{name}` to false"
                )
        if self.embedding_size is None and (self.name != "mlp" or self.hidden > 0):
            raise ValueError(
                "`embedding_size` is null, as long as the features, which only a linear layer on "
                "features of a file or of `data.features` can be (mlp, hidden 0); give a number"
            )
        if self.head not in (None, "random") and not self.starts_from_features:
            raise ValueError(
                f"`head` is {self.head}, but the last layer of this network is not one on features "
                "of a pretrained backbone; set it to null"
            )
        if self.pooling is not None and self.name in ("small-conv", "mlp"):
            raise ValueError(
                f"`pooling` is {self.pooling}, but {self.name} has none to choose; set it to null"
            )
        return self

    @property
    def starts_from_features(self) -> bool:
        """Say whether the network is a new linear layer on features that are worth something."""
        if self.name == "mlp":
            return self.hidden == 0
        lite = self.name == "efficientnet-lite0"
        return self.name != "small-conv" and (lite or self.weights is not None)


class LossSettings(Scales):
    """Weighted multi-similarity: its scales (base is the paper's rho), weighting and mining."""

    base: Number = key(0.5, RHO)
    weighting: Literal["inside", "paper"] = "inside"
    epsilon: NotNegative = key(0.1, "margin of the mining", printed=True)
    skip_zero: bool = True  # the miner leaves out samples of weight 0


class PaperLoss(LossSettings):
    """The loss under `curriculum.preset: paper`, unless the experiment says otherwise.

    [Zhang 2023] weighs whole log-sums (eq. 7), prints rho = 1, and mines without weights.
    """

    base: Number = key(Scales().base, RHO, printed=True)
    weighting: Literal["inside", "paper"] = "paper"
    skip_zero: bool = False


class LossConfig(LossSettings):
    """The section `loss`; its base is a cosine similarity."""

    base: Annotated[float, Field(ge=-1, le=1)] = LossSettings().base


class SamplerConfig(Section):
    """P classes of K samples a batch; fewer than 2 of either leaves no negative or positive."""

    classes_per_batch: AtLeast2 = 16
    samples_per_class: AtLeast2 = 4

    @model_validator(mode="after")
    def _fits(self) -> SamplerConfig:
        size = self.classes_per_batch * self.samples_per_class
        if size > _LARGEST_BATCH:
            raise ValueError(
                f"`classes_per_batch` x `samples_per_class` is {size}; a batch has "
                f"at most {_LARGEST_BATCH} samples; lower one of them"
            )
        return self


class OptimizerConfig(Section):
    """The optimiser of the network."""

    name: Literal["adam", "adamw", "sgd"] = "adam"
    lr: Positive = 1e-3
    head_lr_factor: Positive = 1.0  # rate of the last linear layer, over `lr`
    backbone_lr_factor: Positive = 1.0  # of everything before it
    weight_decay: NotNegative = 0.0
    # False: none on parameters of one dimension, which are biases and normalisations.
    decay_1d: bool = True
    momentum: Annotated[BelowOne, ReadBy("name", ("sgd",))] = 0.0
    clip_norm: Positive | None = None  # longer gradients are shortened to it; null: none is

    @model_validator(mode="after")
    def _decays(self) -> OptimizerConfig:
        if not self.decay_1d and self.weight_decay == 0:
            raise ValueError(
                "`decay_1d` is false, but `weight_decay` is 0, so that nothing decays anyway; "
                "leave it at true, or set a `weight_decay`"
            )
        return self


class MetricOptimizerConfig(OptimizerConfig):
    """The optimisers of the network and of a loss with parameters of its own."""

    loss_lr_factor: Positive | None = None  # rate of the latter, over `lr`; null: the method's own


class TrainingConfig(Section):
    """How long to train, and beside what."""

    epochs: Epochs = 14
    batches_per_epoch: Count | None = None  # null: as many as show every sample
    # Names of bspml.experiment.methods; each is trained from the same start.
    # Unset under the paper's preset: multi-similarity and bspml.
    methods: tuple[str, ...] = Field(
        default=("contrastive", "auto:contrastive"), min_length=1, strict=False
    )
    checkpoint_every: Count | None = None  # iterations; null: at the end of each epoch
    # Parts a batch is computed in, for less memory: mining sees one part of P/k classes at a time.
    micro_batches: Count = 1
    # Of the network; the loss is float32.
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    channels_last: bool = False  # layout of pictures and convolutions
    prefetch: Annotated[int, Field(ge=1, le=1024)] = 2  # batches each worker prepares ahead
    # Decay of an average of the weights, which is then evaluated, saved, and judges the labels.
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    # Evaluations in a row without a better one on `data.validation_classes`, then stop.
    patience: Count | None = None

    @field_validator("methods")
    @classmethod
    def _once_each(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError(f"must name each method once; got {list(value)}")
        return value


class EvaluationConfig(Section):
    """What is measured on the test classes, and how often."""

    ks: Annotated[tuple[Count, ...], Field(min_length=1, strict=False), Rising] = (1, 2, 4, 8)
    every: Count = 1  # epochs; the last epoch is always evaluated
    batch_size: Count = 512
    clustering: bool = True  # NMI and AMI, at the cost of a k-means
    backend: Literal["auto", "faiss", "torch"] = "auto"


class Config(Section):
    """One experiment.  `Config()` is the main job: glyphs, 30 % symmetric noise, from scratch."""

    name: RunName = "glyphs"
    seed: Seed = 0
    device: DeviceName = "auto"  # auto, cpu, cuda, cuda:N or mps
    workers: Annotated[int, Field(ge=0, le=256)] = 0
    # On a CPU; null: one for small-conv, else as many as torch takes.
    threads: Threads | None = None
    observers: Observers = ()  # told of every round, beside records.jsonl
    data: DataConfig = DataConfig()
    noise: NoiseConfig = NoiseConfig()
    network: NetworkConfig = NetworkConfig()
    loss: LossConfig = LossConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    sampler: SamplerConfig = SamplerConfig()
    optimizer: MetricOptimizerConfig = MetricOptimizerConfig()
    schedule: Schedule = Schedule()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    # Of methods whose loss is not the section `loss`: {method: {name: value}}.
    hyperparameters: dict[str, dict[str, float | int | bool | str | None]] = Field(
        default_factory=dict
    )

    @property
    def noise_seed(self) -> int:
        """Return the seed of the label noise: its own, or the experiment's."""
        return self.seed if self.noise.seed is None else self.noise.seed

    @property
    def cross_fitted(self) -> bool:
        """Say whether the warm-up is cross-fitted: asked for, or left open without pretraining."""
        if self.curriculum.preset != "auto":
            return False
        # No label may be judged by an embedding trained on it; pretrained features are not.
        natural = "features" if self.pretrained else "cross-fit"
        return (self.curriculum.warmup or natural) == "cross-fit"

    @property
    def automatic(self) -> bool:
        """Say whether the section `curriculum` moves the weights of some method."""
        return any(m == "bspml" or "auto" in m.split(":") for m in self.training.methods)

    @property
    def head(self) -> str:
        """Return what the last layer starts as: `network.head`, or what it is where that is
        null."""
        natural = "principal" if self.network.starts_from_features else "random"
        return self.network.head or natural

    @property
    def validation_share(self) -> float:
        """Return the share of the training classes held out to select the epoch.

        Where nothing is said: a fifth of the user's own classes where the features were pretrained,
        which training can spoil, else none.
        """
        share = self.data.validation_classes
        if share is None:
            guarded = self.pretrained and self.data.is_users and not self.data.validation
            return 0.2 if guarded else 0.0
        return share

    @property
    def pretrained(self) -> bool:
        """Say whether something judges the labels that was not trained on them."""
        lite = self.network.name == "efficientnet-lite0"
        return self.network.weights is not None or lite or self.data.holds_features

    @model_validator(mode="before")
    @classmethod
    def _of_your_own(cls, tree: Any) -> Any:
        """Plant nothing into the user's own data unless asked to, nor call it glyphs."""
        if not isinstance(tree, Mapping) or _named(tree.get("data")) not in OWN_DATA:
            return tree
        filled = {"name": _named(tree.get("data")), **tree}
        settings = tree.get("noise", {})
        if isinstance(settings, Mapping) and "kind" not in settings:
            filled["noise"] = {**settings, "kind": "none"}
        return filled

    @model_validator(mode="before")
    @classmethod
    def _on_features(cls, tree: Any) -> Any:
        """Start a linear layer as the features that it is on, and train it gently."""
        if not isinstance(tree, Mapping) or _named(tree.get("network")) != "mlp":
            return tree
        network, optimizer = tree["network"], tree.get("optimizer", {})
        if not (isinstance(network, Mapping) and isinstance(optimizer, Mapping)):
            return tree
        if network.get("hidden"):
            return tree
        return {
            **tree,
            "network": {"embedding_size": None, **network},
            "optimizer": {"lr": _LR_ON_FEATURES, **optimizer},
        }

    @model_validator(mode="before")
    @classmethod
    def _of_the_paper(cls, tree: Any) -> Any:
        """Fill in what the paper's preset means elsewhere, under what is said outright."""
        if not isinstance(tree, Mapping) or not isinstance(tree.get("loss", {}), Mapping):
            return tree
        if _named(tree.get("curriculum"), "preset") != "paper":
            return tree
        filled = {**tree, "loss": {**PaperLoss().model_dump(), **tree.get("loss", {})}}
        training = tree.get("training", {})
        if isinstance(training, Mapping):
            filled["training"] = {"methods": ("multi-similarity", "bspml"), **training}
        return filled

    @model_validator(mode="after")
    def _consistent(self, info: Any) -> Config:
        for method in self.hyperparameters:
            if method not in self.training.methods:
                raise ValueError(
                    f"`hyperparameters.{method}`: {method} is not among `training.methods`; add "
                    "it there, or remove its hyper-parameters"
                )
        if self.data.is_own and self.noise.kind != "none" and self.noise.decisions_file:
            raise ValueError(
                f"`noise.kind` {self.noise.kind} would change the labels of your own data that "
                "`noise.decisions_file` is about; set noise.kind to none, or decisions_file to null"
            )
        if self.training.patience is not None and self.validation_share == 0:
            raise ValueError(
                "`training.patience` waits for a better evaluation on classes held out of the "
                "training, and `data.validation_classes` is 0; hold some out, such as 0.2, or set "
                "training.patience to null"
            )
        if self.curriculum.warmup == "features" and not self.pretrained:
            raise ValueError(
                "`curriculum.warmup` features judges labels by pretrained features, but "
                "`network.weights` is null; name a file of weights, or use cross-fit"
            )
        if self.data.holds_features != (self.network.name == "mlp"):
            raise ValueError(
                f"`network.name` is {self.network.name}, but the network would see "
                f"{'features' if self.data.holds_features else 'images'}: mlp is the one for "
                "features, and for nothing else"
            )
        if not may_stand(info):
            check_read(self)
        return self


def _named(section: Any, part: str = "name") -> Any:
    """Return a key of a section that may still be a mapping."""
    return section.get(part) if isinstance(section, Mapping) else getattr(section, part, None)
