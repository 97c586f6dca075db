"""Shells: their bounds hold for every member, and most members have a lower one than their list."""

import torch

from bspml.statistics.sample_lists import SampleLists
from bspml.statistics.shells import Shells
from bspml.tensors.unit_rows import unit_rows


def test_no_member_of_a_shell_is_more_similar_than_its_ceiling():
    generator = torch.Generator().manual_seed(0)
    E = unit_rows(torch.randn(600, 10, generator=generator, dtype=torch.float64))
    weights = torch.rand(600, generator=generator, dtype=torch.float64)
    weights[::4] = 0
    lists = SampleLists.of(E, 8, 0)
    weights[lists.order[: int(lists.sizes[0])]] = 0  # a list without weight
    shells = Shells.of(lists, weights, 5)
    assert torch.equal(shells.rows, E[shells.order])
    assert torch.equal(shells.order.sort().values, torch.arange(600))
    assert torch.equal(shells.weights, weights[shells.order])
    queries = E[:7]
    ceilings = shells.ceilings((queries @ shells.centroids.T).amax(0))
    similarities = (queries @ shells.rows.T).amax(0)  # (N,)
    for s, (low, high) in enumerate(zip(shells.starts[:-1], shells.starts[1:], strict=True)):
        assert similarities[low:high].max() <= ceilings[s]
    start, stop = shells.list_starts[1:3].tolist()
    mean = shells.weights[start:stop] @ shells.rows[start:stop] / shells.list_weights[1]
    torch.testing.assert_close(shells.length[1] * shells.centroids[1], mean)
    assert shells.length[0] == 0
    of_list = lists.ceiling(lists.largest_cosines(queries))
    assert (ceilings < of_list[shells.parent]).double().mean() > 0.5
    near = shells.nearest(2, 3)
    assert near[2]
    assert near.sum() == 3
