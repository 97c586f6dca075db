"""The weights' way through pytorch-metric-learning's own trainers, testers, hooks and wrappers."""

import tempfile

import pytest
import torch
from pytorch_metric_learning.miners import MultiSimilarityMiner
from pytorch_metric_learning.samplers import MPerClassSampler
from pytorch_metric_learning.testers import GlobalEmbeddingSpaceTester
from pytorch_metric_learning.trainers import MetricLossOnly
from pytorch_metric_learning.utils import distributed as pml_dist
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.logging_presets import HookContainer
from torch.utils.data import TensorDataset

from bspml.data.indexed import IndexedDataset, drop_sample_index, sample_index_getter
from bspml.errors import CheckpointError, InputError
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.cross_batch_memory import CrossBatchMemory
from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.weights.state import SampleWeights

SAMPLES, COLUMNS = 32, 6
LABELS = torch.arange(SAMPLES) // 8


def data_set():
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(SAMPLES, COLUMNS, generator=generator), LABELS)


def weights_with_zeros():
    weights = SampleWeights(LABELS)
    values = torch.rand(SAMPLES, generator=torch.Generator().manual_seed(1))
    values[::6] = 0
    weights.update(values)
    return weights


def network():
    layer = torch.nn.Linear(COLUMNS, 4)
    torch.nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(2))
    torch.nn.init.zeros_(layer.bias)
    return layer


def pml_trainer(loss, weights, miner=None, workers=0, batch_size=8, **kwargs):
    model = network()
    return MetricLossOnly(
        models={"trunk": model},
        optimizers={"trunk_optimizer": torch.optim.SGD(model.parameters(), lr=0.1)},
        batch_size=batch_size,
        loss_funcs={"metric_loss": loss},
        mining_funcs={} if miner is None else {"tuple_miner": miner},
        dataset=IndexedDataset(data_set()),
        data_device=torch.device("cpu"),
        dataloader_num_workers=workers,
        data_and_label_getter=sample_index_getter(weights),
        # A sequence of rows is a sampler: the order is then known to the plain loop below.
        sampler=order(),
        **kwargs,
    )


def order():
    return torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(3)).tolist()


def plain_loop(loss, miner, batch_size=8):
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = data_set()
    for first in range(0, SAMPLES, batch_size):
        index = torch.tensor(order()[first : first + batch_size])
        x, y = data[index]
        optimizer.zero_grad()
        emb = model(x)
        pairs = None if miner is None else miner(emb, y, sample_index=index)
        loss(emb, y, pairs, sample_index=index).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("weighting", ["inside", "paper"])
def test_an_epoch_of_pml_s_trainer_is_the_plain_loop(workers, weighting):
    weights = weights_with_zeros()
    miner = BSPMLMiner(weights)
    trainer = pml_trainer(BSPMLLoss(weights, weighting=weighting), weights, miner, workers)
    trainer.train()
    expected = plain_loop(BSPMLLoss(weights, weighting=weighting), miner)
    assert torch.equal(trainer.models["trunk"].weight, expected.weight)
    assert not torch.equal(expected.weight, network().weight)


def test_a_loss_that_mines_needs_no_miner_in_the_trainer():
    weights = weights_with_zeros()
    miner = BSPMLMiner(weights)
    trainer = pml_trainer(BSPMLLoss(weights, miner=miner), weights)
    trainer.train()
    expected = plain_loop(BSPMLLoss(weights), miner)
    torch.testing.assert_close(trainer.models["trunk"].weight, expected.weight)


def test_a_loss_weight_of_the_trainer_scales_in_place():
    weights = weights_with_zeros()
    trainer = pml_trainer(BSPMLLoss(weights), weights, loss_weights={"metric_loss": 0.5})
    trainer.train()
    assert torch.isfinite(trainer.models["trunk"].weight).all()


def test_the_memory_trains_in_pml_s_trainer():
    weights = weights_with_zeros()
    memory = CrossBatchMemory(BSPMLLoss(weights), 4, 16, miner=BSPMLMiner(weights))
    pml_trainer(memory, weights).train(num_epochs=2)
    assert memory.has_been_filled
    assert set(memory.index_memory.tolist()) == set(order()[16:])


