"""Transforms on the loss of a method: their settings, their notes, and what they leave alone."""

import pytest

from bspml import methods
from bspml.errors import InputError
from bspml.experiment.methods import WRAPPERS
from helpers.method_steps import batch, context, step


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrapper_settings_reach_the_reducer_and_the_method_s_the_loss(wrapper):
    given = {"superloss": {"superloss_lam": 0.5}, "gr": {"gr_beta": 3}, "imae": {"imae_T": 4}}
    parts = methods.build(
        f"{wrapper}:multi-similarity", context(hyper={"beta": 40, **given[wrapper]})
    )
    assert parts.loss.beta == 40
    reducer = parts.loss.reducer
    found = {"superloss": "lam", "gr": "beta", "imae": "beta"}[wrapper]
    assert getattr(reducer, found) == next(iter(given[wrapper].values()))
    assert any(note.startswith(f"{wrapper}:") for note in parts.notes)


@pytest.mark.parametrize("wrapper", ["gr", "imae"])
def test_an_emphasis_is_no_confidence(wrapper):
    here = context()
    parts = methods.build(f"{wrapper}:contrastive", here)
    step(parts, *batch(0), here.weights)
    assert methods.sample_confidences(parts) is None


def test_the_note_names_every_setting_and_the_unit_of_lam():
    parts = methods.build("superloss:contrastive", context())
    assert parts.notes[-1] == (
        "superloss: superloss_lam 0.05, superloss_tau ema, superloss_momentum 0.9, "
        "superloss_shared_tau False, superloss_smoothing none; lam is in units of the loss"
    )
    parts = methods.build("gr:contrastive", context(hyper={"gr_beta": 3}))
    assert parts.notes[-1] == "gr: gr_beta 3.0, gr_lam 0.5, gr_g exp"


def test_inside_prism_no_confidence_of_a_sample_is_kept():
    parts = methods.build("superloss:prism", context())
    assert parts.loss.loss.reducer.table is None
    assert methods.sigma(parts) is None


@pytest.mark.parametrize(
    ("tau", "said"),
    [("max", "must be one of ema, mean or in .*; got 'max'"), (float("nan"), "got nan")],
)
def test_tau_is_a_name_or_a_number(tau, said):
    with pytest.raises(InputError, match=rf"`hyper\.superloss_tau` {said}|{said}"):
        methods.check_method("superloss:snr", {"superloss_tau": tau})
    parts = methods.build("superloss:snr", context(hyper={"superloss_tau": 2}))
    assert "superloss_tau 2.0" in parts.notes[-1]
