"""The kernels of a batch against torch's operations: in Triton's interpreter, and on a GPU.

Without a GPU these tests run in a process of their own.
"""

import pytest
import torch

from bspml.losses.log_sum import PairWeights, Scales, terms_by_operations
from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.losses.pairs import prepare_batch
from bspml.losses.similarity import CosineGram, _DeviceGram, _gram, within_range
from bspml.weights.batch import look_up
from bspml.weights.state import SampleWeights
from helpers.triton_kernels import DEVICE, compiler, here, outside, passes_in_the_interpreter

pytest.importorskip("triton")
SHAPES = [(12, 8), (33, 40), (5, 1100)]


@pytest.mark.slow
@outside
def test_in_the_interpreter(interpreted):
    passes_in_the_interpreter(__file__, interpreted)


# Pointers by name where they are not to float32, and numbers that are not int32.
KINDS = {
    **dict.fromkeys(("labels", "ref_labels", "index", "ref_index"), "*i64"),
    **dict.fromkeys(("positive", "negative"), "*i1"),
    **dict.fromkeys(("smallest", "epsilon", "alpha", "beta", "base"), "fp32"),
    **dict.fromkeys(("dim", "count"), "i32"),
}


@compiler
@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("name", ["_unit_rows", "_turned", "_mined_masks", "_terms"])
@pytest.mark.parametrize("parts", [1, 4])
def test_they_compile_for_a_gpu(name, flag, parts, tmp_path, monkeypatch):
    """The compiler needs no GPU."""
    from triton import compile as compiled
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = getattr(kernels(), name)
    sizes = {"block": 1024, "parts": parts}
    constants = {p.name: sizes.get(p.name, flag) for p in kernel.params if p.is_constexpr}
    signature = {
        p.name: "constexpr" if p.is_constexpr else KINDS.get(p.name, "*fp32") for p in kernel.params
    }
    source = ASTSource(kernel, signature, constants)
    assert compiled(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


def kernels():
    from bspml.tensors.kernels import pairs as pair_kernels

    return pair_kernels


def draw(rows, dim, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, dim, generator=generator).to(DEVICE)


def close(found, expected, rtol=2e-6, atol=2e-7):
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)


@here
@pytest.mark.parametrize("shape", SHAPES)
def test_unit_rows_and_their_gradient(shape):
    emb = draw(*shape)
    emb[0], emb[1], emb[2], emb[3] = 0, emb[1] * 1e-30, emb[2] * 1e30, emb[3] * 1e-13
    leaf = emb.clone().requires_grad_()
    scaled = within_range(leaf)
    expected = torch.nn.functional.normalize(scaled, eps=1e-12)
    x, norm, divisor = kernels().unit_rows_norms(emb)
    close(x, expected.detach())
    close(norm[:, 0], scaled.detach().norm(dim=1).clamp_min(1e-12))
    grad = draw(len(emb), len(emb), 1)
    CosineGram.apply(scaled, None).backward(grad)
    found = kernels().turned((grad + grad.T) @ x, x, norm, divisor)
    for i in range(len(emb)):  # gradients of very short and long rows have scales of their own
        size = leaf.grad[i].abs().max()
        close(found[i] / size.clamp_min(1e-38), leaf.grad[i] / size.clamp_min(1e-38), 1e-5, 2e-6)


@here
def test_the_gram_matrix_and_both_its_derivatives():
    emb = draw(9, 12)
    emb[2] *= 1e-30
    grad, direction = draw(9, 9, 1), draw(9, 12, 2)
    found, expected = [], []
    for gram, into in ((_DeviceGram.apply, found), (_gram, expected)):
        leaf = emb.clone().requires_grad_()
        S = gram(leaf, None)
        (first,) = torch.autograd.grad(S, leaf, grad, retain_graph=True)
        (graph,) = torch.autograd.grad(S, leaf, grad, create_graph=True)
        (second,) = torch.autograd.grad((graph[3:] * direction[3:]).sum(), leaf)
        into += [S.detach(), first[3:], graph[3:].detach(), second[3:]]
        known = gram(leaf, torch.full((9, 9), 0.25, device=DEVICE))
        assert bool((known == 0.25).all())
    for got, wanted in zip(found, expected, strict=True):
        close(got, wanted, 1e-4, 2e-6)


