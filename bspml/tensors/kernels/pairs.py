"""Kernels of a batch on a CUDA device, in Triton: unit rows, mined pairs, the loss of each anchor.

Each is one launch for what torch's operations do in ten to forty; `bspml.losses.similarity`,
`bspml.miners` and `bspml.losses` use them where `device` says so, and hold the
equations.  float32 only.  One program per row: rows of any length, read in parts of `_BLOCK`.

Nothing here needs the accuracy of a library function: where digits would be lost (log(1 + x) of a
small x) the few terms that keep them are written out.  So the kernels also run, slowly, in Triton's
interpreter on a CPU, which is how they are tested without a device.
"""

# triton.jit reads the source: annotations must stay plain, and names are the arguments' own.
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from bspml.tensors.kernels.device import Mining

_BLOCK = 1024
_SMALLEST = tl.constexpr(1e-12)  # norm
_INFINITY = tl.constexpr(float("inf"))
_NAN = tl.constexpr(float("nan"))


def unit_rows_norms(embeddings: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return x = e / |e| (B, D), the norm (B, 1) of what was normalised, and its divisor (B, 1).

    Rows whose norm leaves float32, or is below 1e-12, are first divided by their largest entry;
    the divisor of all others is 1.
    """
    embeddings = embeddings.contiguous()
    rows, dim = embeddings.shape
    x = torch.empty_like(embeddings)
    norm, divisor = embeddings.new_empty(2, rows, 1).unbind()
    with torch.cuda.device_of(embeddings):
        _unit_rows[(rows,)](embeddings, x, norm, divisor, dim, *_cut(dim))
    return x, norm, divisor


def turned(pull: Tensor, x: Tensor, norm: Tensor, divisor: Tensor) -> Tensor:
    """Turn the gradient by unit rows into that by the embeddings.

    It is  (pull_i - x_i <x_i, pull_i>) / |e_i| / divisor_i.

    Args:
        pull: (B, D) the gradient by x.
        x: (B, D) unit rows, and
        norm: (B, 1) and
        divisor: (B, 1), as `unit_rows_norms` gave them.

    Returns:
        (B, D).
    """
    pull = pull.contiguous()
    rows, dim = pull.shape
    out = torch.empty_like(pull)
    with torch.cuda.device_of(pull):
        _turned[(rows,)](pull, x, norm, divisor, out, dim, *_cut(dim))
    return out


def mined_masks(
    matrix: Tensor,
    labels: Tensor,
    ref_labels: Tensor,
    weights: tuple[Tensor | None, Tensor | None],
    indices: tuple[Tensor | None, Tensor | None],
    mining: Mining,
) -> tuple[Tensor, Tensor]:
    """Mine the pairs that violate the margin; see `BSPMLMiner`.

    Args:
        matrix: (B, R) similarities, or distances if not `mining.inverted`.
        labels: (B,) int64.
        ref_labels: (R,) int64.
        weights: (B,) and (R,), of anchors and references: those of 0 have no pairs; None: all have.
        indices: (B,) and (R,) int64 data-set rows: equal ones are one sample; or None.
        mining: what decides.

    Returns:
        Positives and negatives, (B, R) bool.
    """
    (anchors, references), (index, ref_index) = weights, indices
    matrix = matrix.contiguous()
    rows, columns = matrix.shape
    positive, negative = matrix.new_empty(2, rows, columns, dtype=torch.bool).unbind()
    use_index = index is not None and ref_index is not None
    with torch.cuda.device_of(matrix):
        _mined_masks[(rows,)](
            matrix, labels, ref_labels, _or(anchors, matrix), _or(references, matrix),
            _or(index, labels), _or(ref_index, labels), positive, negative, columns,
            float(mining.epsilon), anchors is not None, references is not None, use_index,
            mining.same_rows, mining.inverted, *_cut(columns),
        )  # fmt: skip
    return positive, negative


def multi_similarity_terms(
    matrix: Tensor,
    positive: Tensor,
    negative: Tensor,
    weights: tuple[Tensor | None, Tensor | None, Tensor | None],
    scales: tuple[float, float, float],
) -> tuple[Tensor, Tensor]:
    """Compute the multi-similarity terms and their derivatives; see `MultiSimilarityTerms`.

    Args:
        matrix: (B, R) similarities or distances.
        positive: (B, R) bool.
        negative: (B, R) bool.
        weights: `PairWeights`: log w (R,) and the factors (B,) of the two log-sums; None is 1.
        scales: `Scales`: alpha, beta and base.

    Returns:
        Elements (B,) and their derivatives by the matrix (B, R).
    """
    log_weights, positive_factor, negative_factor = weights
    alpha, beta, base = scales
    matrix = matrix.contiguous()
    rows, columns = matrix.shape
    losses, slope = matrix.new_empty(rows), torch.empty_like(matrix)
    with torch.cuda.device_of(matrix):
        _terms[(rows,)](
            matrix, positive.contiguous(), negative.contiguous(), _or(log_weights, matrix),
            _or(positive_factor, matrix), _or(negative_factor, matrix), losses, slope, columns,
            float(alpha), float(beta), float(base), log_weights is not None,
            positive_factor is not None, negative_factor is not None, *_cut(columns),
        )  # fmt: skip
    return losses, slope


def _cut(length: int) -> tuple[int, int]:
    """Entries of a part and the number of parts, both powers of 2: few kernels are compiled."""
    block = min(_BLOCK, max(16, _power_of_two(length)))
    return block, _power_of_two(-(-length // block))


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def _or(given: Tensor | None, instead: Tensor) -> Tensor:
    """A pointer for an argument that is not read."""
    return instead if given is None else given.contiguous()


@triton.jit
@no_type_check
def _unit_rows(e, x, norm, divisor, dim, block: tl.constexpr, parts: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * dim
    each = tl.arange(0, block)
    squares = tl.zeros((block,), tl.float32)
    peaks = tl.zeros((block,), tl.float32)
    for part in range(parts):
        first = part * block
        inside = first + each < dim
        values = tl.load(e + start + first + each, mask=inside, other=0.0)
        squares += values * values
        peaks = tl.where(tl.abs(values) > peaks, tl.abs(values), peaks)
    length = tl.sqrt(tl.sum(squares, 0))
    peak = tl.max(peaks, 0)
    odd = ((length < _SMALLEST) | (length == _INFINITY)) & (peak > 0)
    scale = tl.where(odd, peak, 1.0)
    squares = tl.zeros((block,), tl.float32)
    for part in range(parts):
        first = part * block
        inside = first + each < dim
        values = tl.load(e + start + first + each, mask=inside, other=0.0) / scale
        squares += values * values
    length = tl.sqrt(tl.sum(squares, 0))
    # Written so that a NaN stays one.
    length = tl.where(length < _SMALLEST, _SMALLEST, length)
    for part in range(parts):
        first = part * block
        inside = first + each < dim
        values = tl.load(e + start + first + each, mask=inside, other=0.0) / scale
        tl.store(x + start + first + each, values / length, mask=inside)
    tl.store(norm + row, length)
    tl.store(divisor + row, scale)


@triton.jit
@no_type_check
def _turned(pull, x, norm, divisor, out, dim, block: tl.constexpr, parts: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * dim
    each = tl.arange(0, block)
    products = tl.zeros((block,), tl.float32)
    for part in range(parts):
        first = part * block
        inside = first + each < dim
        g = tl.load(pull + start + first + each, mask=inside, other=0.0)
        products += g * tl.load(x + start + first + each, mask=inside, other=0.0)
    length = tl.load(norm + row)
    scale = tl.load(divisor + row)
    scale = tl.where(scale < _SMALLEST, _SMALLEST, scale)
    # Rows shorter than the smallest norm were divided by that constant: no second term.
    along = tl.where(length <= _SMALLEST, 0.0, tl.sum(products, 0))
    for part in range(parts):
        first = part * block
        inside = first + each < dim
        g = tl.load(pull + start + first + each, mask=inside, other=0.0)
        unit = tl.load(x + start + first + each, mask=inside, other=0.0)
        tl.store(out + start + first + each, (g - unit * along) / length / scale, mask=inside)


@triton.jit
@no_type_check
def _allowed(
    labels, ref_labels, anchors, references, index, ref_index, row, columns, inside,
    has_anchors: tl.constexpr, has_references: tl.constexpr, has_index: tl.constexpr,
    same_rows: tl.constexpr,
):  # fmt: skip
    """Positives and negatives of a row among some columns, before mining."""
    allowed = inside
    if has_anchors:
        mine = tl.load(anchors + row + 0 * columns, mask=inside, other=0.0)
        allowed = allowed & (mine > 0.0)
    if has_references:
        allowed = allowed & (tl.load(references + columns, mask=inside, other=0.0) > 0.0)
    if same_rows:
        allowed = allowed & (columns != row)
    if has_index:
        other = tl.load(ref_index + columns, mask=inside, other=0)
        allowed = allowed & (other != tl.load(index + row))
    same = tl.load(ref_labels + columns, mask=inside, other=0) == tl.load(labels + row)
    return allowed & same, allowed & (same == 0)


@triton.jit
@no_type_check
def _mined_masks(
    matrix, labels, ref_labels, anchors, references, index, ref_index, positive, negative,
    count, epsilon, has_anchors: tl.constexpr, has_references: tl.constexpr,
    has_index: tl.constexpr, same_rows: tl.constexpr, inverted: tl.constexpr,
    block: tl.constexpr, parts: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    start = row.to(tl.int64) * count
    each = tl.arange(0, block)
    nearest = tl.full((block,), -_INFINITY, tl.float32)  # of the negatives
    farthest = tl.full((block,), _INFINITY, tl.float32)  # of the positives
    unknown = tl.zeros((block,), tl.int32)  # 1: a NaN among the positives, 2: the negatives, 3
    for part in range(parts):
        columns = part * block + each
        inside = columns < count
        pos, neg = _allowed(
            labels, ref_labels, anchors, references, index, ref_index, row, columns, inside,
            has_anchors, has_references, has_index, same_rows,
        )  # fmt: skip
        close = tl.load(matrix + start + columns, mask=inside, other=0.0)
        if not inverted:
            close = -close
        nearest = tl.where(neg & (close > nearest), close, nearest)
        farthest = tl.where(pos & (close < farthest), close, farthest)
        unknown = tl.where(pos & (close != close), unknown | 1, unknown)
        unknown = tl.where(neg & (close != close), unknown | 2, unknown)
    hardest_negative = tl.max(nearest, 0)
    hardest_positive = tl.min(farthest, 0)
    # As torch's maximum does: a NaN is the hardest of all.
    hardest_positive = tl.where(tl.max(unknown & 1, 0) > 0, _NAN, hardest_positive)
    hardest_negative = tl.where(tl.max(unknown & 2, 0) > 0, _NAN, hardest_negative)
    for part in range(parts):
        columns = part * block + each
        inside = columns < count
        pos, neg = _allowed(
            labels, ref_labels, anchors, references, index, ref_index, row, columns, inside,
            has_anchors, has_references, has_index, same_rows,
        )  # fmt: skip
        close = tl.load(matrix + start + columns, mask=inside, other=0.0)
        if not inverted:
            close = -close
        # "Not beyond the threshold", so that NaN, which compares false, stays in sight.
        easy_positive = close - epsilon >= hardest_negative
        easy_negative = close + epsilon <= hardest_positive
        tl.store(positive + start + columns, pos & (easy_positive == 0), mask=inside)
        tl.store(negative + start + columns, neg & (easy_negative == 0), mask=inside)


@triton.jit
@no_type_check
def _log1p(x):
    """log(1 + x) for x >= 0; 2 atanh(x / (2 + x)) keeps the digits of a small x."""
    z = x / (2.0 + x)
    s = z * z
    small = 2.0 * z * (1.0 + s * (1.0 / 3 + s * (1.0 / 5 + s * (1.0 / 7 + s * (1.0 / 9 + s / 11)))))
    return tl.where(x < 0.5, small, tl.log(1.0 + x))


@triton.jit
@no_type_check
def _exponents(
    matrix, mask, log_weights, at, columns, inside, scale, base, has_weights: tl.constexpr
):
    """x_ij = scale (S_ij - base) + log w_j where the mask holds, else -inf."""
    offset = -scale * base
    if has_weights:
        offset = offset + tl.load(log_weights + columns, mask=inside, other=0.0)
    x = offset + scale * tl.load(matrix + at, mask=inside, other=0.0)
    keep = tl.load(mask + at, mask=inside, other=0) != 0
    return tl.where(keep & inside, x, -_INFINITY)


@triton.jit
@no_type_check
def _terms(
    matrix, positive, negative, log_weights, positive_factor, negative_factor, losses, slope,
    count, alpha, beta, base, has_weights: tl.constexpr, has_positive: tl.constexpr,
    has_negative: tl.constexpr, block: tl.constexpr, parts: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    start = row.to(tl.int64) * count
    each = tl.arange(0, block)
    top_pull = tl.zeros((block,), tl.float32)
    top_push = tl.zeros((block,), tl.float32)
    for part in range(parts):
        columns = part * block + each
        inside = columns < count
        at = start + columns
        x = _exponents(
            matrix, positive, log_weights, at, columns, inside, -alpha, base, has_weights
        )
        top_pull = tl.where(x <= top_pull, top_pull, x)  # a NaN replaces
        x = _exponents(matrix, negative, log_weights, at, columns, inside, beta, base, has_weights)
        top_push = tl.where(x <= top_push, top_push, x)
    # With the largest exponent m >= 0 taken out, 1 + sum e^x = e^m (1 + rest).
    m_pull, m_push = tl.max(top_pull, 0), tl.max(top_push, 0)
    sum_pull = tl.zeros((block,), tl.float32)
    sum_push = tl.zeros((block,), tl.float32)
    for part in range(parts):
        columns = part * block + each
        inside = columns < count
        at = start + columns
        x = _exponents(
            matrix, positive, log_weights, at, columns, inside, -alpha, base, has_weights
        )
        sum_pull += tl.exp(x - m_pull)
        x = _exponents(matrix, negative, log_weights, at, columns, inside, beta, base, has_weights)
        sum_push += tl.exp(x - m_push)
    rest_pull = tl.sum(sum_pull, 0) + tl.where(m_pull > 0, tl.exp(-m_pull) - 1.0, 0.0)
    rest_push = tl.sum(sum_push, 0) + tl.where(m_push > 0, tl.exp(-m_push) - 1.0, 0.0)
    pull_factor, push_factor = 1.0, 1.0
    if has_positive:
        pull_factor = tl.load(positive_factor + row)
    if has_negative:
        push_factor = tl.load(negative_factor + row)
    pulls = (m_pull + _log1p(rest_pull)) * pull_factor / tl.abs(alpha)
    pushes = (m_push + _log1p(rest_push)) * push_factor / tl.abs(beta)
    tl.store(losses + row, pulls + pushes)
    sign = tl.where(beta > 0, 1.0, -1.0)
    for part in range(parts):
        columns = part * block + each
        inside = columns < count
        at = start + columns
        x = _exponents(
            matrix, positive, log_weights, at, columns, inside, -alpha, base, has_weights
        )
        pull = tl.exp(x - m_pull) / (1.0 + rest_pull) * pull_factor
        x = _exponents(matrix, negative, log_weights, at, columns, inside, beta, base, has_weights)
        push = tl.exp(x - m_push) / (1.0 + rest_push) * push_factor
        tl.store(slope + at, sign * (push - pull), mask=inside)
