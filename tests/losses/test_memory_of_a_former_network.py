"""A memory does not show a fresh network the embeddings, and the labels, of the one before."""

import copy

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses

import bspml

LABELS = torch.arange(12).repeat_interleave(10)
GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.randn(12, 6, generator=GENERATOR)[LABELS]
IMAGES = IMAGES + 0.3 * torch.randn(120, 6, generator=GENERATOR)

MEMORIES = {
    "Weighted": lambda w: bspml.CrossBatchMemory(
        bspml.Weighted(pml_losses.ContrastiveLoss(), w), 6, 64
    ),
    "BSPMLLoss": lambda w: bspml.CrossBatchMemory(bspml.BSPMLLoss(w), 6, 64),
    "the miner's": lambda w: bspml.CrossBatchMemory(
        bspml.BSPMLLoss(), 6, 64, miner=bspml.BSPMLMiner(w)
    ),
    "SuperLoss": lambda w: bspml.SuperLoss(
        bspml.CrossBatchMemory(bspml.Weighted(pml_losses.ContrastiveLoss(), w), 6, 64)
    ),
}


def memory_of(loss):
    return next(m for m in loss.modules() if isinstance(m, bspml.CrossBatchMemory))


@pytest.mark.parametrize("kind", MEMORIES)
def test_a_loop_of_ones_own_shows_a_half_nothing_of_the_other(kind):
    """The loop of the documentation, which knows of no memory."""
    weights = bspml.SampleWeights(LABELS)
    loss_fn = MEMORIES[kind](weights)
    curriculum = bspml.SelfPacedCurriculum(weights, warmup="cross-fit")
    sampler = bspml.PKSampler(LABELS, classes_per_batch=4, samples_per_class=3)
    memory, is_fresh, resets = memory_of(loss_fn), True, 0
    for _ in range(6):
        allowed = curriculum.training_mask()
        sampler.set_rows(allowed)
        for number, idx in enumerate(sampler):
            loss_fn(IMAGES[idx], LABELS[idx], sample_index=idx)
            held = memory.index_memory[memory.index_memory >= 0]
            if curriculum.may_reset:
                assert allowed[held].all()
            if number == 0:
                assert (len(held) == len(idx)) == is_fresh
        record = curriculum.update(IMAGES)
        is_fresh = record.reset_model
        if is_fresh:
            resets += 1
            saved = copy.deepcopy(loss_fn.state_dict())  # before the next step
            other = MEMORIES[kind](bspml.SampleWeights(LABELS))
            other.load_state_dict(saved)
            assert (memory_of(other).index_memory == -1).all()
            assert memory_of(other).queue_idx == 0
    assert resets == 2
    assert memory.queue_idx or memory.has_been_filled


def test_a_memory_loaded_after_a_restart_is_the_present_network_s():
    weights = bspml.SampleWeights(LABELS)
    loss_fn = MEMORIES["Weighted"](weights)
    idx = torch.arange(20)
    loss_fn(IMAGES[idx], LABELS[idx], sample_index=idx)
    saved = copy.deepcopy(loss_fn.state_dict())
    weights.restarts += 1
    loss_fn.load_state_dict(saved)
    loss_fn(IMAGES[idx + 20], LABELS[idx + 20], sample_index=idx + 20)
    assert loss_fn.index_memory[:40].tolist() == list(range(40))


def test_a_curriculum_that_asks_for_no_fresh_network_leaves_the_memory():
    weights = bspml.SampleWeights(LABELS)
    loss_fn = MEMORIES["Weighted"](weights)
    idx = torch.arange(20)
    loss_fn(IMAGES[idx], LABELS[idx], sample_index=idx)
    bspml.SelfPacedCurriculum(weights).update(IMAGES)
    loss_fn(IMAGES[idx + 20], LABELS[idx + 20], sample_index=idx + 20)
    assert loss_fn.queue_idx == 40
