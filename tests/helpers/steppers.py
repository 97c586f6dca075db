"""A `StepTrainer` of a small convolutional network, ready for its first step."""

import logging

import torch

import bspml
from bspml.data.indexed import sample_index_getter
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


def make_stepper(kind=StepTrainer, dtype=torch.float64, lr=0.0, workers=0, loss=None, **options):
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


def take_step(trainer, net):
    """The loss of one step, and its gradients."""
    trainer.forward_and_backward()
    return float(trainer.losses["total_loss"].detach()), [p.grad.clone() for p in net.parameters()]
