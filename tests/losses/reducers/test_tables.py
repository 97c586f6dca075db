import math

import pytest
import torch

from bspml.errors import InputError
from bspml.losses.reducers.tables import KeyedAverage


def test_repeated_keys_count_by_their_mean_and_absent_ones_stay():
    table = KeyedAverage(4, momentum=0.5)
    table.update(torch.tensor([1.0, 3.0, 10.0]), torch.tensor([2, 2, 0]))
    torch.testing.assert_close(
        table.filled(), torch.tensor([10.0, math.nan, 2.0, math.nan]), equal_nan=True
    )
    table.update(torch.tensor([4.0]), torch.tensor([2]))
    torch.testing.assert_close(
        table.filled(), torch.tensor([10.0, math.nan, 3.0, math.nan]), equal_nan=True
    )


def test_a_first_value_of_zero_counts_as_seen():
    table = KeyedAverage(1, momentum=0.9)
    table.update(torch.tensor([0.0]), torch.tensor([0]))
    table.update(torch.tensor([1.0]), torch.tensor([0]))
    assert table.average.item() == pytest.approx(0.1)


def test_against_a_loop():
    generator = torch.Generator().manual_seed(0)
    table, plain = KeyedAverage(7, 0.8), {}
    for _ in range(20):
        keys = torch.randint(0, 7, (5,), generator=generator)
        values = torch.randn(5, generator=generator)
        table.update(values, keys)
        for key in set(keys.tolist()):
            mean = values[keys == key].mean().item()
            plain[key] = 0.8 * plain[key] + 0.2 * mean if key in plain else mean
    for key, value in plain.items():
        assert table.average[key].item() == pytest.approx(value, abs=1e-6)


def test_negative_keys_and_infinite_values_leave_no_trace():
    table = KeyedAverage(2, 0.5)
    table.update(torch.tensor([1.0, 5.0, math.nan]), torch.tensor([0, -1, 1]))
    torch.testing.assert_close(table.filled(), torch.tensor([1.0, math.nan]), equal_nan=True)


def test_looking_up_falls_back_where_nothing_is_known():
    table = KeyedAverage(2, 0.5)
    table.update(torch.tensor([1.0]), torch.tensor([0]))
    found = table.look_up(torch.tensor([0, 1, -1]), torch.tensor([7.0, 8.0, 9.0]))
    assert found.tolist() == [1.0, 8.0, 9.0]


def test_eval_mode_learns_nothing():
    table = KeyedAverage(1, 0.5).eval()
    table.update(torch.tensor([1.0]), torch.tensor([0]))
    assert not table.seen.any()


def test_momentum_one_is_refused():
    with pytest.raises(InputError, match=r"`momentum` must be in \[0, 1\)"):
        KeyedAverage(1, 1.0)