def test_a_batch_miner_that_drops_rows_is_noticed():
    weights = weights_with_zeros()

    class FirstHalf(torch.nn.Module):
        def forward(self, embeddings, labels):
            return torch.arange(len(embeddings) // 2)

    trainer = pml_trainer(BSPMLLoss(weights), weights)
    trainer.mining_funcs["subset_batch_miner"] = FirstHalf()
    with pytest.raises(InputError, match=r"\(4,\) like the embeddings; got \(8,\).*subset miner"):
        trainer.train()


def test_a_sampler_of_pml_may_draw_a_sample_twice():
    weights = weights_with_zeros()
    trainer = pml_trainer(BSPMLLoss(weights), weights, BSPMLMiner(weights), batch_size=16)
    trainer.sampler = MPerClassSampler(LABELS[:12].tolist(), 8, 16, length_before_new_iter=32)
    trainer.train()
    assert torch.isfinite(trainer.models["trunk"].weight).all()


def test_a_tester_reads_the_indexed_data_set():
    weights = weights_with_zeros()
    weights.set_batch([5])
    tester = GlobalEmbeddingSpaceTester(
        data_and_label_getter=drop_sample_index,
        dataloader_num_workers=0,
        data_device=torch.device("cpu"),
        accuracy_calculator=AccuracyCalculator(include=("precision_at_1",), k=1),
    )
    result = tester.test({"val": IndexedDataset(data_set())}, 1, network())
    assert 0 <= result["val"]["precision_at_1_level0"] <= 1
    assert weights.batch_index.tolist() == [5]


def test_hooks_save_the_weights_with_the_loss_and_load_them(tmp_path):
    def hooks_and_trainer(weights):
        memory = CrossBatchMemory(BSPMLLoss(weights), 4, 16)
        return HookContainer(record_keeper=None), pml_trainer(memory, weights, BSPMLMiner(weights))

    weights = weights_with_zeros()
    hooks, trainer = hooks_and_trainer(weights)
    memory = trainer.loss_funcs["metric_loss"]
    memory(*next(embedded()), sample_index=torch.arange(0, 32, 4))
    hooks.save_models(trainer, str(tmp_path), "1")
    restored = SampleWeights(LABELS)
    hooks, other = hooks_and_trainer(restored)
    assert hooks.load_latest_saved_models(other, str(tmp_path), device=torch.device("cpu")) == 2
    assert torch.equal(restored.weights, weights.weights)
    loaded = other.loss_funcs["metric_loss"]
    assert loaded.queue_idx == memory.queue_idx == 8
    assert torch.equal(loaded.index_memory, memory.index_memory)

    hooks, foreign = hooks_and_trainer(SampleWeights([0, 1]))
    with pytest.raises(CheckpointError, match="32 samples, this data set has 2"):
        hooks.load_latest_saved_models(foreign, str(tmp_path), device=torch.device("cpu"))


def embedded(seed=4):
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randn(8, 4, generator=generator), LABELS[::4]


# ------------------------------------------------------------------------------- two processes


def two_ranks(rank, folder):
    """One of two processes: checks that stale indices raise, saves the gradient of its rows."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    weights = weights_with_zeros()
    emb, labels, index = union()
    mine = slice(4 * rank, 4 * rank + 4)
    all_index = torch.cat([index[mine], pml_dist.all_gather(index[mine])])
    for efficient in (False, True):
        loss = pml_dist.DistributedLossWrapper(BSPMLLoss(weights), efficient=efficient)
        rows = emb[mine].clone().requires_grad_()
        if efficient:
            weights.set_batch(index[mine], ref_sample_index=all_index)
        else:
            weights.set_batch(index[mine])
            with pytest.raises(InputError, match=r"\(8,\) like the embeddings; got \(4,\)"):
                loss(rows, labels[mine])
            weights.set_batch(all_index)
        value = loss(rows, labels[mine])
        value.backward()
        name = f"{folder}/{'efficient' if efficient else 'plain'}{rank}"
        torch.save((value.detach(), rows.grad), name)
    torch.distributed.destroy_process_group()


def union():
    emb, labels = next(embedded(5))
    return emb.double(), labels, torch.tensor([3, 6, 12, 9, 21, 17, 30, 25])


def test_two_processes_give_the_gradient_of_one_on_the_union():
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("fork")
        ranks = [
            context.Process(target=two_ranks, args=(rank, folder), daemon=True) for rank in range(2)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(60)
            process.kill()  # only a hung one is still there
        assert [process.exitcode for process in ranks] == [0, 0]
        names = [f"{kind}{rank}" for kind in ("plain", "efficient") for rank in range(2)]
        saved = {name: torch.load(f"{folder}/{name}") for name in names}
    weights = weights_with_zeros()
    emb, labels, index = union()
    emb.requires_grad_()
    loss = BSPMLLoss(weights)
    whole = loss(emb, labels, sample_index=index)
    whole.backward()
    for rank in range(2):
        value, grad = saved[f"plain{rank}"]
        # The wrapper multiplies by the number of ranks, DDP's averaging divides by it again.
        torch.testing.assert_close(value, 2 * whole.detach())
        torch.testing.assert_close(grad, 2 * emb.grad[4 * rank : 4 * rank + 4])
        mine = slice(4 * rank, 4 * rank + 4)
        order_here = torch.arange(8).roll(-4 * rank)  # the own rank's rows come first
        expected = loss(
            emb[mine].detach(),
            labels[mine],
            None,
            emb[order_here].detach(),
            labels[order_here],
            sample_index=index[mine],
            ref_sample_index=index[order_here],
        )
        torch.testing.assert_close(saved[f"efficient{rank}"][0], 2 * expected)


def test_pml_s_miner_and_our_paper_loss_train_together():
    weights = weights_with_zeros()
    loss = BSPMLLoss(weights, weighting="paper", base=1)
    trainer = pml_trainer(loss, weights, MultiSimilarityMiner())
    trainer.train()
    assert torch.isfinite(trainer.models["trunk"].weight).all()
