"""Loading what a run left, here one that version 0.1 wrote (see `test_old_runs`)."""

import re
from pathlib import Path

import pytest
import torch

import bspml
from bspml.errors import InputError, RunError
from bspml.experiment.load import _meant

FINISHED = Path(__file__).parent / "old_runs" / "finished"


def test_a_finished_run_opens_with_its_weights_and_records():
    run = bspml.load(FINISHED, method="bspml")
    table = (FINISHED / "weights.csv").read_text("utf-8").splitlines()
    assert run.finished
    assert run.sample_weights.shape == (len(table) - 1,)
    assert [r.method for r in run.records][-1] == "superloss:contrastive"
    assert run.embed(torch.rand(3, 1, 24, 24)).shape == (3, 8)


def test_a_plain_method_weighs_every_sample_by_one():
    """Its checkpoint has no weights."""
    run = bspml.load(FINISHED, method="superloss:contrastive")
    automatic = bspml.load(FINISHED, method="bspml")
    assert torch.equal(run.sample_weights, torch.ones(len(automatic.sample_weights)))


def test_numbers_of_another_width_are_embedded_and_integers_refused():
    run, images = bspml.load(FINISHED), torch.rand(3, 1, 24, 24)
    embedded = run.embed(images)
    assert torch.equal(run.embed(images.double().numpy()), embedded)
    torch.testing.assert_close(run.embed(images.half()), embedded, rtol=0, atol=0.01)
    with pytest.raises(InputError, match=r"must be floats; got torch.uint8. Divide by 255"):
        run.embed((images * 255).byte())


@pytest.mark.parametrize("shape", [(3, 3, 24, 24), (3, 1, 48, 48), (1, 24, 24), (24, 24), (3, 576)])
def test_images_that_the_network_does_not_take_are_named(shape):
    expected = rf"must be images \(N, 1, 24, 24\), as .* got {re.escape(str(shape))}"
    with pytest.raises(InputError, match=expected):
        bspml.load(FINISHED).embed(torch.rand(shape))


def test_where_no_method_is_named_the_automatic_one_is_meant():
    assert bspml.load(FINISHED).method == "bspml"  # as it was before other losses were automatic
    for trained, meant in (
        (("contrastive", "auto:contrastive"), "auto:contrastive"),
        (("auto:contrastive", "bspml"), "bspml"),
        (("superloss:auto:supcon", "auto:arcface"), "superloss:auto:supcon"),
        (("multi-similarity",), "multi-similarity"),
    ):
        assert _meant(trained) == meant


def test_a_method_that_was_not_trained_is_refused_with_those_that_were():
    with pytest.raises(RunError, match=r"no checkpoint of method 'prism'; it has bspml, bspml-pap"):
        bspml.load(FINISHED, method="prism")
