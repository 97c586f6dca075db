"""What a run says before it trains."""

import numpy as np
import torch

from bspml.experiment.config import config_from_mapping
from bspml.experiment.data import ExperimentData
from bspml.experiment.words import opening_lines, sides


def data(labels, test_labels, gallery=None):
    names, codes = np.unique(list(labels), return_inverse=True)
    return ExperimentData(
        images=torch.zeros(len(labels), 2),
        views=torch.zeros(len(labels), 2),
        labels=names[codes],
        codes=torch.from_numpy(codes),
        true_labels=None,
        is_noisy=None,
        test_images=torch.zeros(len(test_labels), 2),
        test_labels=np.array(list(test_labels)),
        fingerprint="",
        width=2,
        gallery_labels=None if gallery is None else np.array(list(gallery)),
    )


def test_classes_that_train_are_counted_beside_those_held_out():
    assert sides(data("aabbb", "ccddee")) == (
        "training on 2 of 5 classes (5 samples), 3 held out for the evaluation (6 samples), "
        "whose labels nobody judges"
    )
    searched = sides(data("aabb", "cd", "ccddd"))
    assert searched.endswith(
        "held out for the evaluation (2 samples in 5), whose labels nobody judges"
    )


def test_classes_on_both_sides_are_said():
    assert sides(data("aabbc", "abbd")) == (
        "training on 3 classes (5 samples), evaluated on 3 classes (4 samples), 2 of them trained "
        "on"
    )


def test_one_of_a_thing_is_singular():
    assert sides(data("aa", "b")) == (
        "training on 1 of 2 classes (2 samples), 1 held out for the evaluation (1 sample), "
        "whose labels nobody judges"
    )
    assert sides(data("a", "a")).startswith("training on 1 class (1 sample), evaluated on 1 class")


def test_classes_of_one_sample_are_counted():
    config = config_from_mapping({"sampler": {"classes_per_batch": 2}})
    assert opening_lines(config, data("aabb", "cc")) == [sides(data("aabb", "cc"))]
    told = opening_lines(config, data("aabbcd", "ee"))[1]
    assert told.startswith("2 training classes have one sample, which has no other of its class")
