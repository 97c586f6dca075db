"""The sections of data and label noise: what they imply, and what contradicts itself."""

import pytest
from pydantic import ValidationError

from bspml.experiment.config.data import DataConfig, NoiseConfig
from bspml.experiment.config.names import DATASETS, NOISE_KINDS, OWN_DATA


def test_known_names_are_taken_and_others_refused():
    assert [DataConfig(name=name).is_own for name in DATASETS] == [n in OWN_DATA for n in DATASETS]
    assert {NoiseConfig(kind=kind, rate=0.0).kind for kind in NOISE_KINDS} == set(NOISE_KINDS)
    with pytest.raises(ValidationError, match=r"must be one of glyphs, omniglot, .*; got 'glyfs'"):
        DataConfig(name="glyfs")


def test_features_come_from_the_data_or_from_a_backbone():
    assert DataConfig(name="features").holds_features
    assert DataConfig(features="torchvision:resnet50", features_weights="w.pt").holds_features
    assert not DataConfig().holds_features
    with pytest.raises(ValidationError, match="must be one of efficientnet-lite0, torchvision:MO"):
        DataConfig(features="resnet50")
    with pytest.raises(ValidationError, match=r"`features_weights` is w\.pt, but nothing reads it"):
        DataConfig(features_weights="w.pt")


def test_held_out_classes_replace_the_test_or_stand_beside_it():
    with pytest.raises(ValidationError, match="`validation_classes` beside it; set one to false"):
        DataConfig(validation=True, validation_classes=0.2)


def test_labels_of_a_file_are_not_planted_and_no_noise_has_rate_0():
    noise = NoiseConfig(list_file="noisy.txt")
    assert (noise.kind, noise.rate) == ("none", 0)
    assert NoiseConfig(kind="none").rate == 0
    assert (NoiseConfig().kind, NoiseConfig().rate) == ("symmetric", 0.3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "none", "rate": 0.1}, "`rate` is 0.1, but `kind` is none; set `rate` to 0"),
        ({"labels_file": "a", "list_file": "b"}, "`labels_file` and `list_file` both give the la"),
        ({"labels_file": "a", "kind": "symmetric"}, "`labels_file` already gives the labels"),
        (
            {"kind": "open-set", "per_class": True},
            "`per_class` is true, .* symmetric, pair-flip or semantic",
        ),
    ],
)
def test_noise_of_two_sources_or_of_none_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        NoiseConfig(**settings)
