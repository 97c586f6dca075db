"""Classes that look like two, and classes that look like another one.

Both questions are about samples the audit compares with (all but the share of the noise rate that
fits worst), by their similarities S.

Two: split the class by 2-means; rho is the share of its scatter between the halves.  A class that
is one cloud gives about the rho of Gaussian samples of the same size and covariance [Liu 2008,
SigClust].  `two_score` = (rho - mean) / deviation over such samples; as the covariance contains a
gap between two true classes, single classes score near -2, and 0.5 is far out.  Of 30 such samples
10 are drawn first; the others only where these leave a score above -1.

Same: of class c and the class k that its samples most often fit best otherwise,

    D(c, k) = mean S within c + mean S within k - 2 mean S between

is about 0 if both are one (pairs of a sample with itself left out).  `same_p` is the share of
random exchanges of their samples that separate as well: above .02 the labels tell nothing.  Few
samples prove little, so `same_distance`, D relative to its median over all classes, must be below
.4 too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.linalg import eigh

from bspml.shapes import Float, Tensor
from bspml.tensors.class_ids import by_code
from bspml.tensors.copies import row_keys as _row_keys

TWO_SCORE = 0.5
SAME_P = 0.02
SAME_DISTANCE = 0.4

_FEWEST_TO_SPLIT = 8
_FEWEST_TO_COMPARE = 5
_FEWEST_IN_HALF = 3
_SMALLEST_HALF = 0.1
_SIMULATIONS, _FEW_SIMULATIONS = 30, 10
_NEARLY_TWO = -1.0  # score by the few simulations above which all are made
_EXCHANGES = 399
_LARGEST = 128  # samples of a class looked at; more tell little more
_LARGE = 64  # samples of a class
_SIMULATED_VALUES = 1 << 21  # held at a time


@dataclass(frozen=True)
class ClassFindings:
    """What each class looks like; NaN or -1 where it has too few samples to say.

    Attributes:
        two_score: (C,) float64; see above.
        looks_like_two: (C,) bool.
        nearest: (C,) int64, the class that its samples most often fit best otherwise, or -1.
        same_distance: (C,) float64, D(c, nearest) over the median D; about 0: the same.
        same_p: (C,) float64; 0 where `same_distance` already tells them apart.
        looks_like: (C,) int64, the class it looks the same as, or -1.
    """

    two_score: np.ndarray
    looks_like_two: np.ndarray
    nearest: np.ndarray
    same_distance: np.ndarray
    same_p: np.ndarray
    looks_like: np.ndarray


def examine_classes(
    rows: Float[Tensor, "N D"],
    codes: np.ndarray,
    kept: np.ndarray,
    other_class: np.ndarray,
    num_classes: int,
    seed: int = 0,
) -> ClassFindings:
    """Ask both questions of every class.

    Memory O(C x D) and a few thousand values per class.  Random draws depend on class sizes and
    `seed`, and samples are drawn and ordered by their rows alone, so neither renaming classes
    nor reordering samples changes anything; equal rows of several classes go by their order.

    Args:
        rows: of norm 1 or 0.
        codes: (N,) int64 labels.
        kept: (N,) bool, samples to look at.
        other_class: (N,) int64, best class other than the label, -1 for none.
        num_classes: C.
        seed: of the simulated samples and exchanges.
    """
    kept = kept & (rows != 0).any(1).numpy()
    members = by_code(np.where(kept, codes, -1))
    keys = _row_keys(rows, seed)
    sample = {c: m[np.argsort(keys[m], kind="stable")][:_LARGEST] for c, m in members.items()}
    two_score = np.full(num_classes, np.nan)
    draws = _Draws(seed)
    for some in _alike(sample):
        two_score[some] = _two_scores(torch.stack([rows[sample[c]].double() for c in some]), draws)
    # Where a sample lies in the whole, which no turn of the space changes.
    middle = torch.nn.functional.normalize(rows.sum(0, dtype=torch.float64), dim=0)
    ties = np.stack([(rows @ middle.float()).numpy().round(5), keys], 1)[kept]
    nearest = _most_frequent(codes[kept], other_class[kept], ties, num_classes)
    distance, p = _compare(rows, members, sample, keys, nearest, draws)
    is_same = (p > SAME_P) & (distance < SAME_DISTANCE)
    return ClassFindings(
        two_score=two_score,
        looks_like_two=two_score > TWO_SCORE,
        nearest=nearest,
        same_distance=distance,
        same_p=p,
        looks_like=_mutual(is_same, nearest, distance),
    )


class _Draws:
    """Random numbers that depend on the seed and on sizes only."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._normals = torch.empty(0, 0, 0)

    def normals(self, n: int) -> Tensor:
        """(simulations, n, n) standard normal; the latest is kept, as sizes come in order."""
        if self._normals.shape[1] != n:
            rng = np.random.default_rng([self.seed, n, 1])
            self._normals = torch.from_numpy(rng.standard_normal((_SIMULATIONS, n, n)))
        return self._normals

    def exchanges(self, n: int, m: int) -> Tensor:
        """(1 + exchanges, n + m) of 0 and 1, n ones each; the first row is the given order."""
        rng = np.random.default_rng([self.seed, n, m, 2])
        first = np.arange(n + m) < n
        shuffled = [rng.permutation(first) for _ in range(_EXCHANGES)]
        return torch.from_numpy(np.stack([first, *shuffled])).double()


