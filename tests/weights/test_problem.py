"""The weight problem against its formula written as plain loops."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st

from bspml.errors import InputError
from bspml.weights.problem import WeightProblem
from bspml.weights.solver import solve_weights

EXACT = 1e-12  # float64 sums of a few dozen terms of order 1


def literal_objective(w, xi_pos, xi_neg, y, age, balance):
    """[Zhang 2023] eq. (6), term by term, with the factor 1/N_c."""
    classes = sorted(set(y))
    rows = {c: [i for i in range(len(y)) if y[i] == c] for c in classes}
    m = {c: sum(w[i] for i in rows[c]) / len(rows[c]) for c in classes}
    C, total = len(classes), 0.0
    for c in classes:
        n_c = len(rows[c])
        for i in rows[c]:
            if n_c > 1:
                others = sum(w[j] for j in rows[c] if j != i)
                total += w[i] * others / (n_c - 1) * xi_pos[i] / n_c
            if C > 1:
                others = sum(m[k] for k in classes if k != c)
                total += w[i] * others / (C - 1) * xi_neg[i] / n_c
        total -= age * m[c]
    if C > 1:
        pairs = [(c, k) for c in classes for k in classes if c < k]
        total += balance / (C - 1) * sum((m[c] - m[k]) ** 2 for c, k in pairs)
    return total


def draw(seed, n=23, classes=5, shift=0.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return rng.random(n) * 2 - shift, rng.random(n) - shift, y, rng.random(n)


@pytest.mark.parametrize("balance", [0.0, 0.7, 50.0])
@pytest.mark.parametrize(("n", "classes"), [(1, 1), (2, 1), (7, 1), (6, 6), (23, 5), (9, 8)])
def test_objective_equals_the_formula_in_plain_loops(n, classes, balance):
    xi_pos, xi_neg, y, w = draw(n, n, classes, shift=0.3)
    problem = WeightProblem(xi_pos, xi_neg, y, age=0.8, balance=balance)
    literal = literal_objective(w, xi_pos, xi_neg, y, 0.8, balance)
    assert problem.objective(w) == pytest.approx(literal, abs=EXACT * (1 + balance))


def test_objective_of_a_case_worked_by_hand():
    # Classes {0, 1} and {2}; w = (1, .5, .8); m = (.75, .8).
    # positive: (1/2)(1 * .5 * 2 + .5 * 1 * 4) = 1.5; the singleton has none.
    # negative: (1/2)(1 * .8 * 1 + .5 * .8 * 3) + .8 * .75 * 2 = 1.0 + 1.2 = 2.2
    # pace: -3 * 1.55 = -4.65; balance: 10 * .05^2 = .025
    problem = WeightProblem([2, 4, 9], [1, 3, 2], ["a", "a", "b"], age=3, balance=10)
    assert problem.objective([1, 0.5, 0.8]) == pytest.approx(1.5 + 2.2 - 4.65 + 0.025, abs=EXACT)


@pytest.mark.parametrize(("n", "classes"), [(1, 1), (7, 1), (6, 6), (23, 5)])
def test_gradient_equals_central_differences(n, classes):
    xi_pos, xi_neg, y, w = draw(n + 1, n, classes, shift=0.3)
    problem = WeightProblem(xi_pos, xi_neg, y, age=0.8, balance=3.0)
    # L is quadratic along each weight, so a central difference has no truncation error.
    steps = np.eye(n) * 0.1
    slopes = [(problem.objective(w + d) - problem.objective(w - d)) / 0.2 for d in steps]
    np.testing.assert_allclose(problem.gradient(w).numpy(), slopes, atol=1e-11)


def test_curvature_along_a_weight_is_two_balance_over_class_size_squared():
    xi_pos, xi_neg, y, w = draw(3)
    problem = WeightProblem(xi_pos, xi_neg, y, age=0.8, balance=3.0)
    for i in range(problem.n):
        d = 0.1 * np.eye(problem.n)[i]
        bend = problem.objective(w + d) + problem.objective(w - d) - 2 * problem.objective(w)
        assert bend / 0.01 == pytest.approx(
            2 * 3.0 / problem.sizes[problem.codes[i]] ** 2, abs=1e-9
        )
    assert problem.lipschitz_max == pytest.approx(6 / problem.sizes.min() ** 2)


def test_one_class_has_no_negative_no_balance_term_and_no_curvature():
    problem = WeightProblem([1, 2, 3], [5, 5, 5], [4, 4, 4], age=0, balance=100)
    assert problem.lipschitz_max == 0
    assert problem.objective([1, 1, 1]) == pytest.approx(2.0)  # mean of xi_pos


def test_a_lone_sample_has_no_positive_term():
    problem = WeightProblem([1e9], [1e9], [0], age=2, balance=1)
    assert problem.objective([0.5]) == -1.0
    assert problem.gradient([0.5]).tolist() == [-2.0]


def test_almost_equal_class_means_keep_their_small_balance_term():
    # Means 1 and 1 - 1e-9: the term is 1e-18, which C sum m^2 - (sum m)^2 loses to rounding.
    problem = WeightProblem([0, 0], [0, 0], [0, 1], age=0, balance=1)
    assert problem.objective([1, 1 - 1e-9]) == pytest.approx(1e-18, rel=1e-6, abs=0)


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_permuting_samples_and_renaming_labels_leave_the_objective(seed):
    xi_pos, xi_neg, y, w = draw(seed)
    order = np.random.default_rng(seed).permutation(len(w))
    names = np.array([10**6 + 3, 7, -4, 0, 99])
    plain = WeightProblem(xi_pos, xi_neg, y, age=1.0)
    moved = WeightProblem(xi_pos[order], xi_neg[order], names[y[order]].astype(np.int32), age=1.0)
    assert moved.objective(w[order]) == pytest.approx(plain.objective(w), abs=EXACT)
    np.testing.assert_allclose(moved.gradient(w[order]), plain.gradient(w)[order], atol=EXACT)


def test_torch_numpy_and_lists_give_the_same_problem():
    xi_pos, xi_neg, y, w = draw(0)
    a = WeightProblem(xi_pos, xi_neg, y, age=1)
    b = WeightProblem(
        torch.tensor(xi_pos, requires_grad=True),
        xi_neg.tolist(),
        torch.tensor(y),
        age=1,
    )
    assert a.objective(w) == b.objective(torch.tensor(w))
    assert b.gradient(torch.tensor(w)).dtype == torch.float64


def test_later_changes_to_the_input_arrays_do_not_reach_the_problem():
    xi_pos, xi_neg, y, w = draw(0)
    problem = WeightProblem(torch.from_numpy(xi_pos), xi_neg, y, age=1)
    before = problem.objective(w)
    xi_pos += 1
    y[:] = 0
    assert problem.objective(w) == before


def test_with_age_changes_the_pace_term_only():
    xi_pos, xi_neg, y, w = draw(0)
    problem = WeightProblem(xi_pos, xi_neg, y, age=1)
    older = problem.with_age(3)
    fall = 2 * float(problem.class_means(w).sum())
    assert older.objective(w) == pytest.approx(problem.objective(w) - fall, abs=EXACT)
    assert problem.age == 1


def test_stationarity_is_the_projected_gradient_step():
    xi_pos, xi_neg, y, w = draw(0)
    problem = WeightProblem(xi_pos, xi_neg, y, age=1)
    g = problem.gradient(w).numpy() / problem.unit
    plain = np.abs(w - np.clip(w - g, 0, 1)).max()
    scaled = np.abs(w - np.clip(w - g * problem.sizes[problem.codes], 0, 1)).max()
    assert problem.stationarity(w) == pytest.approx(plain, abs=EXACT)
    assert problem.stationarity(w, scaled=True) == pytest.approx(scaled, abs=EXACT)
    assert scaled >= plain


def test_derivatives_are_measured_in_the_largest_statistic_or_age():
    assert WeightProblem([1, -3], [2, 0], [0, 1], age=-2, balance=50).unit == 3
    assert WeightProblem([1, -3], [4, 0], [0, 1], age=2, balance=50).unit == 4
    assert WeightProblem([1, -3], [2, 0], [0, 1], age=2, balance=50).with_age(-9).unit == 9
    assert WeightProblem([0, 0], [0, 0], [0, 1], age=0, balance=50).unit == 50
    assert WeightProblem([0, 0], [0, 0], [0, 1], age=0, balance=0).unit == 1


def test_class_means():
    problem = WeightProblem([1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 1, 1], age=1)
    assert problem.class_means([1, 1, 0, 0]).tolist() == [1, 0]


def make(**changes):
    given = {"xi_pos": [1, 2], "xi_neg": [1, 2], "labels": [0, 1], "age": 1.0, "balance": 1.0}
    return WeightProblem(**{**given, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"xi_neg": [1, 2, 3]}, r"`xi_neg` must be \(N,\) = \(2,\) like `xi_pos`; got \(3,\)"),
        ({"xi_pos": [1, np.nan]}, r"`xi_pos` must be finite; indices 1 hold NaN"),
        ({"xi_pos": [[1], [2]]}, r"`xi_pos` must be \(N,\).*\(2, 1\). Use `.squeeze\(1\)`"),
        ({"xi_pos": "hard"}, r"`xi_pos` must be \(N,\) numbers; got 'hard'"),
        ({"xi_pos": [1j, 1]}, r"`xi_pos` must be \(N,\) numbers; got torch.complex128"),
        ({"xi_pos": [10**400, 1]}, r"`xi_pos` must be \(N,\) numbers; got a list of int"),
        ({"xi_pos": np.array([1, 2], "M8[D]")}, "numbers; got an array of datetime64"),
        ({"xi_neg": np.array([1, 2], "m8[s]")}, "numbers; got an array of timedelta64"),
        ({"xi_neg": torch.ones(2).to_sparse()}, "`xi_neg` must be a dense tensor with data"),
        ({"xi_neg": torch.ones(2, device="meta")}, "`xi_neg` must be a dense tensor with data"),
        ({"labels": [0]}, r"`labels` must have one entry"),
        ({"xi_pos": [], "xi_neg": [], "labels": []}, "at least one sample"),
        ({"age": float("inf")}, "`age` must be finite; got inf. From 2 max xi_pos"),
        ({"age": float("nan")}, "`age`"),
        ({"balance": -1e-9}, r"`balance` must be in \[0, inf\]"),
        ({"balance": float("inf")}, "`balance` must be finite"),
    ],
)
def test_wrong_input_is_refused_by_name(changes, message):
    with pytest.raises(InputError, match=message):
        make(**changes)


def test_infeasible_weights_are_refused_where_feasibility_matters():
    with pytest.raises(InputError, match=r"`weights` must lie in \[0, 1\]; got 1.5 at index 1"):
        make().stationarity([0, 1.5])
    with pytest.raises(InputError, match=r"`weights` must be \(N,\) = \(2,\).*got \(1,\)"):
        make().objective([0])


def test_classes_are_numbered_as_they_first_appear():
    problem = WeightProblem([1] * 5, [0] * 5, ["z", "b", "z", "a", "b"], age=1)
    assert problem.codes.tolist() == [0, 1, 0, 2, 1]
    assert problem.sizes.tolist() == [2, 2, 1]
    assert problem.class_sorted.order.tolist() == [0, 2, 1, 4, 3]
    assert problem.class_means([1, 0, 1, 0, 1]).tolist() == [1, 0.5, 0]


@pytest.mark.parametrize("place", ["labels", "xi_pos"])
def test_weights_under_another_index_than_the_labels_are_refused(place):
    """A Series in another order means other samples, wherever it comes later."""
    given = {"xi_pos": [1.0, 2.0, 3.0, 4.0], "xi_neg": [0.5] * 4, "labels": [0, 0, 1, 1]}
    given[place] = pd.Series(given[place], index=list("abcd"))
    problem = WeightProblem(**given, age=1.0).with_age(2.0)
    weights = pd.Series([0.1, 0.9, 0.2, 0.8], index=list("abcd"))
    assert problem.objective(weights) == problem.objective(weights.to_numpy())
    moved = weights.iloc[::-1]
    for use in (
        problem.objective,
        problem.gradient,
        problem.stationarity,
        problem.class_means,
        lambda w: solve_weights(problem, start=w),
    ):
        with pytest.raises(InputError, match="indices differ"):
            use(moved)


@pytest.mark.parametrize(
    "kind",
    [
        lambda x: torch.tensor(x, dtype=torch.bfloat16, requires_grad=True),
        lambda x: torch.tensor(x).to(torch.float8_e4m3fn),
        lambda x: [torch.tensor(v, requires_grad=True) for v in x],
        lambda x: np.array(x, dtype=">f8")[::-1][::-1],
        lambda x: pd.Series(x, dtype="Float64"),
    ],
)
def test_statistics_of_any_numeric_kind_are_the_same_numbers(kind):
    problem = make(xi_pos=kind([1.0, 2.0]), xi_neg=kind([0.5, 4.0]))
    assert (problem.xi_pos.tolist(), problem.xi_neg.tolist()) == ([1.0, 2.0], [0.5, 4.0])
    assert problem.objective(kind([1.0, 0.5])) == make(xi_neg=[0.5, 4.0]).objective([1.0, 0.5])
