"""What of a training is saved beside its position, taken over whole or not at all."""

import copy
from types import SimpleNamespace

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses

import bspml
from bspml.errors import CheckpointError, InputError
from bspml.losses.filtered import FilteredLoss
from bspml.losses.prism import PRISMFilter
from bspml.trainers.averaging import average_weights
from bspml.trainers.parts import TrainingParts
from helpers.comparisons import same
from helpers.steppers import make_stepper as make, take_step as step


def parts_of(lr=0.1):
    trainer, net, _ = make(dtype=torch.float32, lr=lr, precision="float16")
    average = average_weights(net, 0.9)
    return TrainingParts(trainer, None, average, None), trainer, net


def overflow(trainer, net):
    handle = net.head.bias.register_hook(lambda grad: grad * float("inf"))
    step(trainer, net)
    handle.remove()


def test_the_scale_of_the_gradients_and_the_average_go_on_and_start_anew():
    parts, trainer, net = parts_of()
    overflow(trainer, net)
    step(trainer, net)
    parts.averaged.update_parameters(net)
    state = copy.deepcopy(parts.state_dict())
    assert state["network"]["scalers"]["gradients"]["scale"] == 2.0**15
    other, there, _ = parts_of()
    other.load_state_dict(state)
    assert there.scaler.get_scale() == 2.0**15
    assert same(other.state_dict()["network"], state["network"])
    other.restart_network()
    assert there.scaler.get_scale() == 2.0**16
    assert other.averaged.n_averaged == 0


def test_a_state_without_a_part_changes_nothing():
    parts, trainer, net = parts_of()
    step(trainer, net)
    state = copy.deepcopy(parts.state_dict())
    del state["network"]["scalers"]
    other, _, _ = parts_of()
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(CheckpointError, match="KeyError: 'scalers'"):
        other.load_state_dict(state)
    assert same(other.state_dict(), before)


def test_a_scheduler_that_takes_keys_out_of_its_state_starts_anew_after_a_resume():
    def parts_with_cycles():
        trainer, *_ = make(dtype=torch.float32)
        optimizer = next(iter(trainer.optimizers.values()))
        cycles = torch.optim.lr_scheduler.CyclicLR(optimizer, 0.1, 0.4, 3, cycle_momentum=False)
        trainer.lr_schedulers = {"trunk_scheduler_by_iteration": cycles}
        return TrainingParts(trainer, None, None, None), cycles, optimizer

    parts, cycles, optimizer = parts_with_cycles()
    rates = []
    for _ in range(2):
        optimizer.step()
        cycles.step()
        rates.append(optimizer.param_groups[0]["lr"])
    parts.restart_due = True  # saved where the network is to be thrown away
    state = copy.deepcopy(parts.state_dict())
    other, cycles, optimizer = parts_with_cycles()
    other.load_state_dict(state)
    for rate in rates:
        optimizer.step()
        cycles.step()
        assert optimizer.param_groups[0]["lr"] == rate
    other.restart_network()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_without_a_scale_and_an_average_the_state_has_neither():
    trainer, _, _ = make()
    state = TrainingParts(trainer, None, None, None).state_dict()
    assert list(state["network"]) == ["models", "optimizers", "lr_schedulers"]


def test_what_a_loss_has_learned_starts_anew_with_the_network():
    """Proxies trained on a half's labels would tell the next network of them."""
    loss = pml_losses.ProxyAnchorLoss(3, 2)
    memory = bspml.CrossBatchMemory(bspml.BSPMLLoss(), 2, 4)
    trainer = SimpleNamespace(
        models={}, optimizers={}, lr_schedulers={}, loss_funcs={"proxies": loss, "memory": memory}
    )
    parts = TrainingParts(trainer, None, None, None)
    first = loss.proxies.detach().clone()
    with torch.no_grad():
        loss.proxies.add_(1)
    memory(torch.eye(2), torch.tensor([0, 1]))
    saved = copy.deepcopy(parts.state_dict())
    parts.restart_network()
    assert torch.equal(loss.proxies, first)
    assert memory.queue_idx == 0
    parts.load_state_dict(saved)
    assert torch.equal(loss.proxies, first + 1)
    assert memory.queue_idx == 2
    learned = {"proxies": {"proxies": first}, "memory": {}}  # as it was kept here once
    saved["network"]["learned"] = learned
    parts.load_state_dict(saved)
    assert torch.equal(loss.proxies, first + 1)
    assert memory.queue_idx == 2


