import pytest
import torch
from pytorch_metric_learning.distances import (
    CosineSimilarity,
    DotProductSimilarity,
    LpDistance,
    SNRDistance,
)

from bspml.losses.similarity import CosineGram, is_cosine, similarity_matrix, widen, within_range


def draw(rows, columns=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64).to(dtype)


DISTANCES = [
    CosineSimilarity(),
    DotProductSimilarity(),
    DotProductSimilarity(normalize_embeddings=False),
    CosineSimilarity(power=2),
    LpDistance(),
    LpDistance(p=1, normalize_embeddings=False),
    SNRDistance(),
]


@pytest.mark.parametrize("distance", DISTANCES, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("with_ref", [False, True])
def test_is_the_distance_itself_bit_for_bit(distance, with_ref):
    emb = draw(6, dtype=torch.float32)
    ref = draw(4, seed=1, dtype=torch.float32) if with_ref else None
    expected = distance(emb, emb if ref is None else ref)
    assert torch.equal(similarity_matrix(emb, ref, distance), expected)


def test_gradient_is_that_of_the_distance():
    cotangent = draw(7, 7, seed=2)
    grads = []
    for matrix in (lambda e: similarity_matrix(e, None, CosineSimilarity()), CosineSimilarity()):
        emb = draw(7).requires_grad_()
        (matrix(emb) * cotangent).sum().backward()
        grads.append(emb.grad)
    torch.testing.assert_close(*grads, rtol=1e-13, atol=1e-13)


def test_gradcheck_to_second_order():
    emb = draw(4, 3).requires_grad_()
    assert torch.autograd.gradcheck(CosineGram.apply, (emb,))
    assert torch.autograd.gradgradcheck(CosineGram.apply, (emb,))


@pytest.mark.parametrize("length", [0.0, 1e-13])
def test_a_row_without_direction_has_the_gradient_of_the_distance(length):
    cotangent = draw(3, 3, seed=2)
    grads = []
    for matrix in (CosineGram.apply, CosineSimilarity()):
        emb = draw(3)
        emb[1] *= length
        emb.requires_grad_()
        (matrix(emb) * cotangent).sum().backward()
        grads.append(emb.grad)
    assert torch.isfinite(grads[0]).all()
    torch.testing.assert_close(*grads, rtol=1e-9, atol=0)


def test_the_scale_of_the_embeddings_does_not_matter():
    emb = draw(5)
    torch.testing.assert_close(CosineGram.apply(emb), CosineGram.apply(10 * emb))


EXTREMES = [1e-30, 1e-20, 1e-13, 1e19, 1e20, 1e37]


@pytest.mark.parametrize("scale", EXTREMES)
@pytest.mark.parametrize("with_ref", [False, True])
def test_rows_whose_squares_leave_float32_keep_their_cosines(scale, with_ref):
    emb, ref = draw(5), draw(3, seed=1) if with_ref else None
    # LpDistance normalises, too; between normalised rows it is sqrt(2 - 2 cos).
    for distance, tolerance in ((CosineSimilarity(), 1e-6), (LpDistance(), 1e-3)):
        expected = similarity_matrix(emb, ref, distance)
        rows = (scale * emb).float()
        rows[0] = emb[0].float()  # the others' scale is no matter of this row
        refs = None if ref is None else (scale * ref).float()
        found = similarity_matrix(rows, refs, distance)
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("scale", EXTREMES)
def test_their_gradient_is_finite_and_of_the_right_direction(scale):
    cotangent = draw(5, 5, seed=2)
    emb = draw(5).requires_grad_()
    (similarity_matrix(emb, None, CosineSimilarity()) * cotangent).sum().backward()
    rows = (scale * emb.detach()).float().requires_grad_()
    matrix = similarity_matrix(rows, None, CosineSimilarity())
    (matrix * cotangent.float()).sum().backward()
    assert torch.isfinite(rows.grad.square()).all()
    # As 1 / |e|, up to the bound that pytorch-metric-learning has as well.
    peak = rows.detach().abs().amax(1, keepdim=True).double()
    length = scale if scale > 1e-12 else 1e-12 / peak * scale
    torch.testing.assert_close(rows.grad.double() * length, emb.grad, rtol=1e-4, atol=1e-6)


def test_denormal_and_zero_rows_stay_finite():
    rows = torch.zeros(3, 5)
    rows[1] = 1e-42
    rows[2, 0] = 1.0
    rows.requires_grad_()
    matrix = similarity_matrix(rows, None, CosineSimilarity())
    matrix.square().sum().backward()
    assert torch.isfinite(rows.grad).all()
    assert matrix[0].tolist() == [0, 0, 0]
    assert float(matrix[1, 2].detach()) == pytest.approx(5**-0.5)


def test_rows_of_ordinary_length_are_not_touched():
    emb = draw(6)
    assert within_range(emb) is emb
    mixed = draw(6, dtype=torch.float32)
    expected = similarity_matrix(mixed, mixed.clone(), CosineSimilarity())
    mixed[2] *= 1e-20  # its company is computed as before, bit for bit
    found = similarity_matrix(mixed, mixed.clone(), CosineSimilarity())
    others = [0, 1, 3, 4, 5]
    assert torch.equal(found[others][:, others], expected[others][:, others])


def test_autocast_does_not_lower_the_precision():
    emb = draw(6, dtype=torch.float32)
    expected = similarity_matrix(emb, None, CosineSimilarity())
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(similarity_matrix(emb, None, CosineSimilarity()), expected)
        held = emb.clone().requires_grad_()
        similarity_matrix(held, None, CosineSimilarity()).square().sum().backward()
    free = emb.clone().requires_grad_()
    similarity_matrix(free, None, CosineSimilarity()).square().sum().backward()
    assert torch.equal(held.grad, free.grad)


def test_a_subclass_keeps_its_own_matrix():
    class Shifted(CosineSimilarity):
        def compute_mat(self, query_emb, ref_emb):
            return super().compute_mat(query_emb, ref_emb) + 1

    assert not is_cosine(Shifted())
    emb = draw(3)
    assert torch.equal(similarity_matrix(emb, None, Shifted()), Shifted()(emb))


def test_a_distance_asked_for_statistics_collects_them():
    distance = CosineSimilarity(collect_stats=True)
    similarity_matrix(2 * torch.eye(3), None, distance)
    assert distance.initial_avg_query_norm == 2


def test_widening_passes_infinity_and_nan_and_zeroes_what_overflows_at_short_rows():
    emb = torch.tensor([[0.0, 0], [0, 0], [0, 0], [0, 0], [1, 0]]).half().requires_grad_()
    above = torch.tensor([[1e9, 1], [torch.inf, 1], [torch.nan, 1], [3, 4], [1e9, 1]])
    widen(emb, torch.float32).backward(above)
    assert emb.grad[0].tolist() == [0, 0]
    assert emb.grad[1].tolist() == [torch.inf, 1]
    assert emb.grad[2].isnan().tolist() == [True, False]
    assert emb.grad[3].tolist() == [3, 4]
    assert emb.grad[4].tolist() == [torch.inf, 1]


def test_widening_is_differentiable_twice_and_nothing_where_there_is_nothing_to_do():
    emb = draw(3, dtype=torch.float32).requires_grad_()
    assert widen(emb, torch.float32) is emb
    half = draw(3, dtype=torch.float16).requires_grad_()
    (first,) = torch.autograd.grad(widen(half, torch.float32).pow(3).sum(), half, create_graph=True)
    first.sum().backward()
    torch.testing.assert_close(half.grad, (6 * half).detach(), rtol=2e-3, atol=2e-3)
