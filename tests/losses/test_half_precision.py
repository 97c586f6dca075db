"""Rows without direction in half precision: their gradient must not leave float16."""

import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity, DotProductSimilarity, LpDistance

from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.cross_batch_memory import CrossBatchMemory

NORMALISING = [CosineSimilarity(), DotProductSimilarity(), LpDistance(), CosineSimilarity(power=2)]


def half_rows(length, dtype=torch.float16):
    emb = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    emb[2] = length
    return emb.requires_grad_(), torch.tensor([0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize("length", [0.0, 6e-8])
@pytest.mark.parametrize("distance", NORMALISING, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("in_memory", [False, True])
def test_a_row_without_direction_in_half_precision_gets_a_finite_gradient(
    length, distance, in_memory
):
    emb, labels = half_rows(length)
    loss = BSPMLLoss(distance=distance)
    (CrossBatchMemory(loss, 4, memory_size=12) if in_memory else loss)(emb, labels).backward()
    assert torch.isfinite(emb.grad).all()
    wide = emb.detach().float().requires_grad_()
    (CrossBatchMemory(loss, 4, memory_size=12) if in_memory else loss)(wide, labels).backward()
    others = [0, 1, 3, 4, 5]
    assert emb.grad[others].any()
    assert torch.equal(emb.grad[others], wide.grad[others].half())


def test_a_reference_without_direction_in_half_precision_gets_a_finite_gradient():
    refs, labels = half_rows(0.0)
    emb = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    BSPMLLoss()(emb, labels, ref_emb=refs, ref_labels=labels.clone()).backward()
    assert torch.isfinite(refs.grad).all()
    assert refs.grad.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_an_input_of_zeros_under_autocast_leaves_the_layer_its_gradient(dtype):
    layer = torch.nn.Linear(4, 4, bias=False)
    with torch.autocast("cpu", dtype=dtype):
        emb = layer(half_rows(0.0)[0].detach().float())
    BSPMLLoss()(emb, half_rows(0.0)[1]).backward()
    assert torch.isfinite(layer.weight.grad).all()
    assert layer.weight.grad.any()


def test_without_normalising_a_row_of_zeros_in_half_precision_keeps_its_gradient():
    distance = DotProductSimilarity(normalize_embeddings=False)
    grads = []
    for wide in (False, True):
        emb, labels = half_rows(0.0)
        emb = emb.detach().float().requires_grad_() if wide else emb
        BSPMLLoss(beta=2, distance=distance)(emb, labels).backward()
        grads.append(emb.grad.half())
    assert grads[0][2].any()
    assert torch.equal(*grads)


def test_an_overflow_of_rows_with_a_direction_stays_in_sight_of_a_gradient_scaler():
    emb, labels = half_rows(1e-3)
    (BSPMLLoss()(emb, labels) * 2.0**16).backward()
    assert torch.isinf(emb.grad[2]).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_memory_keeps_its_rows_where_its_module_is_put_into_half_precision(dtype):
    emb, labels = half_rows(1.0, dtype)
    memory = CrossBatchMemory(BSPMLLoss(), 4, memory_size=12)
    memory(emb.detach().float() / 3, labels)
    rows, same = memory.embedding_memory.clone(), CrossBatchMemory(BSPMLLoss(), 4, memory_size=12)
    same.load_state_dict(memory.state_dict())
    memory.to(dtype)  # as Lightning does behind a checkpoint
    assert torch.equal(memory.embedding_memory, rows)
    assert torch.equal(memory(emb, labels), same(emb, labels))
