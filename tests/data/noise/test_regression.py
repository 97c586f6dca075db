"""Wrong regression targets: exact counts, the range kept, never the own value, kinds kept."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from bspml import noise
from bspml.errors import InputError

DIGITS = np.arange(1000) % 10
AGES = np.random.default_rng(0).uniform(1, 90, 1000)


@settings(max_examples=60)
@given(
    values=st.lists(st.integers(-3, 3), min_size=2, max_size=40).filter(lambda v: len(set(v)) > 1),
    percent=st.integers(0, 100),
    kind=st.sampled_from(["uniform", "resample"]),
    as_float=st.booleans(),
    seed=st.integers(0, 2**40),
)
def test_exactly_the_rounded_count_changes_and_never_to_the_own_value(
    values, percent, kind, as_float, seed
):
    true = np.array(values, dtype=float if as_float else int)
    noisy = noise.targets(true, percent / 100, seed, kind)
    assert noisy.is_noisy.sum() == round(Fraction(percent, 100) * len(values))
    assert np.array_equal(noisy.is_noisy, noisy.targets != true)
    assert np.array_equal(noisy.true_targets, true)
    assert noisy.targets.dtype == true.dtype
    assert true.min() <= noisy.targets.min()
    assert noisy.targets.max() <= true.max()
    if kind == "resample":
        assert set(noisy.targets) <= set(values)
    assert noisy.actual_rate == noisy.is_noisy.mean()


def test_a_wrong_digit_is_each_other_digit_equally_often():
    noisy = noise.targets(np.full(9_000, 4), 1.0, low=0, high=9)
    counts = np.bincount(noisy.targets, minlength=10)
    assert counts[4] == 0
    # 1000 each, standard deviation 29.8
    assert np.abs(np.delete(counts, 4) - 1000).max() < 5 * 29.8


def test_a_wrong_number_is_anywhere_in_the_range():
    noisy = noise.targets(AGES, 1.0, low=1.0, high=101.0, seed=2)
    # Uniform on [1, 101]: mean 51, standard deviation 28.9, and of the mean .91
    assert abs(noisy.targets.mean() - 51) < 5 * 0.91
    quarters = np.histogram(noisy.targets, [1, 26, 51, 76, 101])[0]
    assert np.abs(quarters - 250).max() < 5 * 13.7


def test_resampling_keeps_frequent_values_frequent():
    true = np.repeat([0, 1, 2], [6_000, 3_000, 1_000])
    noisy = noise.targets(true, 1.0, kind="resample", seed=1)
    # From 0: 1 and 2 as 3 to 1.  4,500 of 6,000, standard deviation 33.5
    assert abs((noisy.targets[:6_000] == 1).sum() - 4_500) < 5 * 33.5
    # From 2: 0 and 1 as 2 to 1.  667 of 1,000, standard deviation 14.9
    assert abs((noisy.targets[9_000:] == 0).sum() - 667) < 5 * 14.9
    assert noisy.is_noisy.all()


@pytest.mark.parametrize("kind", ["uniform", "resample"])
def test_with_originals_kept_a_tenth_of_the_digits_stays(kind):
    noisy = noise.targets(DIGITS, 1.0, kind=kind, keep_original=True)
    # 900 of 1000 wrong, standard deviation 9.5
    assert abs(noisy.is_noisy.sum() - 900) < 5 * 9.5
    assert np.array_equal(noisy.is_noisy, noisy.targets != DIGITS)


def test_by_chance_the_count_varies_around_the_rate():
    counts = [noise.targets(DIGITS[:100], 0.3, s, exact=False).is_noisy.sum() for s in range(300)]
    # Binomial(100, .3): variance 21
    assert abs(np.mean(counts) - 30) < 5 * np.sqrt(21 / 300)
    assert abs(np.var(counts) - 21) < 5 * 21 * np.sqrt(2 / 299)


@pytest.mark.parametrize("rate", [0, 1])
@pytest.mark.parametrize("exact", [True, False])
def test_rate_zero_changes_nothing_and_rate_one_everything(rate, exact):
    assert noise.targets(AGES, rate, exact=exact).is_noisy.mean() == rate


def test_the_same_seed_gives_the_same_targets_whatever_the_global_generator():
    np.random.seed(1)  # noqa: NPY002
    first = noise.targets(AGES, 0.3, 5)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    assert np.array_equal(noise.targets(AGES, 0.3, 5).targets, first.targets)
    assert not np.array_equal(noise.targets(AGES, 0.3, 6).targets, first.targets)
    np.random.seed(1)  # noqa: NPY002
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_more_noise_hits_the_same_samples_and_more():
    few, many = (noise.targets(AGES, rate, 3).is_noisy for rate in (0.2, 0.6))
    assert (many | ~few).all()


@pytest.mark.parametrize(
    "dtype",
    [np.uint8, np.int16, np.int64, np.float16, np.float32, np.float64],
)
def test_arrays_and_tensors_keep_their_kind(dtype):
    values = DIGITS[:200].astype(dtype)
    array = noise.targets(values, 0.5, 1)
    assert array.targets.dtype == array.true_targets.dtype == dtype
    assert array.is_noisy.sum() == 100
    tensor = noise.targets(torch.from_numpy(values), 0.5, 1)
    assert tensor.targets.dtype == torch.from_numpy(values).dtype
    assert tensor.is_noisy.dtype == torch.bool
    assert np.array_equal(tensor.targets.numpy(), array.targets)
    assert tensor.actual_rate == 0.5
    assert not isinstance(noise.targets(values.tolist(), 0.5, 1).targets, list)
    values[:] = 0
    assert array.true_targets.any()


def test_a_coarse_dtype_still_never_keeps_the_own_value():
    # float16 has 3 numbers from 1 to 1.002
    true = np.array([1.0, 1.001, 1.002], np.float16).repeat(100)
    noisy = noise.targets(true, 1.0)
    assert noisy.is_noisy.all()
    assert noisy.targets.max() <= true.max()


def test_the_ends_of_the_range_belong_to_it_and_the_own_value_may_lie_outside():
    noisy = noise.targets(np.array([5, 5, 5, 90] * 50), 1.0, low=4, high=6)
    assert set(noisy.targets[:3].tolist()) <= {4, 6}
    assert set(noisy.targets[3::4].tolist()) == {4, 5, 6}
    assert set(noise.targets(np.array([0, 1] * 20), 1.0).targets) == {0, 1}


@pytest.mark.parametrize("keep_original", [False, True])
def test_whole_numbers_may_be_beyond_those_of_int64(keep_original):
    true = np.array([2**64 - 1, 0, 1, 2**63] * 25, np.uint64)
    noisy = noise.targets(true, 1.0, keep_original=keep_original).targets
    assert noisy.dtype == np.uint64
    assert keep_original or (noisy != true).all()
    high = np.uint64(2**64 - 2)
    ends = noise.targets(true, 1.0, low=2**63, high=2**64 - 2048).targets
    assert ((ends >= 2**63) & (ends <= high)).all()


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ([], {}, "N at least 1"),
        (np.ones((2, 2)), {}, r"got shape \(2, 2\)"),
        ([True, False], {}, "torch.bool"),
        (["a", "b"], {}, "`targets` must be"),
        ([1.0, float("nan"), float("inf")], {}, "rows 1, 2 hold NaN or infinity"),
        (torch.ones(2, dtype=torch.bfloat16), {}, "16, 32 or 64 bits; got torch.bfloat16"),
        ([3, 3], {}, "`low` must be below `high`; got 3 and 3"),
        ([3, 3], {"kind": "resample"}, "`targets` must differ"),
        ([1, 2], {"low": 2, "high": 2}, "`low` must be below `high`"),
        ([1, 2], {"low": 0.5}, "`low` must be a whole number that fits int64"),
        ([1, 2], {"high": float("inf")}, "`high` must be"),
        (np.array([1, 2], np.uint8), {"high": 300}, "fits uint8"),
        (np.array([1, 2], np.float16), {"high": 1e6}, "`high` must fit float16"),
        (np.array([-1.7e308, 1.7e308]), {}, "span more than a float holds"),
        ([1, 2], {"kind": "resample", "low": 0}, "`low` and `high` go with kind"),
        ([1, 2], {"kind": "gaussian"}, "`kind` must be one of uniform, resample; got 'gaussian'"),
        ([1, 2], {"rate": 1.5}, "`rate` must be"),
        ([1, 2], {"rate": float("nan")}, "`rate` must be"),
        ([1, 2], {"seed": -1}, "`seed` must be"),
    ],
)
def test_wrong_input_is_refused(values, options, message):
    with pytest.raises(InputError, match=message):
        noise.targets(values, **{"rate": 0.5, **options})
