"""Wrong regression targets: a share of them replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bspml.data.noise.rates import as_decimal
from bspml.errors import InputError
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import as_numbers, check_choice, check_number, check_whole, some_of

_DTYPES = (torch.float16, torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class NoisyTargets:
    """Regression targets with known mistakes.

    Attributes:
        targets: (N,) given targets, some wrong: array, or tensor if a tensor came in.
        true_targets: (N,) the targets that came in.
        is_noisy: (N,) bool, which of `targets` differ from the truth.
        rate: the noise rate asked for, in [0, 1].
    """

    targets: Any
    true_targets: Any
    is_noisy: Any
    rate: float

    @property
    def actual_rate(self) -> float:
        """The share of wrong targets."""
        flags = self.is_noisy
        return float(np.mean(flags.cpu().numpy() if isinstance(flags, Tensor) else flags))


def targets(
    targets: Any,
    rate: Any,
    seed: Any = 0,
    kind: str = "uniform",
    low: Any = None,
    high: Any = None,
    keep_original: bool = False,
    exact: bool = True,
) -> NoisyTargets:
    """Replace round(rate * N) of the targets by random other ones.

    [Castells 2020], supplement table 1 and 2, trains digit and age regression under such noise, 0
    to 80 %; the supplement does not print the distribution of the new targets.

    Args:
        targets: (N,) integers or floats, finite.
        rate: share of wrong targets, in [0, 1].
        seed: of the draw.
        kind: "uniform": anything from `low` to `high`; whole numbers, both ends included, if the
            targets are integers.  "resample": the target of another sample drawn at random, so
            that frequent values stay frequent.
        low: lower end of "uniform"; None: the smallest target.
        high: upper end of "uniform"; None: the largest target.
        keep_original: True lets a replaced target be the original one, as in `symmetric`.
        exact: False draws each sample with probability `rate`.

    Raises:
        InputError: NaN or infinite targets, fewer than two values to choose from, `low` or `high`
            with "resample", rate outside [0, 1].

    Example:
        >>> noisy = targets(np.arange(10), rate=0.3)
        >>> int(noisy.is_noisy.sum()), int((noisy.targets != noisy.true_targets).sum())
        (3, 3)
    """
    check_flags(keep_original=keep_original, exact=exact)
    true = _checked_targets(targets)
    number = check_number(rate, "rate", 0.0, 1.0)
    draw = np.random.default_rng(check_whole(seed, "seed", low=0))
    check_choice(kind, "kind", ("uniform", "resample"))
    if kind == "resample":
        if low is not None or high is not None:
            raise InputError(
                '`low` and `high` go with kind "uniform"; "resample" has the range of `targets`.'
            )
        propose = _resampled(true, draw, keep_original)
    else:
        propose = _uniform(true, draw, low, high, keep_original)
    if exact:
        rows = np.sort(draw.permutation(len(true))[: round(as_decimal(rate) * len(true))])
    else:
        rows = np.flatnonzero(draw.random(len(true)) < number)
    noisy = true.copy()
    noisy[rows] = propose(rows)
    return _as_came(targets, noisy, true, number)


# (R,) rows to their (R,) new targets.
_Proposal = Callable[[np.ndarray], np.ndarray]


def _uniform(
    true: np.ndarray, draw: np.random.Generator, low: Any, high: Any, keep_original: bool
) -> _Proposal:
    ends = [_end(low, "low", true, true.min()), _end(high, "high", true, true.max())]
    if not ends[0] < ends[1]:
        raise InputError(
            f"`low` must be below `high`; got {ends[0]} and {ends[1]}. "
            "They default to the smallest and the largest target."
        )
    if true.dtype.kind in "iu":
        whole_ends = int(ends[0]), int(ends[1])
        return lambda rows: _whole_numbers(true[rows], draw, *whole_ends, keep_original)
    # The dtype can represent both ends, so rounding to it stays inside.
    first, last = float(ends[0]), float(ends[1])
    if last - first == np.inf:
        raise InputError(
            f"`targets` from {first:g} to {last:g} span more than a float holds; scale them down."
        )

    def propose(rows: np.ndarray) -> np.ndarray:
        values = draw.uniform(first, last, len(rows)).astype(true.dtype)
        # Half precision has few values, so the own one does come up.
        while not keep_original and (unchanged := values == true[rows]).any():
            values[unchanged] = draw.uniform(first, last, int(unchanged.sum())).astype(true.dtype)
        return values

    return propose


def _whole_numbers(
    own: np.ndarray, draw: np.random.Generator, first: int, last: int, keep_original: bool
) -> np.ndarray:
    """One of first..last for each sample, except its own."""
    kind: Any = np.int64 if last <= np.iinfo(np.int64).max else np.uint64
    if keep_original:
        return draw.integers(first, last, len(own), kind, endpoint=True)
    inside = (own >= first) & (own <= last)
    values = draw.integers(first, last - inside.astype(kind), dtype=kind, endpoint=True)
    return values + (inside & (values >= own))


def _resampled(true: np.ndarray, draw: np.random.Generator, keep_original: bool) -> _Proposal:
    values = np.sort(true)
    if values[0] == values[-1]:
        raise InputError(f"`targets` must differ, to be wrong; all are {values[0]}.")

    def propose(rows: np.ndarray) -> np.ndarray:
        if keep_original:
            return values[draw.integers(0, len(values), len(rows))]
        # Among the sorted targets, the equal ones are a block: it is left out.
        begin = np.searchsorted(values, true[rows], side="left")
        end = np.searchsorted(values, true[rows], side="right")
        place = draw.integers(0, len(values) - (end - begin))
        return values[np.where(place >= begin, place + (end - begin), place)]

    return propose


def _end(value: Any, name: str, true: np.ndarray, default: Any) -> Any:
    """`low` or `high` in the dtype of the targets."""
    if value is None:
        return default
    number = check_number(value, name)
    if true.dtype.kind == "f":
        with np.errstate(over="ignore"):
            end = true.dtype.type(number)
        if not np.isfinite(end):
            raise InputError(f"`{name}` must fit {true.dtype}; got {number:g}.")
        return end
    limits = np.iinfo(true.dtype)
    if number != int(number) or not limits.min <= number <= limits.max:
        raise InputError(
            f"`{name}` must be a whole number that fits {true.dtype}, as the targets; "
            f"got {number:g}. Or pass the targets as floats."
        )
    return true.dtype.type(int(number))


def _checked_targets(values: Any) -> np.ndarray:
    """(N,) numbers in an array of their own."""
    numbers = as_numbers(
        values, "targets", "(N,) integers or floats", "Pass one number per sample."
    ).detach()
    if numbers.ndim != 1 or len(numbers) == 0 or numbers.dtype == torch.bool:
        raise InputError(
            f"`targets` must be (N,) integers or floats, N at least 1; got shape "
            f"{tuple(numbers.shape)} of {numbers.dtype}."
        )
    if numbers.is_floating_point() and numbers.dtype not in _DTYPES:  # unknown to numpy
        raise InputError(f"`targets` must be floats of 16, 32 or 64 bits; got {numbers.dtype}.")
    array = numbers.cpu().numpy().copy()
    rows = np.flatnonzero(~np.isfinite(array))
    if len(rows):
        raise InputError(f"`targets` must be finite; rows {some_of(rows)} hold NaN or infinity.")
    return array


def _as_came(targets: Any, values: np.ndarray, true: np.ndarray, rate: float) -> NoisyTargets:
    """The result, of the kind and on the device that the targets came in."""
    noisy = values != true
    if not isinstance(targets, Tensor):
        return NoisyTargets(values, true, noisy, rate)
    tensors = [torch.from_numpy(array).to(targets.device) for array in (values, true, noisy)]
    return NoisyTargets(tensors[0], tensors[1], tensors[2], rate)
