"""Gradients of a batch that lies on several ranks: those of one process with all of it."""

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses

import bspml
import bspml.distributed
from bspml.distributed import (
    add_gradients,
    average_gradients,
    gather_batch,
    gather_own_first,
    rank,
    ranks,
    share_of,
)

ROWS = 13  # 7 and 6 on two ranks; 5, 4 and 4 on three


def problem():
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(ROWS, 5, generator=generator, dtype=torch.float64)
    labels = torch.arange(ROWS) % 4
    network = torch.nn.Linear(5, 3).double()
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64))
    weights = bspml.SampleWeights(labels)
    weights.update(torch.rand(ROWS, generator=generator))
    torch.manual_seed(0)
    losses = {
        "bspml": bspml.BSPMLLoss(weights, miner=bspml.BSPMLMiner(weights)),
        "paper": bspml.BSPMLLoss(weights, weighting="paper"),
        "multi-similarity": pml_losses.MultiSimilarityLoss(),
        "superloss": bspml.SuperLoss(pml_losses.ContrastiveLoss(), tau="mean"),
        "proxies": pml_losses.ProxyAnchorLoss(4, 3).double(),
    }
    return inputs, labels, network, weights, losses


def on_a_rank():
    inputs, labels, network, weights, losses = problem()
    mine = share_of(ROWS)
    found = {}
    for name, loss in losses.items():
        bspml.distributed.batch.mark_joint(loss)
        network.zero_grad()
        embeddings = gather_batch(network(inputs[mine]))
        weights.set_batch(gather_batch(torch.arange(ROWS)[mine]))
        value = loss(embeddings, gather_batch(labels[mine]))
        value.backward()
        add_gradients(network.parameters())
        average_gradients(loss.parameters())
        found[name] = [
            value.detach(),
            *(p.grad.clone() for p in [*network.parameters(), *loss.parameters()]),
        ]
    found["tau"] = [losses["superloss"].reducer.state_dict()]
    found["own first"] = gather_own_first(torch.arange(10 * rank(), 10 * rank() + 2 + rank()))
    return found


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["bspml", "paper", "multi-similarity", "superloss", "proxies"])
def test_value_and_gradients_are_those_of_one_process(everyone, size, name):
    alone = on_a_rank()
    for found in everyone(__file__, size):
        assert len(found[name]) == len(alone[name])
        for theirs, ours in zip(found[name], alone[name], strict=True):
            torch.testing.assert_close(theirs, ours, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_a_running_threshold_counts_the_joint_batch_once(everyone, size):
    alone = on_a_rank()["tau"][0]
    for found in everyone(__file__, size):
        for key, value in alone.items():
            torch.testing.assert_close(found["tau"][0][key], value, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_own_rows_come_first_then_the_others_in_order(everyone):
    found = [f["own first"].tolist() for f in everyone(__file__, 3)]
    assert found[0] == [0, 1, 10, 11, 12, 20, 21, 22, 23]
    assert found[1] == [10, 11, 12, 0, 1, 20, 21, 22, 23]
    assert found[2] == [20, 21, 22, 23, 0, 1, 10, 11, 12]


def test_alone_nothing_is_changed():
    part = torch.randn(3, 2, requires_grad=True)
    assert ranks() == 1
    assert gather_batch(part) is part
    assert gather_own_first(part) is part
