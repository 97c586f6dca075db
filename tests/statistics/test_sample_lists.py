"""Lists: a partition, whose bounds hold for every sample and every list."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from bspml.statistics.sample_lists import SampleLists, for_each_list

CPU = torch.device("cpu")


def unit_rows(n, dim, seed, spread, dtype=torch.float32):
    """Rows around a few directions; spread 0 makes duplicates, large spread a sphere."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(3, dim, generator=g, dtype=torch.float64)
    rows = centres[torch.randint(3, (n,), generator=g)]
    rows = rows + spread * torch.randn(n, dim, generator=g, dtype=torch.float64)
    return torch.nn.functional.normalize(rows).to(dtype)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 150),
    dim=st.integers(1, 12),
    lists=st.integers(1, 20),
    spread=st.sampled_from([0.0, 1e-4, 0.1, 0.5, 5.0]),
    zeros=st.integers(0, 2),
)
def test_no_member_is_more_similar_than_its_lists_bound(seed, n, dim, lists, spread, zeros):
    E = unit_rows(n, dim, seed, spread)
    E[:zeros] = 0
    cut = SampleLists.of(E, lists, seed)
    S = cut.rows.double() @ cut.rows.double().T
    member = torch.repeat_interleave(torch.arange(len(cut)), cut.sizes)
    bound = cut.ceiling(cut.cosines(cut.rows)).double()
    assert (bound[:, member] >= S).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 150),
    dim=st.integers(1, 12),
    lists=st.integers(1, 20),
    spread=st.sampled_from([0.0, 1e-4, 0.1, 0.5, 5.0]),
    t=st.sampled_from([0.0, 1.0, 10.0, 50.0, 200.0]),
    zeros=st.integers(0, 2),
)
def test_no_lists_mean_exponential_is_above_its_bound(seed, n, dim, lists, spread, t, zeros):
    E = unit_rows(n, dim, seed, spread)
    E[:zeros] = 0
    cut = SampleLists.of(E, lists, seed)
    queries = torch.cat([cut.rows, unit_rows(50, dim, seed + 1, 5.0), cut.centroids])
    bound = t * cut.cosines(queries).double() * cut.foot + cut.log_spread(t)  # (Q, L)
    S = queries.double() @ cut.rows.double().T
    for number, part in enumerate(S.split(cut.sizes.tolist(), 1)):
        mean = (t * part).logsumexp(1) - math.log(part.shape[1])
        assert (bound[:, number] >= mean).all()
        members = cut.rows[cut.starts[number] : cut.starts[number + 1]]
        off = members.mean(0) - cut.foot[number] * cut.centroids[number]
        assert cut.drift[number] >= off.norm()


def test_the_bound_of_a_mean_exponential_by_hand():
    # Members 60 degrees to either side of (1, 0): p = (.5, 0), R^2 = v = .75.  Along (0, 1) the
    # mean is cosh(t R), the bound 1 + exp(t R) - 1 - t R.
    rows = torch.tensor([[0.5, 0.75**0.5], [0.5, -(0.75**0.5)]], dtype=torch.float64)
    cut = SampleLists.of(rows, 1, 0)
    t, reach = 3.0, 0.75**0.5
    assert float(cut.foot) == pytest.approx(0.5)
    assert float(cut.variance) == pytest.approx(0.75, rel=2e-3)
    bound = math.exp(float(cut.log_spread(t)))
    assert bound == pytest.approx(math.exp(t * reach) - t * reach, rel=2e-3)
    assert bound > math.cosh(t * reach)
    # A mean that lies off the foot counts t d.
    drifted = replace(cut, drift=cut.drift + 0.25)
    assert math.exp(float(drifted.log_spread(t))) == pytest.approx(bound + t * 0.25)


def test_a_few_samples_off_the_mean_count_little():
    # 200 members at (1, 0, ...), of which 20 point aside, each in a direction of its own.
    rows = torch.zeros(200, 30, dtype=torch.float64)
    rows[:, 0] = 1
    rows[torch.arange(20), torch.arange(1, 21)] = 0.5
    cut = SampleLists.of(torch.nn.functional.normalize(rows), 1, 0)
    query = torch.eye(30, dtype=torch.float64)[1:2]
    largest = (20 * cut.ceiling(cut.cosines(query))).exp() @ cut.sizes.double()
    spread = (20 * cut.cosines(query) * cut.foot + cut.log_spread(20)).exp() @ cut.sizes.double()
    exact = (20 * query @ cut.rows.T).exp().sum()
    assert float(exact) <= float(spread) < 0.1 * float(largest)


def test_narrow_lists_divide_wide_ones():
    E = unit_rows(600, 8, 3, 0.3)
    wide, narrow, first_child = SampleLists.nested(E, 5, 0, 20)
    assert torch.equal(wide.order, narrow.order)
    assert wide.order.sort().values.tolist() == list(range(600))
    assert torch.equal(narrow.starts[first_child], wide.starts)
    assert len(narrow) >= 600 / 20 / 2
    assert (narrow.sizes > 0).all()


def test_the_bound_is_the_cosine_of_the_angle_less_the_radius():
    # A list around 0 degrees of radius 10; seen from 70 degrees nothing is nearer than 60.
    angles = torch.from_numpy(np.deg2rad([-10.0, 0.0, 10.0]))
    rows = torch.stack([angles.cos(), angles.sin()], 1)
    cut = SampleLists.of(rows, 1, 0)
    query = torch.from_numpy(np.array([[np.cos(np.deg2rad(70)), np.sin(np.deg2rad(70))]]))
    assert float(cut.ceiling(cut.cosines(query))) == pytest.approx(0.5, abs=1e-9)
    inside = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    assert float(cut.ceiling(cut.cosines(inside))) == pytest.approx(1.0, abs=1e-9)


def test_lists_hold_every_sample_once_and_are_never_empty():
    E = unit_rows(500, 8, 1, 0.3)
    cut = SampleLists.of(E, None, 0)
    assert cut.order.sort().values.tolist() == list(range(500))
    assert (cut.sizes > 0).all()
    assert int(cut.starts[-1]) == 500
    assert torch.equal(cut.rows, E[cut.order])


def test_two_clusters_in_one_list_are_split():
    E = torch.nn.functional.normalize(
        torch.cat([torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0]])]).repeat(50, 1)
        + 0.01 * torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    )
    cut = SampleLists.of(E, 1, 0)
    assert len(cut) > 1
    assert float(cut.cosine.min()) > 0.9


def test_one_seed_gives_one_cut():
    E = unit_rows(300, 6, 2, 0.5)
    first, second = SampleLists.of(E, 10, 4), SampleLists.of(E, 10, 4)
    np.testing.assert_array_equal(first.order, second.order)
    assert torch.equal(first.centroids, second.centroids)


def test_work_on_lists_keeps_its_order_and_gives_the_threads_back():
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        inside = list(for_each_list(lambda k: (k, torch.get_num_threads()), range(50), CPU))
        assert torch.get_num_threads() == 3
        with pytest.raises(ZeroDivisionError):
            list(for_each_list(lambda k: 1 // (k - 5), range(50), CPU))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    assert inside == [(k, 1) for k in range(50)]
