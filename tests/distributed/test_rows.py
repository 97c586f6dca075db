"""Rows over ranks: shares that partition, and come back in order."""

import pytest
import torch
from hypothesis import given, strategies as st
from pytorch_metric_learning.losses import ContrastiveLoss

from bspml import SampleWeights, SuperLoss, Weighted
from bspml.distributed import computed_by_rows, gather_rows, rows, share_of
from bspml.distributed.batch import mark_joint
from bspml.distributed.group import rank
from bspml.distributed.rows import add_over_ranks, copy_of_main, gather_sizes, nth_share
from bspml.losses.reducers.tables import KeyedAverage
from bspml.losses.reducers.tau import RunningTau


def on_a_rank():
    values = torch.arange(7.0, dtype=torch.float64).view(7, 1) * torch.tensor([1.0, -1.0])
    batches = []

    def compute(rows):
        batches.append((rows.start, rows.stop))
        return values[rows] ** 2

    return {
        "values": gather_rows(values[share_of(7)]),
        "flags": gather_rows(values[share_of(7), 0] > 2),
        "nothing": gather_rows(torch.empty(0, 3)),
        "squares": computed_by_rows(7, compute, block=4),
        "one block": computed_by_rows(7, compute, block=10),
        "batches": batches,
        "sizes": gather_sizes(len(values[share_of(7)])),
        "sum": add_over_ranks(torch.tensor([1.5, 2.0])),
        "main's": copy_of_main(torch.tensor([1.5 + rank(), 2.0])),
        "tau": joint_tau(),
        "own tau": tau_of_the_first_rank(),
    }


def tau_of_the_first_rank():
    """The threshold where the batches of all other ranks weigh nothing, and its table."""
    weights = SampleWeights([0, 0, 1, 1] * 2)
    weights.update([1] * 4 + [0] * 4)
    loss = Weighted(SuperLoss(ContrastiveLoss(), sample_weights=weights), weights)
    rows = torch.arange(4) + 4 * (rank() > 0)
    embeddings = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8], [0.0, 1.0]])
    loss(embeddings, weights.codes[rows], sample_index=rows)
    sigmas = loss.loss.reducer.sample_confidences()
    return [*map(float, loss.loss.reducer.tau.values()), *sigmas.nan_to_num(-1).tolist()]


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_rank_without_weight_keeps_nobody_waiting(everyone, size):
    alone = tau_of_the_first_rank()
    assert [found["own tau"] for found in everyone(__file__, size)] == [alone] * size


def joint_tau():
    """Averages of a batch that every rank has, summed there with another rounding."""
    tau, table = RunningTau("mean"), KeyedAverage(2, 0.5)
    for part in (tau, table):
        mark_joint(part)
    for step in range(200):
        losses = torch.tensor([1.0 + step, 2.0], dtype=torch.float64) * (1 + 1e-9 * rank())
        value = tau.update(losses)
        table.update(losses, torch.tensor([0, 1]))
    return [float(value), *table.average.tolist(), float(tau.count)]


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_averages_of_a_joint_batch_are_one_value_on_all_ranks(everyone, size):
    alone = joint_tau()
    assert [found["tau"] for found in everyone(__file__, size)] == [alone] * size
    assert all(found["main's"].tolist() == [1.5, 2.0] for found in everyone(__file__, size))


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_gathered_rows_are_those_of_one_process(everyone, size):
    alone = on_a_rank()
    for found in everyone(__file__, size):
        for name in ("values", "flags", "nothing", "squares", "one block"):
            assert torch.equal(found[name], alone[name]), name
            assert found[name].dtype == alone[name].dtype
        assert found["sum"].tolist() == [1.5 * size, 2.0 * size]
    assert everyone(__file__, size)[0]["sizes"] == {2: [4, 3], 3: [3, 2, 2]}[size]


def test_batches_are_cut_where_one_process_cuts_them(everyone):
    first, second = everyone(__file__, 2)
    assert first["batches"] == [(0, 4), (0, 7)]
    assert second["batches"] == [(4, 7)]  # nothing of the single block


@given(st.integers(0, 50), st.integers(1, 7), st.integers(1, 9))
def test_shares_partition_the_rows_between_blocks(n, shares, block):
    cuts = [nth_share(n, number, shares, block) for number in range(shares)]
    assert [row for cut in cuts for row in range(n)[cut]] == list(range(n))
    assert all(cut.start % block == 0 or cut.start == n for cut in cuts)
    blocks = [-(-(cut.stop - cut.start) // block) for cut in cuts]
    assert max(blocks) - min(blocks) <= 1


def test_a_rank_without_rows_sends_nothing_from_the_device_of_the_others(monkeypatch):
    """Backends exchange tensors of one kind of device, so an empty part must lie there too."""

    def tell(form, src):
        form[0] = ((3,), torch.float32)  # what rank 0 has

    monkeypatch.setattr(rows, "ranks", lambda: 2)
    monkeypatch.setattr(rows, "rank", lambda: 1)
    monkeypatch.setattr(rows.distributed, "broadcast_object_list", tell)
    monkeypatch.setattr(rows, "gather_rows", lambda part: part)
    part = computed_by_rows(4, lambda rows: torch.ones(4, 3), block=10, device="meta")
    assert (tuple(part.shape), part.device.type) == ((0, 3), "meta")
