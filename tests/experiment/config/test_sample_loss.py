"""Which settings the loss of a sample reads, and what float32 could not compute with."""

import pytest
from pydantic import ValidationError

from bspml.experiment.config.names import CLASS_LOSSES, VALUE_LOSSES
from bspml.experiment.config.sample_loss import SampleLossConfig

OTHER = {
    "base": "mse",
    "lam": 0.7,
    "tau": "mean",
    "momentum": 0.5,
    "q": 0.3,
    "k": 0.4,
    "truncate_after": 2,
    "T": 4.0,
    "beta": 3.0,
    "g": "identity",
}
READS = {
    "gce": {"q"},
    "truncated-gce": {"q", "k", "truncate_after"},
    "imae": {"T"},
    "gr": {"beta", "lam", "g"},
    "superloss": {"base", "lam", "tau", "momentum"},
}


@pytest.mark.parametrize("name", sorted({*CLASS_LOSSES, *VALUE_LOSSES}))
@pytest.mark.parametrize("key", OTHER)
def test_a_loss_takes_what_it_reads_and_refuses_the_rest(name, key):
    if key in READS.get(name, ()):
        assert getattr(SampleLossConfig(name=name, **{key: OTHER[key]}), key) == OTHER[key]
        return
    with pytest.raises(ValidationError, match=f"`{key}` is .*, but nothing reads it while `name`"):
        SampleLossConfig(name=name, **{key: OTHER[key]})


def test_every_setting_has_a_reader():
    assert set(OTHER) == set(SampleLossConfig.model_fields) - {"name"}


def test_momentum_is_of_the_moving_tau_alone():
    with pytest.raises(ValidationError, match=r"`momentum` is 0\.5, .* while `tau` is 1\.0"):
        SampleLossConfig(tau=1, momentum=0.5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lam": 0.0}, "`lam` of superloss must be at least 1e-09"),
        ({"tau": 1e39}, r"log-classes or a number in .-1e.09, 1e.09.; got '1e.39'"),
        ({"name": "gr", "beta": 1000.0}, "`beta` is 1000, .* beyond float32"),
        ({"name": "imae", "T": 400.0}, "`T` is 400, .* exp of 100, beyond float32"),
        ({"tau": "max"}, "must be ema, mean, log-classes or a number in .*; got 'max'"),
    ],
)
def test_what_float32_or_the_formula_cannot_hold_is_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        SampleLossConfig(**settings)


def test_the_strength_is_lam_or_the_default_of_the_loss():
    assert [SampleLossConfig(name=name).strength for name in ("superloss", "gr")] == [0.25, 0.5]
    assert SampleLossConfig(name="gr", lam=0.0).strength == 0
