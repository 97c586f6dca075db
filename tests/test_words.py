"""Phrases that many places say, word for word."""

import pytest

from bspml.words import did_you_mean, interval_in_words, noise_sentence, percent


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0"), (0.0003, "0.0"), (0.031, "3.1"), (0.0994, "9.9"), (0.0996, "10"), (1, "100")],
)
def test_shares_have_two_figures(share, text):
    assert percent(share) == text


def test_a_range_an_estimate_and_its_interval():
    assert noise_sentence(0.2, (0.12, 0.25), 0.4) == (
        "Between 12 and 40 % of the labels are wrong: the best estimate of labels wrong at random "
        "is 20 % (95 % interval 12 to 25 %), and confusions between similar classes come on top."
    )


@pytest.mark.parametrize("low", [0.0, 0.0004])
def test_an_interval_that_reaches_0_says_that_there_may_be_none(low):
    assert noise_sentence(0.02, (low, 0.05), 0.3).startswith(
        f"Between {percent(low)} and 30 % of the labels are wrong, maybe none: the best estimate"
    )
    assert "(95 % interval 0 to 5.0 %), maybe none;" in noise_sentence(0.02, (0, 0.05))
    assert "maybe none" not in noise_sentence(0.02, (0.001, 0.05), 0.3)


def test_a_rate_without_an_interval_is_an_estimate_only():
    assert noise_sentence(0.25) == (
        "The best estimate of labels wrong at random is 25 %; confusions between similar classes "
        "come on top."
    )


@pytest.mark.parametrize("interval", [None, (0, 0.3), (0.1, 0.3)])
@pytest.mark.parametrize("upper", [None, 0.5])
def test_nobody_is_promised_a_point_estimate(interval, upper):
    assert "least" not in noise_sentence(0.2, interval, upper)


def test_the_nearest_name_is_suggested_whatever_its_capital_letters():
    assert did_you_mean("MARGN", ["alpha", "margin"]) == "; did you mean `margin`?"
    assert did_you_mean("imea_t", ["imae_T"], quote=repr, lead="") == "did you mean 'imae_T'?"


def test_nothing_near_is_suggested_for_something_far():
    assert did_you_mean("zzz", ["alpha", "beta"]) == ""
    assert did_you_mean(3, ["alpha"]) == ""


def test_an_interval_without_ends_is_nothing():
    assert interval_in_words(1, 2.26, 1) == " (1.0–2.3)"
    assert interval_in_words(float("nan"), 2.0, 1) == interval_in_words(0.0, None, 1) == ""
