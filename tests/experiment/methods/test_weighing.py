"""Sources of weights around the loss of a method."""

import pytest
import torch

from bspml.errors import InputError
from bspml.experiment.methods import build
from bspml.losses.weighted import Weighted
from bspml.trainers.settings import AutoSettings, keywords_of
from helpers.method_steps import context


def test_automatic_says_what_moves_the_weights():
    parts = build("auto:margin", context(hyper={"rule": "quadratic", "alpha": 0.3}))
    assert isinstance(parts.loss, Weighted)
    assert parts.loss.loss.margin == 0.3
    assert parts.miner is None  # it mines inside, where it sees no sample of weight 0
    assert parts.loss.miner is not None
    assert (parts.curriculum_kind, parts.needs_sample_index) == ("auto", True)
    expected = {"preset": "auto", **keywords_of(AutoSettings, AutoSettings(rule="quadratic"))}
    assert parts.curriculum == expected


def test_the_clean_reference_says_that_it_was_told():
    parts = build("clean-only:supcon", context())
    assert parts.curriculum_kind == "fixed-clean"
    assert "which nobody knows" in parts.notes[-1]


def test_parameters_of_the_loss_stay_those_of_the_optimiser():
    parts = build("auto:proxy-anchor", context())
    assert parts.loss_has_parameters
    assert [p.shape for p in parts.loss.parameters()] == [torch.Size([8, 16])]
    assert parts.loss_lr_factor == build("proxy-anchor", context()).loss_lr_factor


def test_without_weights_it_is_refused_by_name():
    with pytest.raises(InputError, match=r"`weights` must be given: auto:contrastive weighs"):
        build("auto:contrastive", context(weights=None))


def test_a_loss_that_takes_no_fractions_is_refused_under_the_rule_that_gives_them():
    build("auto:proxy-anchor", context())
    with pytest.raises(
        InputError, match=r"auto:proxy-anchor takes weights 0 and 1 only.*quadratic"
    ):
        build("auto:proxy-anchor", context(hyper={"rule": "quadratic"}))
