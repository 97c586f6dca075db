"""The sections of an experiment that say what it trains on: data and label noise."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from bspml.experiment.config.common import (
    FilePath,
    Fraction,
    Section,
    Seed,
    check_name,
    check_planted,
    fill_noise,
)
from bspml.experiment.config.names import DATASETS, NOISE_KINDS, OWN_DATA, check_network

__all__ = ["DataConfig", "NoiseConfig"]


class DataConfig(Section):
    """Which data set, where its files are, and what the network sees of it."""

    name: str = "glyphs"
    root: FilePath | None = None  # folder with the files, or of the cache; null: the data set's own
    incomplete: bool = False  # true: use what is there where files or classes are missing
    classes: Literal["official", "half"] = "official"  # half: train on the first half of them
    layout: str | None = None  # cars196: which annotation files; null: those that are there
    label_column: str | None = None  # table: null: the usual names
    split_column: str | None = None
    content: Literal["photo", "tile", "character"] | None = None  # folder, table: what images show
    # Pixels, square; null: 24 for glyphs, 28 for characters, 32 for tiles, 224 for photographs.
    image_size: Annotated[int, Field(ge=8, le=1024)] | None = None
    channels: Literal[1, 3] | None = None  # null: 1 for characters, else 3
    crop_boxes: bool = False  # look at the annotated boxes only
    augment: bool | None = None  # random views in training; null: of photographs
    features: str | None = None  # backbone whose features, extracted once, the network sees
    features_weights: FilePath | None = None  # its weights
    cache: FilePath | None = None  # folder of the features; null: the user's cache
    subset: Annotated[int, Field(ge=2)] | None = None  # classes kept of each split; null: all
    validation: bool = False  # true: evaluate on a quarter of the training classes, held out
    # Share of the training classes held out and evaluated beside the test: they select the epoch.
    validation_classes: Annotated[float, Field(ge=0, le=0.5)] = 0.0

    @field_validator("name")
    @classmethod
    def _known(cls, value: str) -> str:
        return check_name(value, DATASETS)

    @field_validator("features")
    @classmethod
    def _backbone(cls, value: str | None) -> str | None:
        return value if value is None else check_network(value, ("efficientnet-lite0",))

    @model_validator(mode="after")
    def _consistent(self) -> DataConfig:
        if self.features is None and self.features_weights is not None:
            raise ValueError(
                "`data.features_weights` are the weights of `data.features`, which is null; name "
                "the backbone, or set them to null"
            )
        if self.validation and self.validation_classes > 0:
            raise ValueError(
                "`data.validation` evaluates on held-out training classes in place of the test, "
                "`data.validation_classes` beside it; set one to false, or to 0"
            )
        return self

    @property
    def is_own(self) -> bool:
        """Whether these are a person's own data: which labels are right is not known."""
        return self.name in OWN_DATA

    @property
    def holds_features(self) -> bool:
        """Whether the network sees features instead of images."""
        return self.name == "features" or self.features is not None


class NoiseConfig(Section):
    """Wrong labels put into the training split, or a file that holds the labels to train on."""

    kind: str = "symmetric"  # folder, table, features: none, unless it is asked for
    rate: Fraction = 0.3  # share of labels changed
    per_class: bool = False  # round(rate * N_c) of each class instead of round(rate * N) overall
    seed: Seed | None = None  # null: the experiment's seed
    labels_file: FilePath | None = None  # of labels, or of corrected labels from `bspml audit`
    list_file: FilePath | None = None  # published noisy labels: PRISM's, `path,label`
    decisions_file: FilePath | None = None  # a person's verdicts, saved from the page

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, given: Any) -> Any:
        return fill_noise(given, ("labels_file", "list_file"))

    @field_validator("kind")
    @classmethod
    def _known(cls, value: str) -> str:
        return check_name(value, NOISE_KINDS)

    @model_validator(mode="after")
    def _consistent(self) -> NoiseConfig:
        files = {"labels_file": self.labels_file, "list_file": self.list_file}
        check_planted(self.kind, self.rate, files)
        if self.per_class and self.kind not in ("symmetric", "pair-flip"):
            raise ValueError(
                f"`noise.per_class` is true, but only symmetric and pair-flip read it; "
                f"`noise.kind` is {self.kind}"
            )
        return self
