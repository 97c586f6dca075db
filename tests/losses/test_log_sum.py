"""The log-sums against plain logarithms, at their extremes, and both their derivatives."""

import math

import pytest
import torch

from bspml.losses.log_sum import MultiSimilarityTerms, PairWeights, Scales, log_one_plus_sum

EXACT = {"rtol": 1e-12, "atol": 1e-14}  # float64 sums of a few terms


def problem(weighted, seed=0):
    generator = torch.Generator().manual_seed(seed)
    S = 2 * torch.rand(5, 7, generator=generator, dtype=torch.float64) - 1
    positive = torch.rand(5, 7, generator=generator) < 0.4
    negative = ~positive & (torch.rand(5, 7, generator=generator) < 0.7)
    positive[0] = negative[1] = False
    if not weighted:
        return S, positive, negative, PairWeights(None, None, None)
    w = torch.rand(7, generator=generator, dtype=torch.float64)
    w[2] = 0
    factors = torch.rand(2, 5, generator=generator, dtype=torch.float64)
    return S, positive, negative, PairWeights(w.log(), *factors)


@pytest.mark.parametrize("scales", [Scales(2.0, 50.0, 0.5), Scales(-2.0, -30.0, 0.7)])
@pytest.mark.parametrize("weighted", [False, True])
def test_elements_are_two_weighted_log_sums(scales, weighted):
    S, positive, negative, weights = problem(weighted)
    alpha, beta, base = scales
    found = MultiSimilarityTerms.apply(S, positive, negative, weights, scales)
    w = torch.ones(7) if weights.log_w is None else weights.log_w.exp()
    pull, push = (torch.ones(5) if f is None else f for f in weights[1:])
    for i in range(5):
        near = sum(
            float(w[j]) * math.exp(-alpha * (float(S[i, j]) - base))
            for j in range(7)
            if positive[i, j]
        )
        far = sum(
            float(w[j]) * math.exp(beta * (float(S[i, j]) - base))
            for j in range(7)
            if negative[i, j]
        )
        expected = float(pull[i]) / abs(alpha) * math.log1p(near)
        expected += float(push[i]) / abs(beta) * math.log1p(far)
        assert float(found[i]) == pytest.approx(expected, rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("scales", [Scales(2.0, 9.0, 0.5), Scales(-2.0, -9.0, 0.7)])
@pytest.mark.parametrize("weighted", [False, True])
def test_both_derivatives(scales, weighted):
    S, *more = problem(weighted)

    def terms(S):
        return MultiSimilarityTerms.apply(S, *more, scales)

    S.requires_grad_()
    assert torch.autograd.gradcheck(terms, (S,))
    assert torch.autograd.gradgradcheck(terms, (S,))


def test_a_row_of_nothing_is_zero_and_shares_nothing():
    value, share = log_one_plus_sum(torch.full((1, 3), -math.inf))
    assert value.tolist() == [0]
    assert share.tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("exponent", [-40.0, -1.0, 0.0, 1.0, 500.0])
def test_no_exponent_overflows_or_is_rounded_away(exponent):
    value, share = log_one_plus_sum(torch.tensor([[exponent, -math.inf]], dtype=torch.float64))
    expected = exponent if exponent > 100 else math.log1p(math.exp(exponent))
    assert value.item() == pytest.approx(expected, rel=1e-14)
    torch.testing.assert_close(share[0, 0], torch.tensor(exponent).double().sigmoid(), **EXACT)
    assert share[0, 1] == 0