# --- two ------------------------------------------------------------------------------------------


def _alike(sample: dict[int, np.ndarray]) -> Iterator[list[int]]:
    """Classes of equally many samples, enough to split, some at a time."""
    sizes = by_code(np.array([len(sample.get(c, ())) for c in range(max(sample, default=-1) + 1)]))
    for size, classes in sizes.items():
        if size >= _FEWEST_TO_SPLIT:
            step = max(1, _SIMULATED_VALUES // (_SIMULATIONS * size * size))
            for start in range(0, len(classes), step):
                yield classes[start : start + step].tolist()


def _two_scores(rows: Float[Tensor, "K n D"], draws: _Draws) -> np.ndarray:
    """`two_score` of the samples of K classes; -inf where there is nothing to split."""
    centred = rows - rows.mean(1, keepdim=True)
    gram = centred @ centred.mT
    share, half = _two_means(gram)
    smaller = torch.minimum(half.sum(1), (~half).sum(1))
    splits = smaller >= max(_FEWEST_IN_HALF, _SMALLEST_HALF * rows.shape[1])
    splits &= gram.diagonal(dim1=1, dim2=2).sum(1) >= 1e-9  # not all equal
    score = torch.full((len(rows),), -torch.inf, dtype=torch.float64)
    # A few simulations tell that a class is far from looking like two, as nearly all are.
    for simulations, least in ((_FEW_SIMULATIONS, -torch.inf), (_SIMULATIONS, _NEARLY_TWO)):
        some = splits & (score >= least)
        if some.any():
            normals = draws.normals(rows.shape[1])[:simulations]
            score[some] = _score(share[some], gram[some], normals)
    return score.numpy()


def _score(
    share: Float[Tensor, " K"], gram: Float[Tensor, "K n n"], normals: Float[Tensor, "S n n"]
) -> Float[Tensor, " K"]:
    """By how many deviations the share exceeds that of Gaussian samples of the same covariance."""
    spread = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt()
    simulated = normals * spread[:, None, None]  # (K, S, n, n)
    simulated = simulated - simulated.mean(2, keepdim=True)
    usual = _two_means((simulated @ simulated.mT).flatten(0, 1))[0].view(len(gram), -1)
    return (share - usual.mean(1)) / usual.std(1).clamp_min(1e-12)


def _two_means(gram: Float[Tensor, "S n n"]) -> tuple[Float[Tensor, " S"], Tensor]:
    """Best 2-means of S centred sets given by inner products: share of scatter between, halves.

    Lloyd's algorithm from the median splits along the first two principal directions.
    """
    directions = _principal_two(gram)
    best = torch.full((len(gram),), -1.0, dtype=gram.dtype)
    halves = torch.zeros(gram.shape[:2], dtype=torch.bool)
    for axis in (1, 0):
        score = directions[..., axis]
        # An eigenvector's sign is arbitrary, and with an odd number one side has one more.
        score = torch.where((score**3).sum(1, keepdim=True) < 0, -score, score)
        half = score > score.median(1, keepdim=True).values
        for _ in range(30):
            moved = _closer_to_first(gram, half)
            if torch.equal(moved, half):
                break
            half = moved
        between = _between(gram, half) + _between(gram, ~half)
        better = between > best
        best = torch.where(better, between, best)
        halves = torch.where(better[:, None], half, halves)
    total = gram.diagonal(dim1=1, dim2=2).sum(1)
    return best / total.clamp_min(1e-300), halves


def _principal_two(gram: Float[Tensor, "S n n"]) -> Float[Tensor, "S n 2"]:
    """The eigenvectors of the two largest eigenvalues, the larger last."""
    n = gram.shape[1]
    if n < _LARGE:
        return torch.linalg.eigh(gram).eigenvectors[..., -2:]
    # Of large ones the two alone cost less than half.
    found = [
        eigh(one, subset_by_index=(n - 2, n - 1), check_finite=False)[1] for one in gram.numpy()
    ]
    return torch.from_numpy(np.stack(found))


def _closer_to_first(gram: Tensor, half: Tensor) -> Tensor:
    """Samples nearer to the mean of `half` than to the mean of the rest; never all or none."""
    distances = []
    for side in (half, ~half):
        share = side.double() / side.sum(1, keepdim=True).clamp_min(1)
        towards = (gram @ share[..., None])[..., 0]
        distances.append((share * towards).sum(1, keepdim=True) - 2 * towards)
    moved = distances[0] < distances[1]
    one_sided = moved.all(1) | ~moved.any(1)
    return torch.where(one_sided[:, None], half, moved)


def _between(gram: Tensor, side: Tensor) -> Tensor:
    """n |mean|^2 of one side, the overall mean being 0."""
    ones = side.double()
    return (ones * (gram @ ones[..., None])[..., 0]).sum(1) / ones.sum(1).clamp_min(1)


# --- same -----------------------------------------------------------------------------------------


def _most_frequent(
    codes: np.ndarray, other: np.ndarray, keys: np.ndarray, num_classes: int
) -> np.ndarray:
    """Return (C,) the most frequent other class of each class; a tie goes by the lowest keys.

    Args:
        codes: (M,) int64 labels.
        other: (M,) int64, -1 for none.
        keys: (M, K), of which the first decides, and where that is equal the next.
        num_classes: C.
    """
    judged_rows = np.flatnonzero(other >= 0)
    voted = codes[judged_rows] * num_classes + other[judged_rows]
    pair, place, votes = np.unique(voted, return_inverse=True, return_counts=True)
    lowest = np.full((len(pair), keys.shape[1]), np.inf)
    np.minimum.at(lowest, place.reshape(-1), keys[judged_rows])
    order = np.lexsort((*lowest.T[::-1], -votes, pair // num_classes))
    owner = pair[order] // num_classes
    classes, start = np.unique(owner, return_index=True)
    nearest = np.full(num_classes, -1, np.int64)
    nearest[classes] = pair[order][start] % num_classes
    return nearest


def _compare(
    rows: Tensor,
    members: dict[int, np.ndarray],
    sample: dict[int, np.ndarray],
    keys: np.ndarray,
    nearest: np.ndarray,
    draws: _Draws,
) -> tuple[np.ndarray, np.ndarray]:
    """(C,) relative distance to the nearest class, and the share of exchanges as good."""
    sums = {c: rows[m].double().sum(0) for c, m in members.items() if len(m) >= _FEWEST_TO_COMPARE}
    distance, p = np.full(len(nearest), np.nan), np.full(len(nearest), np.nan)
    for c in sums:
        k = int(nearest[c])
        if k in sums:
            distance[c] = _distance(sums[c], len(members[c]), sums[k], len(members[k]))
    if np.isnan(distance).all():
        return distance, p
    p[~np.isnan(distance)] = 0.0
    distance /= max(np.nanmedian(distance), 1e-12)
    for c in np.flatnonzero(distance < SAME_DISTANCE).tolist():
        # An order that no name decides, so that (c, k) and (k, c) get the same answer.
        first, second = sorted(
            (sample[c], sample[int(nearest[c])]), key=lambda some: (len(some), keys[some[0]])
        )
        p[c] = _exchange_p(rows, first, second, draws)
    return distance, p


def _distance(sum_c: Tensor, n: int, sum_k: Tensor, m: int) -> float:
    """D of two sets of n and m rows of norm 1, from their sums."""
    within = (sum_c @ sum_c - n) / (n * (n - 1)) + (sum_k @ sum_k - m) / (m * (m - 1))
    return float(within - 2 * (sum_c @ sum_k) / (n * m))


def _exchange_p(rows: Tensor, first: np.ndarray, second: np.ndarray, draws: _Draws) -> float:
    """Share of exchanges, the given one included, whose D is at least the given one's."""
    n, m = len(first), len(second)
    pooled = rows[np.concatenate([first, second])].double()
    gram = pooled @ pooled.T
    inside = draws.exchanges(n, m)
    outside = 1 - inside
    towards = inside @ gram
    within = (towards * inside).sum(1), ((outside @ gram) * outside).sum(1)
    separation = (
        (within[0] - n) / (n * (n - 1))
        + (within[1] - m) / (m * (m - 1))
        - 2 * (towards * outside).sum(1) / (n * m)
    )
    return float((separation >= separation[0] - 1e-12).double().mean())


def _mutual(is_same: np.ndarray, nearest: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Return (C,) the class that each class looks like, made symmetric."""
    looks_like = np.where(is_same, nearest, -1)
    classes = np.flatnonzero(is_same)
    for c in classes[np.argsort(distance[classes], kind="stable")].tolist():
        k = int(nearest[c])
        if looks_like[k] < 0:
            looks_like[k] = c
    return looks_like