def test_what_a_loss_remembers_of_a_network_s_losses_starts_anew_with_it():
    """Thresholds, smoothed losses, a filter's memory: a fresh network's losses are others."""
    labels = torch.arange(8) // 2
    emb = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))

    def made():
        weights = bspml.SampleWeights(labels)
        weights.update(torch.arange(1, 9) / 8)
        loss = bspml.Weighted(pml_losses.NTXentLoss(), weights)
        smoothed = bspml.SuperLoss(
            loss, tau="mean", smoothing="sample", sample_weights=weights, shared_tau=True
        )
        filtered = FilteredLoss(pml_losses.ContrastiveLoss(), PRISMFilter(4, 4, 0.25, 16))
        losses = {"smoothed": smoothed, "filtered": filtered}
        trainer = SimpleNamespace(models={}, optimizers={}, lr_schedulers={}, loss_funcs=losses)
        return TrainingParts(trainer, None, None, None), losses, weights

    def steps(losses, number=2):
        return [
            loss(
                emb + n,
                labels,
                **({"sample_index": range(8)} if loss is losses["smoothed"] else {}),
            )
            for n in range(number)
            for loss in losses.values()
        ]

    (parts, losses, weights), (_, fresh, _) = made(), made()
    first = steps(losses)
    weights.update(torch.arange(8) / 8)
    saved = copy.deepcopy(parts.state_dict())
    parts.restart_network()
    assert torch.equal(weights.weights, torch.arange(8) / 8)  # which are not the network's
    assert losses["smoothed"].loss.reducer.taus["shared"].count == 0
    assert not losses["smoothed"].loss.reducer.smoothed.seen.any()
    assert losses["filtered"].sample_filter.rows_remembered == 0
    weights.update(torch.arange(1, 9) / 8)
    for value, again, new in zip(first, steps(losses), steps(fresh), strict=True):
        assert torch.equal(value, again)
        assert torch.equal(value, new)
    weights.update(torch.arange(8) / 8)
    (other, there, table), _ = made(), parts.load_state_dict(saved)
    other.load_state_dict(saved)
    table.update(torch.arange(8) / 8)
    for value, again in zip(steps(losses), steps(there), strict=True):
        assert torch.equal(value, again)


def test_a_memory_of_pytorch_metric_learning_goes_on_where_it_stood():
    def parts_of(rows):
        memory = pml_losses.CrossBatchMemory(pml_losses.ContrastiveLoss(), 2, 5)
        for first in range(0, rows, 2):
            memory(torch.eye(2) + first, torch.tensor([0, 1]))
        trainer = SimpleNamespace(
            models={}, optimizers={}, lr_schedulers={}, loss_funcs={"memory": memory}
        )
        return TrainingParts(trainer, None, None, None), memory

    for rows, place in ((4, (4, False)), (8, (3, True))):
        (parts, memory), (other, resumed) = parts_of(rows), parts_of(0)
        saved = copy.deepcopy(parts.state_dict())
        other.load_state_dict(saved)
        assert (resumed.queue_idx, resumed.has_been_filled) == place
        batch = torch.tensor([[0.6, 0.8], [1, 0]]), torch.tensor([0, 0])
        assert torch.equal(resumed(*batch), memory(*batch))
        assert torch.equal(resumed.label_memory, memory.label_memory)
    before = other.state_dict()["queues"]
    for wrong in ((6, True), (-1, True), (True, True), (2, 1), 3):
        saved["queues"]["memory"][""] = wrong
        with pytest.raises(CheckpointError):
            other.load_state_dict(saved)
        assert other.state_dict()["queues"] == before
    del saved["queues"]  # as before it was kept
    other.load_state_dict(saved)


def test_a_network_that_cannot_start_anew_is_one_sentence():
    def parts_of(net):
        names = ("optimizers", "lr_schedulers", "loss_funcs")
        trainer = SimpleNamespace(models={"trunk": net}, **{name: {} for name in names})
        curriculum = bspml.SelfPacedCurriculum(
            bspml.SampleWeights([0, 0, 1, 1]), warmup="cross-fit"
        )
        return TrainingParts(trainer, curriculum, None, None)

    lazy = torch.nn.Sequential(torch.nn.LazyLinear(2))
    with pytest.raises(InputError, match=r"without a size yet, such as 0\.weight, .*Pass a batch"):
        parts_of(lazy)
    lazy(torch.ones(1, 3))
    parts = parts_of(lazy)
    with torch.no_grad():
        lazy[0].bias.add_(1)
    parts.restart_network()
    before = lazy[0].bias.clone()
    lazy.append(torch.nn.Linear(2, 2))
    with pytest.raises(InputError, match=r"other parameters than before the first step, .*Missing"):
        parts.restart_network()
    assert torch.equal(lazy[0].bias, before)
