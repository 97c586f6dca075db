"""How a step is computed: in parts, in bfloat16, channels last, by a prefetching loader."""

import pytest
import torch
from pytorch_metric_learning.trainers import MetricLossOnly

import bspml
from bspml.errors import InputError
from bspml.trainers.step import StepTrainer
from helpers.steppers import CLASSES, make_stepper as make, take_step as step


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


# --- gradients ------------------------------------------------------------------------------------


def norm_of(grads):
    return float(torch.stack([grad.square().sum() for grad in grads]).sum().sqrt())


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_gradients_are_clipped_as_torch_does_after_all_parts(micro_batches):
    _, free = step(*make(micro_batches=micro_batches)[:2])
    limit = norm_of(free) / 3
    trainer, net, _ = make(micro_batches=micro_batches, clip_norm=limit)
    _, clipped = step(trainer, net)
    for parameter, grad in zip(net.parameters(), free, strict=True):
        parameter.grad = grad.clone()
    torch.nn.utils.clip_grad_norm_(net.parameters(), limit)
    assert norm_of(clipped) == pytest.approx(limit, rel=1e-6)
    for found, parameter in zip(clipped, net.parameters(), strict=True):
        assert torch.equal(found, parameter.grad)
    for found, whole in zip(clipped, free, strict=True):
        torch.testing.assert_close(found, whole / 3, rtol=1e-5, atol=0)


def test_short_gradients_are_not_clipped():
    free, clipped = (step(*make(clip_norm=limit)[:2])[1] for limit in (None, 1e6))
    assert all(torch.equal(a, b) for a, b in zip(free, clipped, strict=True))


def test_each_optimiser_s_gradient_is_clipped_by_itself():
    """A loss with proxies: theirs may be a hundred times larger than the network's."""
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    limit = 1e-3
    loss = losses.ProxyAnchorLoss(CLASSES, 5).double()
    trainer, net, _ = make(loss=loss, clip_norm=limit)
    trainer.optimizers["metric_loss_optimizer"] = torch.optim.SGD(loss.parameters(), 0.0)
    _, grads = step(trainer, net)
    assert norm_of(grads) == pytest.approx(limit, rel=1e-3)
    assert norm_of([loss.proxies.grad]) == pytest.approx(limit, rel=1e-3)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_float16_scales_and_unscales_so_that_the_steps_are_those_of_float32(micro_batches):
    found = {}
    for precision in ("float32", "float16"):
        trainer, net, _ = make(
            dtype=torch.float32, lr=0.1, precision=precision, micro_batches=micro_batches
        )
        start = [p.detach().clone() for p in net.parameters()]
        value = step(trainer, net)[0]
        moved = [p.detach() - q for p, q in zip(net.parameters(), start, strict=True)]
        found[precision] = value, moved
    assert {dtype for _, dtype, _ in net.seen} == {torch.float16}
    assert found["float16"][0] == pytest.approx(found["float32"][0], rel=0.01)
    for half, whole in zip(found["float16"][1], found["float32"][1], strict=True):
        assert whole.abs().max() > 0
        torch.testing.assert_close(half, whole, rtol=0.05, atol=0.05 * float(whole.abs().max()))


def test_float16_is_clipped_after_it_is_unscaled():
    _, free = step(*make(dtype=torch.float32)[:2])
    limit = norm_of(free) / 3
    trainer, net, _ = make(dtype=torch.float32, precision="float16", clip_norm=limit)
    _, grads = step(trainer, net)
    assert norm_of(grads) == pytest.approx(limit, rel=1e-3)


def test_an_overflow_leaves_the_step_out_and_halves_the_scale(recwarn):
    trainer, net, _ = make(dtype=torch.float32, lr=0.1, precision="float16")
    optimizer = trainer.optimizers["trunk_optimizer"]
    name = "trunk_scheduler_by_iteration"
    trainer.lr_schedulers[name] = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1.0)
    scale = trainer.scaler.get_scale()
    net.head.bias.register_hook(lambda grad: grad * float("inf"))
    before = [p.detach().clone() for p in net.parameters()]
    step(trainer, net)
    trainer.step_lr_schedulers()
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
    assert trainer.scaler.get_scale() == scale / 2
    assert not [w for w in recwarn if "lr_scheduler" in str(w.message)]


def test_an_optimiser_without_a_gradient_is_passed_over():
    trainer, net, _ = make(dtype=torch.float32, lr=0.1, precision="float16")
    idle = torch.nn.Linear(1, 1)
    trainer.optimizers["metric_loss_optimizer"] = torch.optim.SGD(idle.parameters(), 1.0)
    step(trainer, net)
    assert trainer.scaler.get_scale() == 2.0**16


# --- precision, layout, loader --------------------------------------------------------------------


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
        ({"precision": "float8"}, "`precision` must be one of"),
        ({"clip_norm": 0.0}, "`clip_norm` must be"),
        (
            {"precision": "float16", "gradient_clippers": {"trunk_grad_clipper": print}},
            "would see the scaled gradients of float16. Pass `clip_norm`",
        ),
        ({"prefetch": 0}, "`prefetch` must be"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        make(**options)
