"""The training loop: batches, augmentation, schedules, and going on bit for bit."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from bspml.errors import CheckpointError, ConfigError, RunError
from bspml.experiment.classification.data import load_data
from bspml.experiment.classification.losses import SampleLoss
from bspml.experiment.classification.training import Trainer, crop_and_mirror
from bspml.experiment.config import load_experiment
from helpers.comparisons import same


def trainer_of(*settings, n=50, dropout=0.0):
    config = load_experiment(
        None, ["task=classification", "training.epochs=3", "training.batch_size=8", *settings]
    )
    # Augmentation is refused for digits in a configuration; here it is only exercised.
    config = config.model_copy(
        update={"data": config.data.model_copy(update={"augment": dropout > 0})}
    )
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(256, (n, 1, 8, 8), generator=draw, dtype=torch.uint8)
    targets = torch.randint(3, (n,), generator=draw)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        network = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 16),
            nn.BatchNorm1d(16),
            nn.Dropout(dropout),
            nn.Linear(16, 3),
        )
    return Trainer(config, network, SampleLoss(config.loss, 3), images, targets)


class StopError(Exception):
    pass


def stop_at(step):
    def on_step(done, steps, loss):
        if done == step:
            raise StopError

    return on_step


@pytest.mark.parametrize("loss", ["superloss", "gr", "truncated-gce"])
@pytest.mark.parametrize("step", [1, 4])
def test_going_on_mid_epoch_repeats_the_bits(loss, step):
    settings = [f"loss.name={loss}", "optimizer.name=sgd", "optimizer.momentum=0.9"]
    settings += ["schedule.name=step", "schedule.milestones=[5, 9]", "optimizer.lr=0.1"]
    whole = trainer_of(*settings, dropout=0.5)
    epochs = [whole.train_epoch() for _ in range(3)]

    stopped = trainer_of(*settings, dropout=0.5)
    stopped.train_epoch()
    with pytest.raises(StopError):
        stopped.train_epoch(stop_at(step))
    state = copy.deepcopy(stopped.state_dict())

    torch.manual_seed(99)  # the global generators do not matter
    again = trainer_of(*settings, dropout=0.5)
    again.load_state_dict(state)
    assert (again.epoch, again.step, again.loss.epoch) == (1, step, 1)
    resumed = [again.train_epoch() for _ in range(2)]
    assert same(again.state_dict(), whole.state_dict())
    assert [e.loss for e in resumed] == [e.loss for e in epochs[1:]]
    again.loss.epoch = 0  # as of a run that has nothing left to train
    again.load_state_dict(whole.state_dict())
    assert again.loss.epoch == whole.loss.epoch == 2


def test_the_global_generators_are_left_alone():
    trainer = trainer_of(dropout=0.5)
    before, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    trainer.train_epoch()
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == legacy).all()  # noqa: NPY002


def test_an_epoch_takes_every_sample_once_in_batches_of_nearly_one_size():
    trainer = trainer_of(n=33)
    seen = []
    trainer._train_batch = lambda rows: seen.append(rows) or torch.zeros(())
    trainer.train_epoch()
    assert sorted(torch.cat(seen).tolist()) == list(range(33))
    assert [len(rows) for rows in seen] == [7, 7, 7, 6, 6]
    first = torch.cat(seen)
    seen.clear()
    trainer.train_epoch()
    assert not torch.equal(torch.cat(seen), first)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_order_of_no_epoch_knows_which_labels_are_wrong(seed):
    # Both come from one seed; drawn alike, all wrong labels would come before the right ones.
    config = load_experiment(None, ["task=classification", f"seed={seed}"])
    data = load_data(config)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    trainer = Trainer(config, network, SampleLoss(config.loss, 10), data.images, data.targets)
    for _ in range(2):
        seen = []
        trainer._train_batch = lambda rows, seen=seen: seen.append(rows) or torch.zeros(())
        trainer.train_epoch()
        early = torch.cat(seen)[: len(data.images) // 4]
        assert float(data.is_noisy[early].double().mean()) == pytest.approx(0.4, abs=0.1)


def test_the_loss_of_an_epoch_is_the_mean_over_samples():
    trainer = trainer_of("loss.name=ce", n=17)
    losses = iter([1.0, 2.0, 6.0])
    trainer._train_batch = lambda rows: torch.tensor(next(losses))
    # Batches of 6, 6 and 5.
    assert trainer.train_epoch().loss == pytest.approx((6 * 1 + 6 * 2 + 5 * 6) / 17)


def test_the_learning_rate_follows_the_schedule():
    def rates(*settings):
        trainer, found = trainer_of(*settings, n=32), []  # 4 steps an epoch, 12 in all
        original = trainer._train_batch

        def watched(rows):
            out = original(rows)
            found.append(trainer.optimizer.param_groups[0]["lr"])
            return out

        trainer._train_batch = watched
        for _ in range(3):
            trainer.train_epoch()
        return found

    assert rates("optimizer.lr=0.01") == [0.01] * 12
    stepped = rates(
        "optimizer.lr=0.01",
        "schedule.name=step",
        "schedule.milestones=[3, 5]",
        "schedule.factor=.5",
    )
    assert stepped == pytest.approx([0.01] * 3 + [0.005] * 2 + [0.0025] * 7)
    cosine = rates("optimizer.lr=0.01", "schedule.name=cosine")
    assert cosine == pytest.approx([0.005 * (1 + math.cos(math.pi * s / 12)) for s in range(12)])
    linear = rates("optimizer.lr=0.01", "schedule.name=linear", "schedule.warmup_steps=2")
    falling = [0.01 * (1 - s / 10) for s in range(10)]
    assert linear == pytest.approx([0.01 / 3, 0.02 / 3, *falling])
    with pytest.raises(ConfigError, match=r"`schedule\.warmup_steps` is 7, .* has 12 steps"):
        rates("schedule.warmup_steps=7")


def test_a_clipped_step_moves_no_farther_than_its_norm_and_parts_have_their_rates():
    settings = ["optimizer.name=sgd", "optimizer.lr=2", "optimizer.clip_norm=1e-3"]
    trainer = trainer_of(*settings, "optimizer.head_lr_factor=0.25", n=32)
    before = [p.detach().clone() for p in trainer.network.parameters()]
    trainer._train_batch(torch.arange(8))
    moved = [p.detach() - q for p, q in zip(trainer.network.parameters(), before, strict=True)]
    assert len(moved) == 6
    backbone, head = (sum(float(m.square().sum()) for m in part) for part in (moved[:4], moved[4:]))
    assert backbone / 2**2 + head / 0.5**2 == pytest.approx(1e-6, rel=1e-3)


def test_a_diverged_training_says_what_to_lower():
    trainer = trainer_of()
    trainer._train_batch = lambda rows: torch.tensor(math.nan)
    with pytest.raises(RunError, match=r"loss of epoch 1 is nan: .* Lower `optimizer\.lr`"):
        trainer.train_epoch()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"round": -1}, "`round` must be a whole number of at least 0; got -1"),
        ({"step": 8}, "is impossible where a full epoch has 7 steps"),
        ({"full_round": 9}, r"step 0, 0 steps in all, 9 to the epoch\) is impossible"),
        ({"loss_sum": math.nan}, "`loss_sum` must be a finite number; got nan"),
    ],
)
def test_an_impossible_position_is_refused(change, message):
    trainer = trainer_of()
    state = trainer.state_dict()
    state["position"] |= change
    with pytest.raises(CheckpointError, match=message):
        trainer.load_state_dict(state)


def test_the_state_of_another_network_is_refused_in_one_line():
    trainer = trainer_of()
    state = trainer.state_dict() | {"network": {}}
    with pytest.raises(CheckpointError, match="does not hold the state of such a training"):
        trainer.load_state_dict(state)


# --- augmentation ---------------------------------------------------------------------------------


def slow_crop_and_mirror(images, draw):
    n, channels, height, width = images.shape
    top, left = draw.integers(0, 9, (2, n))
    mirrored = draw.random(n) < 0.5
    out = torch.zeros_like(images)
    for i in range(n):
        for c in range(channels):
            for y in range(height):
                for x in range(width):
                    sy = y + top[i] - 4
                    sx = (width - 1 - x if mirrored[i] else x) + left[i] - 4
                    if 0 <= sy < height and 0 <= sx < width:
                        out[i, c, y, x] = images[i, c, sy, sx]
    return out


def test_crop_and_mirror_is_what_loops_do():
    images = torch.rand(6, 2, 5, 7)
    fast = crop_and_mirror(images, np.random.default_rng(3))
    assert fast.shape == images.shape
    assert torch.equal(fast, slow_crop_and_mirror(images, np.random.default_rng(3)))


def test_every_offset_and_both_directions_come_up():
    images = torch.arange(1.0, 82).view(1, 1, 9, 9).expand(2000, 1, 9, 9)
    out = crop_and_mirror(images, np.random.default_rng(0))
    centres, counts = out[:, 0, 4, 4].unique(return_counts=True)
    assert len(centres) == 81
    assert counts.min() > 5
