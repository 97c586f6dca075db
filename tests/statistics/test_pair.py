"""Pair statistics against the formula in double loops, the laws of the sum, and bad input."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import bspml
from bspml.errors import InputError

# Sums of a few hundred float64 terms in another order differ by a few hundred ulp.
FLOAT64 = 1e-12
# exp(50 S) of a float32 S that is off by 3e-7 is off by 1.5e-5; the logarithm divides by 50 again.
FLOAT32 = 2e-6


def by_loops(E, labels, alpha, beta, base, w=None):
    """Eq. (3), one pair at a time, with the log-sum taken in Python floats."""
    E = np.asarray(E, dtype=np.float64)
    E = E / np.linalg.norm(E, axis=1, keepdims=True)
    n = len(E)
    w = np.ones(n) if w is None else np.asarray(w)
    pos, neg = np.zeros(n), np.zeros(n)
    for i in range(n):
        terms_pos, terms_neg = [], []
        for j in range(n):
            s = float(E[i] @ E[j])
            if i == j or w[j] == 0:
                continue
            if labels[i] == labels[j]:
                terms_pos.append(math.log(w[j]) - alpha * (s - base))
            else:
                terms_neg.append(math.log(w[j]) + beta * (s - base))
        pos[i] = np.logaddexp.reduce([0.0, *terms_pos]) / alpha
        neg[i] = np.logaddexp.reduce([0.0, *terms_neg]) / beta
    return pos, neg


def sample(n=60, d=8, classes=7, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    E = torch.randn(n, d, generator=g, dtype=torch.float64)
    labels = torch.randint(classes, (n,), generator=g)
    return E.to(dtype), labels


@pytest.mark.parametrize("block", [1, 7, 16, 60, 1000])
@pytest.mark.parametrize("base", [0.5, 1.0, -0.3])
def test_statistics_equal_the_double_loop_for_every_block_size(block, base):
    E, labels = sample()
    stats = bspml.pair_statistics(E, labels, base=base, block_size=block)
    pos, neg = by_loops(E, labels, 2, 50, base)
    np.testing.assert_allclose(stats.xi_pos, pos, atol=FLOAT64)
    np.testing.assert_allclose(stats.xi_neg, neg, atol=FLOAT64)


@pytest.mark.parametrize("strip", [1, 3, 5])
@pytest.mark.parametrize("classes", [2, 20])
def test_pairs_of_one_class_are_found_in_strips_of_any_width(monkeypatch, strip, classes):
    monkeypatch.setattr("bspml.statistics.pair._STRIP", strip)
    E, labels = sample(classes=classes)
    stats = bspml.pair_statistics(E, labels, block_size=16)
    pos, neg = by_loops(E, labels, 2, 50, 0.5)
    np.testing.assert_allclose(stats.xi_pos, pos, atol=FLOAT64)
    np.testing.assert_allclose(stats.xi_neg, neg, atol=FLOAT64)


@pytest.mark.parametrize(("alpha", "beta", "base"), [(2, 156.61, 0.0), (90, 2000, 0.5)])
def test_large_scales_do_not_overflow(alpha, beta, base):
    E, labels = sample()
    stats = bspml.pair_statistics(E, labels, alpha, beta, base, block_size=16)
    pos, neg = by_loops(E, labels, alpha, beta, base)
    np.testing.assert_allclose(stats.xi_pos, pos, atol=FLOAT64)
    np.testing.assert_allclose(stats.xi_neg, neg, atol=FLOAT64)


def test_scale_of_156_on_a_duplicate_under_another_label_gives_one():
    # (1/156.61) log(1 + exp(156.61 (1 - 0))) = 1 to rounding; float32 exp overflows at 88.
    E = torch.ones(2, 3)
    stats = bspml.pair_statistics(E, [0, 1], beta=156.61, base=0.0)
    assert stats.xi_neg.tolist() == pytest.approx([1.0, 1.0], abs=FLOAT32)


def test_sums_of_large_terms_do_not_overflow_either():
    """6,300 times e^80 is more than a float32 holds, though e^80 is not."""
    E, labels = torch.ones(6300, 1), torch.arange(6300) >= 6290
    stats = bspml.pair_statistics(E, labels.long(), beta=80.0, block_size=6300)
    expected = (math.log(6290) + 40) / 80  # the 1 beside them is lost
    assert float(stats.xi_neg[-1]) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("beta", [50.0, 400.0])
def test_weights_enter_inside_the_sums_and_zero_is_absence(beta):
    E, labels = sample(n=40)
    w = torch.rand(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    w[[3, 17, 25]] = 0
    stats = bspml.pair_statistics(E, labels, beta=beta, sample_weights=w, block_size=11)
    pos, neg = by_loops(E, labels, 2, beta, 0.5, w)
    np.testing.assert_allclose(stats.xi_pos, pos, atol=FLOAT64)
    np.testing.assert_allclose(stats.xi_neg, neg, atol=FLOAT64)
    here = w > 0
    without = bspml.pair_statistics(E[here], labels[here], beta=beta, sample_weights=w[here])
    np.testing.assert_allclose(stats.xi_pos[here], without.xi_pos, atol=FLOAT64)
    np.testing.assert_allclose(stats.xi_neg[here], without.xi_neg, atol=FLOAT64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_is_computed_in_float32(dtype):
    E, labels = sample(dtype=dtype)
    stats = bspml.pair_statistics(E, labels)
    pos, neg = by_loops(E.double(), labels, 2, 50, 0.5)
    np.testing.assert_allclose(stats.xi_pos, pos, atol=FLOAT32)
    np.testing.assert_allclose(stats.xi_neg, neg, atol=FLOAT32)


def test_golden_values_of_two_and_one():
    # S = 1 within class 0, 0 across:  log(1 + e^{-2 (1 - .5)}) / 2 = .15663;
    # log(1 + e^{50 (0 - .5)}) / 50 and log(1 + 2 e^{-25}) / 50 are about 1e-13.
    stats = bspml.pair_statistics([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]], ["a", "a", "b"])
    assert stats.xi_pos.tolist() == pytest.approx([0.1566308, 0.1566308, 0.0], abs=1e-7)
    assert stats.xi_neg.tolist() == pytest.approx([2.78e-13, 2.78e-13, 5.56e-13], abs=1e-14)


def test_singletons_have_no_positive_and_one_class_no_negative_statistic():
    E, _ = sample(n=6)
    assert bspml.pair_statistics(E, range(6)).xi_pos.tolist() == [0.0] * 6
    assert bspml.pair_statistics(E, [4] * 6).xi_neg.tolist() == [0.0] * 6
    one = bspml.pair_statistics(E[:1], [0])
    assert (one.xi_pos.tolist(), one.xi_neg.tolist()) == ([0.0], [0.0])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 40), block=st.integers(1, 50))
def test_permuting_and_renaming_and_rescaling_permutes_the_statistics(seed, n, block):
    E, labels = sample(n=n, classes=5, seed=seed)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    names = np.array(["x", "b", "Z", "", "9"])
    once = bspml.pair_statistics(E, labels)
    again = bspml.pair_statistics(10 * E[order], names[labels[order].numpy()], block_size=block)
    np.testing.assert_allclose(again.xi_pos, once.xi_pos[order], atol=FLOAT64)
    np.testing.assert_allclose(again.xi_neg, once.xi_neg[order], atol=FLOAT64)


def test_adding_a_sample_never_lowers_a_statistic():
    E, labels = sample(n=30)
    fewer = bspml.pair_statistics(E[:29], labels[:29])
    more = bspml.pair_statistics(E, labels)
    assert (more.xi_pos[:29] >= fewer.xi_pos - FLOAT64).all()
    assert (more.xi_neg[:29] >= fewer.xi_neg - FLOAT64).all()


def test_zero_rows_are_named_and_count_as_similarity_zero():
    E, labels = sample(n=10)
    E[4] = 0
    with pytest.warns(UserWarning, match=r"rows 4 are zero vectors"):
        stats = bspml.pair_statistics(E, labels)
    assert stats.zero_rows.tolist() == [4]
    same = int((labels == labels[4]).sum()) - 1
    assert float(stats.xi_pos[4]) == pytest.approx(math.log1p(same * math.exp(1.0)) / 2)


def test_inputs_are_left_alone_and_arrays_are_taken():
    E, labels = sample()
    before = E.clone()
    from_tensor = bspml.pair_statistics(E, labels)
    from_array = bspml.pair_statistics(E.numpy(), labels.numpy().astype(np.int32) * 7 - 3)
    assert torch.equal(E, before)
    assert torch.equal(from_tensor.xi_neg, from_array.xi_neg)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [0, 1]}, r"`labels` must have one entry per embedding, \(4,\); got \(2,\)"),
        ({"labels": [0, 1, 0.5, 1]}, r"got .*0\.5.* at row 2"),
        ({"labels": [[0], [1], [0], [1]]}, r"squeeze\(1\)"),
        ({"alpha": 0}, r"`alpha` must be in \[1e-09, 1e\+09\]; got 0"),
        ({"beta": float("nan")}, r"`beta` must be in"),
        ({"alpha": math.inf}, "`alpha` must be in .*got -?inf"),
        ({"beta": math.inf}, "`beta` must be in .*got -?inf"),
        ({"base": -math.inf}, "`base` must be in .*got -?inf"),
        ({"sample_weights": ["a"] * 4}, r"`sample_weights` must be \(N,\) = \(4,\) numbers.*str"),
        ({"embeddings": [["a"]] * 4}, r"`embeddings` must be a float array.*Stack the vectors"),
        ({"embeddings": torch.ones(4)}, r"`embeddings` must be \(N, D\)"),
        (
            {"sample_weights": [1.0, 1.0, 1.0, 1.5]},
            r"must be in \[0, 1\]; rows 3 are not, the first is 1.5",
        ),
        ({"sample_weights": torch.ones(4, 1)}, r"must be \(N,\) = \(4,\).*got \(4, 1\)"),
        ({"block_size": 0}, r"`block_size` must be a whole number of at least 1"),
    ],
)
def test_bad_input_is_refused_with_the_argument_and_the_remedy(change, message):
    good = {"embeddings": torch.randn(4, 3), "labels": [0, 0, 1, 1]}
    with pytest.raises(InputError, match=message):
        bspml.pair_statistics(**(good | change))


def test_nan_rows_are_named():
    E, labels = sample(n=10)
    E[3, 0], E[7, 1] = float("nan"), float("inf")
    with pytest.raises(InputError, match=r"rows 3, 7 hold NaN or infinity"):
        bspml.pair_statistics(E, labels)


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("scale", [5e-324, 1e-10, 1e10, -1.0])
def test_scales_under_which_similarities_would_be_lost_are_refused(name, scale):
    with pytest.raises(InputError, match=rf"`{name}` must be in \[1e-09, 1e\+09\]"):
        bspml.pair_statistics(np.eye(3), [0, 0, 1], **{name: scale})
