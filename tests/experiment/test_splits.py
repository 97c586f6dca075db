"""The splits of an experiment: read, shortened, held out."""

import numpy as np
import pytest

from bspml.errors import ConfigError, DataError
from bspml.experiment.config import load_config
from bspml.experiment.data import load_data
from bspml.experiment.splits import held_out_classes, hold_out, load_splits

WHOLE = ["data.subset=24", "sampler.classes_per_batch=8"]


def split(*settings):
    return load_splits(load_config(None, [*settings]))


def test_a_subset_is_the_first_classes_in_the_data_set_s_order():
    whole, part = split(), split("data.subset=24")
    for side in ("train", "test"):
        all_labels, labels = getattr(whole, side).labels, getattr(part, side).labels
        first = list(dict.fromkeys(all_labels.tolist()))[:24]
        assert list(dict.fromkeys(labels.tolist())) == first
        np.testing.assert_array_equal(labels, all_labels[np.isin(all_labels, first)])


def test_a_subset_of_a_gallery_has_the_classes_of_its_queries(tmp_path):
    classes = np.repeat([f"c{c}" for c in range(8)], 6)
    splits = np.where(np.arange(48) < 24, "train", np.where(np.arange(48) % 3, "gallery", "query"))
    order = np.argsort(splits == "gallery", kind="stable")
    order[-16:] = order[-16:][::-1]  # the gallery's classes the other way round
    rows = np.random.default_rng(0).normal(size=(48, 4)).astype(np.float32)
    file = tmp_path / "rows.npz"
    np.savez(file, embeddings=rows, labels=classes[order], splits=splits[order])
    settings = ["data.name=features", f"data.root={file}", "network.name=mlp", "data.subset=2"]
    part = split(*settings)
    for side in (part.test, part.gallery):
        assert set(side.labels) == {"c4", "c5"}
    assert (len(part.test), len(part.gallery)) == (4, 8)


def test_a_subset_of_more_classes_than_there_are_is_refused():
    with pytest.raises(DataError, match=r"`data\.subset` is 300, but the train split of gl"):
        split("data.subset=300")


def test_held_out_classes_neither_train_nor_test():
    config = load_config(None, [*WHOLE, "data.validation_classes=0.25"])
    data, whole = load_data(config), load_data(load_config(None, WHOLE))
    held = set(data.validation_labels)
    assert len(held) == 6
    assert held.isdisjoint(data.labels)
    assert held.isdisjoint(data.test_labels)
    assert held | set(data.true_labels) == set(whole.true_labels)
    assert len(data.validation_labels) + len(data.labels) == len(whole.labels)
    np.testing.assert_array_equal(data.test_labels, whole.test_labels)
    assert whole.validation_labels is None
    assert data.noise_rate == pytest.approx(whole.noise_rate, abs=0.01)


def test_too_few_classes_to_hold_some_out_are_refused():
    with pytest.raises(ConfigError, match="leaves 1"):
        load_data(load_config(None, ["data.subset=3", "data.validation_classes=0.5"]))


def test_classes_of_single_samples_are_not_held_out():
    train = split("data.subset=24").train
    single = train.take(np.unique(train.labels, return_index=True)[1])
    with pytest.raises(ConfigError, match="every class held out for validation has a single samp"):
        hold_out(load_config(None, []), single.labels)


def test_held_out_classes_are_the_same_for_every_seed_and_at_least_two():
    labels = np.repeat(["a", "b", "c", "d"], 3)
    held = held_out_classes(labels, 0.01)
    assert len(np.unique(labels[held])) == 2
    assert not set(labels[held]) & set(labels[~held])
    one, two = (hold_out(load_config(None, [f"seed={s}"]), split().train.labels) for s in (0, 1))
    np.testing.assert_array_equal(one, two)


def test_the_share_held_out_is_not_rounded_down_by_a_binary_fraction():
    labels = np.repeat(np.arange(100), 2)
    assert len(np.unique(labels[held_out_classes(labels, 0.29)])) == 29
    np.testing.assert_array_equal(held_out_classes(labels), held_out_classes(labels, 0.25))


def test_where_no_class_has_two_samples_none_can_be_held_out():
    config = load_config("glyphs")
    with pytest.raises(ConfigError, match="hold none out, as no class has two"):
        hold_out(config, np.arange(40))
    with pytest.raises(ConfigError, match="hold more classes out, or none"):
        hold_out(config, np.r_[np.arange(40), np.repeat(-1, 5)])
