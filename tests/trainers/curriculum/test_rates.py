"""Rates that are held, and what is told of them where copies decide some labels."""

import numpy as np
import pytest

from bspml.errors import CheckpointError
from bspml.statistics.label_errors import LabelErrors
from bspml.trainers.curriculum.rates import HeldRates


def test_rates_of_all_labels_count_those_that_copies_decide():
    # Of 100 labels 20 have a copy under another one, and 15 of these are wrong; 80 others at .1.
    rates = HeldRates(0.1, (0.0, 0.2), 0.3, (0.25, 0.5), apart=0.2, apart_wrong=0.15)
    told = rates.fields()
    assert told["noise_rate"] == pytest.approx(0.08 + 0.15)
    assert told["noise_interval"] == pytest.approx((0.15, 0.31))
    assert told["total_rate"] == pytest.approx(0.24 + 0.15)
    assert told["total_interval"] == pytest.approx((0.35, 0.55))
    assert (rates.held, rates.mostly_confused) == (0.3, True)
    assert HeldRates.from_state(rates.state_dict()) == rates
    nothing = HeldRates()
    assert set(nothing.fields().values()) == {None}
    assert HeldRates.from_state(nothing.state_dict()) == nothing
    with pytest.raises(CheckpointError, match="numbers that no curriculum has"):
        HeldRates.from_state(rates.state_dict() | {"apart": [0.2, 1.5]})


def test_a_total_counts_the_classes_that_are_left_out_as_a_whole():
    # Of 100 labels 10 cannot be judged and are out; a fifth of the 90 others is wrong.
    class Errors(LabelErrors):
        rate, interval = 0.2, (0.1, 0.3)

    columns = [np.zeros(90)] * 5
    errors = Errors(*columns, model=None, shrink=0.5, rounds=0, fitted=90)
    total = HeldRates(0.1, (0.0, 0.2)).with_total(errors, gone=0.1)
    assert total.total_rate == pytest.approx(0.18 + 0.1)
    assert total.total_interval == pytest.approx((0.09 + 0.1, 0.27 + 0.1))
    assert total.noise_rate == 0.1
    assert HeldRates().with_total(errors).total_interval == (0.1, 0.3)