def batch(case, rows=33, refs=None):
    """A prepared batch, the looked-up weights and the miner of a case."""
    torch.manual_seed(len(case))
    labels = torch.randint(0, 6, (rows,)).to(DEVICE)
    weights = SampleWeights(torch.arange(60) % 6)
    values = torch.rand(60)
    values[::3] = 0
    weights.update(values)
    weights = weights.to(DEVICE)
    emb = draw(rows, 16) + 2 * torch.nn.functional.one_hot(labels, 16)
    index = torch.randint(0, 60, (rows,)).to(DEVICE)
    ref_emb = ref_labels = ref_index = None
    if "memory" in case:
        ref_emb, ref_labels = draw(70, 16, 3), torch.randint(0, 6, (70,)).to(DEVICE)
        ref_index = torch.randint(0, 60, (70,)).to(DEVICE)
    table = None if "unweighted" in case else weights
    prepared = prepare_batch(emb, labels, ref_emb, ref_labels)
    known = look_up(table, prepared.embeddings, prepared.other_rows, index, ref_index)
    return prepared, known, BSPMLMiner(table, skip_zero=table is not None)


CASES = ["weighted", "unweighted", "weighted memory", "unweighted memory"]


@here
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_mined_masks(case, epsilon):
    prepared, known, miner = batch(case)
    miner.epsilon = epsilon
    refs = prepared.ref_emb if prepared.other_emb is not None else prepared.embeddings
    matrix = (
        torch.nn.functional.normalize(prepared.embeddings) @ torch.nn.functional.normalize(refs).T
    )
    expected = miner.mined_by_operations(prepared, known, matrix)
    found = kernels().mined_masks(*miner.kernel_arguments(prepared, known, matrix))
    assert len(found) == 2
    for got, wanted in zip(found, expected, strict=True):
        assert torch.equal(got, wanted)
    assert expected[0].any()
    assert not expected[0].all()


@here
def test_mined_masks_of_distances_and_of_nan():
    from pytorch_metric_learning.distances import LpDistance

    prepared, known, _ = batch("weighted")
    miner = BSPMLMiner(SampleWeights(torch.arange(60) % 6).to(DEVICE), distance=LpDistance())
    matrix = torch.cdist(prepared.embeddings, prepared.embeddings)
    matrix[3, :] = float("nan")
    matrix[:, 5] = float("nan")
    expected = miner.mined_by_operations(prepared, known, matrix)
    found = kernels().mined_masks(*miner.kernel_arguments(prepared, known, matrix))
    assert len(found) == 2
    for got, wanted in zip(found, expected, strict=True):
        assert torch.equal(got, wanted)


@here
@pytest.mark.parametrize("numbers", [(2.0, 50.0, 0.5), (18.0, 75.0, 0.77), (-2.0, -50.0, 0.5)])
@pytest.mark.parametrize("columns", [1, 16, 17, 2100])
@pytest.mark.parametrize("weighted", [False, True])
def test_terms(numbers, columns, weighted):
    rows = 7
    matrix = (draw(rows, columns) * 0.4).clamp(-1, 1)
    positive, negative = draw(rows, columns, 1) > 0.6, draw(rows, columns, 2) > 0
    negative &= ~positive
    positive[0], negative[0], negative[1] = False, False, False
    log_weights = factors = None
    if weighted:
        w = draw(columns, 1, 4)[:, 0].abs().clamp(max=1)
        w[::3] = 0
        log_weights, factors = w.log(), draw(rows, 1, 5)[:, 0].abs()
    weights = PairWeights(log_weights, factors, factors)
    given = (matrix, positive, negative, weights, Scales(*numbers))
    for got, wanted in zip(
        kernels().multi_similarity_terms(*given), terms_by_operations(*given), strict=True
    ):
        close(got, wanted, 2e-5, 1e-7)


@here
def test_small_losses_keep_their_digits():
    matrix = torch.full((1, 20), -0.2).to(DEVICE)
    negative = torch.ones(1, 20, dtype=torch.bool, device=DEVICE)
    found, _ = kernels().multi_similarity_terms(
        matrix, ~negative, negative, PairWeights(None, None, None), Scales(2.0, 50.0, 0.5)
    )
    exact = torch.log1p(20 * torch.exp(torch.tensor(-35.0, dtype=torch.float64))) / 50
    torch.testing.assert_close(found.double().cpu()[0], exact, rtol=1e-5, atol=0)
