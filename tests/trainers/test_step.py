"""How a step is computed: in parts, in bfloat16, channels last, by a prefetching loader."""

import logging

import pytest
import torch
from pytorch_metric_learning.trainers import MetricLossOnly

import bspml
from bspml.data.indexed import sample_index_getter
from bspml.errors import ConfigError, InputError
from bspml.experiment.config import load_config
from bspml.trainers.step import StepTrainer
from helpers.draws import around_centres

CLASSES, PER_CLASS = 8, 6
LABELS = torch.arange(CLASSES).repeat_interleave(PER_CLASS)


class Net(torch.nn.Module):
    def __init__(self, dtype=torch.float64):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3, dtype=dtype)
        self.head = torch.nn.Linear(4 * 4 * 4, 5, dtype=dtype)
        self.seen = []

    def forward(self, x):
        out = self.conv(x).relu()
        self.seen.append((len(x), out.dtype, x.is_contiguous(memory_format=torch.channels_last)))
        return self.head(out.flatten(1))


def make(kind=StepTrainer, dtype=torch.float64, lr=0.0, workers=0, loss=None, **options):
    logging.getLogger("PML").setLevel(logging.ERROR)
    torch.manual_seed(0)
    net = Net(dtype)
    weights = bspml.SampleWeights(LABELS)
    values = torch.rand(len(LABELS), generator=torch.Generator().manual_seed(1))
    values[::5] = 0
    weights.update(values)
    if loss is None:
        loss = bspml.BSPMLLoss(weights, miner=bspml.BSPMLMiner(weights))
    sampler = bspml.PKSampler(LABELS, 4, 3, seed=0)
    trainer = kind(
        models={"trunk": net},
        optimizers={"trunk_optimizer": torch.optim.SGD(net.parameters(), lr)},
        batch_size=12,
        loss_funcs={"metric_loss": loss},
        dataset=bspml.IndexedDataset(
            torch.utils.data.TensorDataset(
                around_centres(LABELS, 2, 6, 6, spread=0.7).to(dtype), LABELS
            )
        ),
        data_device=torch.device("cpu"),
        sampler=sampler,
        dataloader_num_workers=workers,
        data_and_label_getter=sample_index_getter(weights),
        **options,
    )
    sampler.set_epoch(0, position=0)
    trainer.initialize_dataloader()
    trainer.set_to_train()
    return trainer, net, weights


def step(trainer, net):
    trainer.forward_and_backward()
    return float(trainer.losses["total_loss"]), [p.grad.clone() for p in net.parameters()]


def test_k_micro_batches_give_the_mean_of_their_gradients_and_losses():
    k = 2
    trainer, net, _ = make(micro_batches=k)
    value, grads = step(trainer, net)
    assert [rows for rows, _, _ in net.seen] == [12 // k] * k

    other, net, weights = make()
    x, y, index = next(iter(other.dataloader))
    losses = []
    loss = bspml.BSPMLLoss(weights, miner=bspml.BSPMLMiner(weights))
    for part in range(k):
        rows = slice(part * 12 // k, (part + 1) * 12 // k)
        losses.append(loss(net(x[rows]), y[rows], sample_index=index[rows]))
    mean = torch.stack(losses).mean()
    assert len({float(part.detach()) for part in losses}) == k
    expected = torch.autograd.grad(mean, list(net.parameters()))
    assert value == pytest.approx(float(mean), abs=1e-12)
    for found, wanted in zip(grads, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_each_micro_batch_holds_whole_classes():
    trainer, _, _ = make(micro_batches=2)
    parts = list(trainer._micro_batches(trainer._next_batch()))
    assert len(parts) == 2
    for _, labels, *_ in parts:
        assert labels.bincount(minlength=CLASSES).unique().tolist() == [0, 3]


def test_parts_of_an_average_that_knows_no_parts_add_up_to_the_whole():
    """A loss that is a mean over rows: k parts are the batch."""

    class Squares(torch.nn.Module):
        def forward(self, emb, labels, indices_tuple):
            return emb.square().sum(1).mean()

    whole = step(*make(loss=Squares())[:2])
    parts = step(*make(loss=Squares(), micro_batches=3)[:2])
    assert parts[0] == pytest.approx(whole[0], rel=1e-12)
    for found, wanted in zip(parts[1], whole[1], strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)


def test_a_batch_without_k_equal_parts_is_refused():
    trainer, _, _ = make(micro_batches=5)
    with pytest.raises(InputError, match="must divide the batch of 12 rows; got 5"):
        trainer.forward_and_backward()


def test_with_the_defaults_steps_are_pml_s_bit_for_bit():
    runs = []
    for kind in (MetricLossOnly, StepTrainer):
        trainer, net, _ = make(kind, torch.float32, lr=0.1)
        runs.append(([step(trainer, net)[0] for _ in range(4)], torch.rand(3)))
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])  # as many draws from the generator


def test_bfloat16_computes_the_network_and_not_the_loss():
    seen = []

    class Watched(bspml.BSPMLLoss):
        def element_losses(self, batch, *args):
            found = super().element_losses(batch, *args)
            seen.append((batch.given.dtype, found["loss"]["losses"].dtype))
            return found

    trainer, net, _ = make(dtype=torch.float32, lr=0.05, loss=Watched(), precision="bfloat16")
    losses = [step(trainer, net)[0] for _ in range(30)]
    assert {dtype for _, dtype, _ in net.seen} == {torch.bfloat16}
    assert set(seen) == {(torch.float32, torch.float32)}
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
    plain, net, _ = make(dtype=torch.float32, loss=bspml.BSPMLLoss())
    assert losses[0] == pytest.approx(step(plain, net)[0], rel=0.02)


def test_channels_last_changes_the_layout_and_hardly_the_numbers():
    trainer, net, _ = make(channels_last=True)
    value, _ = step(trainer, net)
    assert [last for _, _, last in net.seen] == [True]
    assert net.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert value == pytest.approx(step(*make()[:2])[0], rel=1e-10)


def test_workers_prefetch_as_told_and_give_the_same_batches():
    trainer, net, _ = make(workers=1, prefetch=3)
    assert trainer.dataloader.prefetch_factor == 3
    assert trainer.dataloader_iter._prefetch_factor == 3
    assert not trainer.dataloader.pin_memory
    assert step(trainer, net)[0] == step(*make()[:2])[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"micro_batches": 0}, "`micro_batches` must be"),
        ({"precision": "float16"}, "`precision` must be"),
        ({"prefetch": 0}, "`prefetch` must be"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        make(**options)


@pytest.mark.parametrize("parts", [3, 16])
def test_a_configuration_whose_parts_cannot_be_mined_is_refused(parts):
    with pytest.raises(ConfigError, match=r"training\.micro_batches.*at least 2 classes"):
        load_config(None, [f"training.micro_batches={parts}"])
