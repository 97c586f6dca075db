"""Loops of one's own: DistributedDataParallel around the network, the wrapper around the loss."""

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.utils import distributed as pml_distributed
from torch.nn.parallel import DistributedDataParallel

import bspml
from bspml.distributed import (
    DistributedLossWrapper,
    announce_rows,
    gather_own_first,
    ranks,
    share_of,
)

CLASSES, STEPS = 4, 3


def trained(rows, call):
    """Parameters after a few steps of SGD; `call(parts, embeddings, labels, index)` is the loss."""
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(STEPS, rows, 6, generator=generator, dtype=torch.float64)
    network = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    network = network.double()
    with torch.no_grad():
        for p in network.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64))
    labels = torch.arange(STEPS * rows) % CLASSES
    weights = bspml.SampleWeights(labels)
    weights.update(torch.rand(len(labels), generator=generator))
    loss = call(weights)
    model = DistributedDataParallel(network) if ranks() > 1 else network
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    mine, values = share_of(rows), []
    for step, batch in enumerate(inputs):
        index = torch.arange(step * rows, (step + 1) * rows)[mine]
        value = loss(model(batch[mine]), labels[index], index)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        values.append(value.detach() / ranks())
    return [torch.stack(values), *(p.detach().clone() for p in network.parameters())]


def ours(weights):
    wrapped = DistributedLossWrapper(bspml.BSPMLLoss(weights, miner=bspml.BSPMLMiner(weights)))
    return lambda embeddings, labels, index: wrapped(embeddings, labels, sample_index=index)


def foreign(_weights):
    wrapped = DistributedLossWrapper(pml_losses.TripletMarginLoss())
    return lambda embeddings, labels, index: wrapped(embeddings, labels)


def memory(weights):
    loss = bspml.CrossBatchMemory(bspml.BSPMLLoss(weights), 3, memory_size=20)
    wrapped = DistributedLossWrapper(loss)
    return lambda embeddings, labels, index: wrapped(embeddings, labels, sample_index=index)


def pml_memory(_weights):
    wrapped = DistributedLossWrapper(
        pml_losses.CrossBatchMemory(pml_losses.ContrastiveLoss(), 3, memory_size=20)
    )
    return lambda embeddings, labels, index: wrapped(embeddings, labels)


def announced(weights, memory=False):
    """As Lightning's callback does: the loss is called without an index."""
    loss = bspml.BSPMLLoss(weights, miner=bspml.BSPMLMiner(weights))
    if memory:
        loss = bspml.CrossBatchMemory(bspml.BSPMLLoss(weights), 3, memory_size=20)
    module = torch.nn.ModuleList([torch.nn.Identity(), DistributedLossWrapper(loss)])

    def call(embeddings, labels, index):
        announce_rows(weights, index, module)
        return module[1](embeddings, labels)

    return call


def announced_memory(weights):
    return announced(weights, memory=True)


def of_pml(weights):
    """pytorch-metric-learning's own wrapper, the rows announced in its order."""
    loss = bspml.BSPMLLoss(weights, miner=bspml.BSPMLMiner(weights))
    if ranks() > 1:
        loss = pml_distributed.DistributedLossWrapper(loss)

    def call(embeddings, labels, index):
        weights.set_batch(gather_own_first(index))
        return loss(embeddings, labels)

    return call


UNEVEN = {
    "ours": ours,
    "foreign": foreign,
    "memory": memory,
    "memory of pml": pml_memory,
    "announced": announced,
    "announced, memory": announced_memory,
}


def efficient():
    generator = torch.Generator().manual_seed(2)
    embeddings = torch.randn(10, 3, generator=generator, dtype=torch.float64)
    labels = torch.arange(10) % 3
    weights = bspml.SampleWeights(labels)
    weights.update(torch.rand(10, generator=generator))
    wrapped = DistributedLossWrapper(bspml.BSPMLLoss(weights), efficient=True)
    mine = share_of(10)
    index = torch.arange(10)[mine]
    value = wrapped(embeddings[mine], labels[mine], sample_index=index)
    announce_rows(weights, index, wrapped)
    assert wrapped(embeddings[mine], labels[mine]) == value
    announce_rows(weights, index, torch.nn.Identity())  # a loss of this rank's rows alone
    assert torch.equal(weights.batch_index, index)
    return value


def on_a_rank():
    found = {name: trained(13, call) for name, call in UNEVEN.items()}
    return found | {"of pml": trained(12, of_pml), "efficient": efficient()}


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [*UNEVEN, "of pml"])
def test_ranks_take_the_steps_of_one_process_with_their_rows_together(everyone, size, name):
    alone = trained(12, of_pml) if name == "of pml" else trained(13, UNEVEN[name])
    for found in everyone(__file__, size):
        for theirs, expected in zip(found[name], alone, strict=True):
            torch.testing.assert_close(theirs, expected, rtol=1e-9, atol=1e-11)


def test_efficient_takes_only_its_own_anchors(everyone):
    generator = torch.Generator().manual_seed(2)
    embeddings = torch.randn(10, 3, generator=generator, dtype=torch.float64)
    labels = torch.arange(10) % 3
    weights = bspml.SampleWeights(labels)
    weights.update(torch.rand(10, generator=generator))
    loss = bspml.BSPMLLoss(weights)
    for found, mine in zip(everyone(__file__, 2), (slice(0, 5), slice(5, 10)), strict=True):
        expected = loss(
            embeddings[mine],
            labels[mine],
            None,
            embeddings,
            labels,
            sample_index=torch.arange(10)[mine],
            ref_sample_index=torch.arange(10),
        )
        torch.testing.assert_close(found["efficient"], 2 * expected)
