"""Columns of samples, their order and their cards."""

import numpy as np
import pytest

from bspml.errors import InputError
from bspml.report.run_page import run_suspects
from bspml.report.samples import Samples


def test_columns_of_suspects_must_be_of_one_length():
    with pytest.raises(InputError, match=r"`suggested` must be one per sample, 2; got 1"):
        Samples(np.array(["a", "b"]), np.ones(2), suggested=["b"])
    samples = Samples(np.array(["a", "b"]), np.ones(2))
    with pytest.raises(InputError, match=r"`images` must be one per sample, 2; got 1"):
        run_suspects(samples, images=np.zeros((1, 4, 4)))


def test_a_card_holds_what_is_known_of_a_sample_and_its_neighbours():
    samples = Samples(
        labels=np.array([3, 3, 7]),
        weights=np.array([0.0, 1.0, 0.5]),
        names=["a", "b", "c"],
        suggested=np.array([7, 3, 7]),
        margins=np.array([0.25, np.nan, 0.0]),
        suggestion_probability=np.array([0.75, np.nan, 0.5]),
        own=np.array([[1, -1], [0, -1], [-1, -1]]),
        other=np.array([[2, -1], [2, -1], [0, 1]]),
        texts=["one", "two", "three"],
        picture={0: "a.png"}.get,
    )
    first, second = samples.card(0), samples.card(1)
    assert (first.index, first.label, first.name, first.suggested) == (0, "3", "a", "7")
    assert (first.margin, first.p, first.weight) == (0.25, None, 0.0)
    assert (first.suggestion_probability, second.suggestion_probability) == (0.75, None)
    assert (first.image, first.text) == ("a.png", "one")
    assert [(n.index, n.label, n.text) for n in first.own] == [(1, "3", "two")]
    assert [(n.index, n.label, n.image) for n in first.other] == [(2, "7", None)]
    assert second.suggested == ""  # the label it has
    assert second.margin is None  # NaN is unknown


def test_columns_that_are_not_known_leave_a_card_empty():
    card = Samples(np.array(["cat"]), np.ones(1)).card(0)
    assert (card.name, card.suggested, card.own, card.other) == ("", "", (), ())
    assert (card.margin, card.p, card.q, card.image, card.text) == (None,) * 5
