"""What a method is built from, what it can be told, and how far it trusts each sample."""

import pytest

from bspml import methods
from bspml.errors import InputError
from bspml.experiment.methods import METHODS
from bspml.experiment.methods.parts import checked
from helpers.method_steps import ROWS, batch, context, step


def test_hidden_keys_cannot_be_set_and_stay_at_their_defaults():
    spms = METHODS["spms"]
    assert "balance" not in spms.hyper()
    assert checked(spms, {"balance": 3.0}).balance == 0
    assert METHODS["bspml-paper"].hyper()["balance"].default == 1


def test_a_section_takes_its_own_hyper_parameters_and_leaves_the_others():
    settings = checked(METHODS["rdml"], {"eta": 2, "superloss_lam": 0.5})
    assert (settings.eta, settings.margin) == (2.0, 1.0)
    with pytest.raises(InputError, match=r"`hyper\.eta` must be in \[0, 1e.09\]; got -1"):
        checked(METHODS["rdml"], {"eta": -1})


def test_what_the_paper_prints_is_marked():
    printed = {name: hyper.printed for name, hyper in METHODS["bspml-paper"].hyper().items()}
    assert {name for name, yes in printed.items() if yes} == {"alpha", "beta", "base", "epsilon"}
    assert not METHODS["multi-similarity"].hyper()["base"].printed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_classes": 0}, "`num_classes` must be a whole number"),
        ({"embedding_size": 0}, "`embedding_size` must be a whole number"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0"),
        ({"noise_rate": 1.1}, r"`noise_rate` must be in \[0, 1\]"),
        ({"num_classes": 9}, "`weights` must have num_classes = 9 classes; got 8"),
    ],
)
def test_a_context_that_does_not_fit_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        context(**changes)


def test_confidences_of_samples_are_those_of_the_loss():
    here = context()
    plain = methods.build("multi-similarity", here)
    assert methods.sample_confidences(plain) is None
    for name in ("superloss:margin", "prism"):
        parts = methods.build(name, here)
        assert parts.needs_sample_index
        for seed in range(3):
            step(parts, *batch(seed), here.weights)
        found = methods.sample_confidences(parts)
        assert found.shape == (ROWS,)
        assert 0 <= found.min() < found.max() <= 1
        loss = parts.loss.reducer if name == "superloss:margin" else parts.loss
        assert found.tolist() == loss.as_weights().tolist()  # in a loop of your own


def test_a_sample_easier_than_average_is_trusted_in_full_and_no_more():
    here = context()
    parts = methods.build("superloss:margin", here)
    for seed in range(3):
        step(parts, *batch(seed), here.weights)
    found, sigma = methods.sample_confidences(parts), methods.sigma(parts)
    met = sigma.isfinite()
    assert 1 < sigma[met].max() <= 2.7183
    assert (found[met] == sigma[met].clamp(max=1)).all()
    assert (found[~met] == 1).all()


@pytest.mark.parametrize(
    "name", ["bspml", "bspml-paper", "spms", "neighbour-vote", "clean-only", "gr:bspml"]
)
def test_methods_that_weigh_samples_need_their_table(name):
    with pytest.raises(InputError, match=r"`weights` must be given: .* weighs samples"):
        methods.build(name, context(weights=None))
