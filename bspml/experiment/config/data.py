"""The sections of an experiment that say what it trains on: data and label noise."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from bspml.experiment.config.common import AtLeast2, FilePath, PlantedNoise, Seed, one_of
from bspml.experiment.config.names import DATASETS, NOISE_KINDS, OWN_DATA, USERS_DATA, check_network
from bspml.trainers.settings import Fraction, ReadBy, Section, as_yaml

Backbone = Annotated[str, AfterValidator(partial(check_network, names=("efficientnet-lite0",)))]


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool):  # true is 1 to Python
        raise ValueError(f"must be one of 1, 3; got {as_yaml(value)}")
    return value


_EVEN = ("symmetric", "pair-flip", "semantic")  # kinds that can take the same share of every class


class DataConfig(Section):
    """Which data set, where its files are, and what the network sees of it."""

    name: Annotated[str, one_of(*DATASETS)] = "glyphs"
    root: FilePath | None = None  # folder with the files, or of the cache; null: the data set's own
    incomplete: bool = False  # true: use what is there where files or classes are missing
    classes: Literal["official", "half"] = "official"  # half: train on the first half of them
    layout: str | None = None  # of cars196, cars98n: which annotation files; null: those there are
    label_column: str | None = None  # table, huggingface: null: the usual names
    split_column: str | None = None
    # Labels that count nowhere: their samples are left out of every split.
    ignore: Annotated[tuple[str | int, ...], Field(strict=False)] = ()
    # folder, table, huggingface: what images show
    content: Literal["photo", "tile", "character"] | None = None
    # Pixels, square; null: 24 for glyphs, 28 for characters, 32 for tiles, 224 for photographs.
    image_size: Annotated[int, Field(ge=8, le=1024)] | None = None
    channels: Annotated[Literal[1, 3] | None, BeforeValidator(_no_truth)] = (
        None  # null: 1 for characters, else 3
    )
    crop_boxes: bool = False  # look at the annotated boxes only
    augment: bool | None = None  # random views in training; null: of photographs
    features: Backbone | None = None  # whose features, extracted once, the network sees
    features_weights: Annotated[FilePath | None, ReadBy("features")] = None  # its weights
    cache: FilePath | None = None  # folder of the features; null: the user's cache
    subset: AtLeast2 | None = None  # classes kept of each split; null: all
    validation: bool = False  # true: evaluate on a quarter of the training classes, held out
    # Share of the training classes held out and evaluated beside the test: they select the epoch.
    # null: a fifth of your own classes where the features are pretrained, else 0.
    validation_classes: Annotated[float, Field(ge=0, le=0.5)] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> DataConfig:
        if self.validation and self.validation_classes:
            raise ValueError(
                "`validation` evaluates on held-out training classes in place of the test, "
                "`validation_classes` beside it; set one to false, or to 0"
            )
        return self

    @property
    def is_own(self) -> bool:
        """Say whether these are labels as collected, such as the user's: the right ones are not
        known."""
        return self.name in OWN_DATA

    @property
    def is_users(self) -> bool:
        """Say whether they are the user's own, not a set collected with wrong labels."""
        return self.name in USERS_DATA

    @property
    def holds_features(self) -> bool:
        """Say whether the network sees features instead of images."""
        return self.name == "features" or self.features is not None


class NoiseConfig(PlantedNoise):
    """Wrong labels put into the training split, or a file that holds the labels to train on."""

    label_files = ("labels_file", "list_file")

    # folder, table, huggingface, features: none, unless it is asked for.
    kind: Annotated[str, one_of(*NOISE_KINDS)] = "symmetric"
    rate: Fraction = 0.3
    per_class: Annotated[bool, ReadBy("kind", _EVEN)] = False
    seed: Seed | None = None  # null: the experiment's seed
    labels_file: FilePath | None = None  # of labels, or of corrected labels from `bspml audit`
    list_file: FilePath | None = None  # published noisy labels: PRISM's, `path,label`
    decisions_file: FilePath | None = None  # the user's verdicts, saved from the page
