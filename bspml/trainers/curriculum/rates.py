"""The rates of wrong labels that a curriculum holds: those of its first honest estimate.

They are those of labels that nobody had decided on by then, and so is the share that is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bspml.errors import CheckpointError
from bspml.shapes import Bool, Tensor
from bspml.statistics.contrastive import ContrastiveStatistics
from bspml.statistics.label_errors import LabelErrors
from bspml.statistics.label_shares import widened
from bspml.statistics.noise_rate import estimate_noise
from bspml.trainers.curriculum.samples import Samples
from bspml.weights.state import SampleWeights

LARGEST_RATE = 0.95  # with nothing kept there would be nothing left to judge by

Interval = tuple[float, float] | None


@dataclass(frozen=True)
class HeldRates:
    """Shares of wrong labels, each None until it was estimated.

    Attributes:
        noise_rate: wrong at random.
        noise_interval: its 95 % interval.
        total_rate: confusions included; None where `noise_rate` is held, for want of more.
        total_interval: its 95 % interval.
        apart: share of all labels that these leave out, as copies of the sample have another label
            or a person decided.
        apart_wrong: share of all labels that is wrong among those.
        undecided: (N,) bool, whose labels nobody had decided on at the estimate: of these a share
            is left out, also of those that are decided later; None of a state that has none: all.

    Example:
        >>> HeldRates(0.1, (0.0, 0.2), 0.3, (0.2, 0.4)).mostly_confused
        True
    """

    noise_rate: float | None = None
    noise_interval: Interval = None
    total_rate: float | None = None
    total_interval: Interval = None
    apart: float = 0.0
    apart_wrong: float = 0.0
    undecided: Bool[Tensor, " N"] | None = field(default=None, compare=False)

    def read_now(self, samples: Samples, weights: SampleWeights) -> HeldRates:
        """Return them as those of the labels that nobody has decided on by now.

        Args:
            samples: that are judged.
            weights: of all N.
        """
        apart, wrong = samples.apart(weights)
        return replace(self, apart=apart, apart_wrong=wrong, undecided=~samples.decided(weights))

    def absent(self, samples: Samples, weights: SampleWeights) -> Bool[Tensor, " M"]:
        """Return what was decided to be wrong before the estimate: nothing of it is looked at.

        Args:
            samples: that are judged.
            weights: of all N.
        """
        decided = samples.decided_wrong(weights)
        return decided if self == HeldRates() else decided & ~samples.among(self.undecided)

    def estimated(self, stats: ContrastiveStatistics, samples: Samples) -> HeldRates:
        """Return them with the rate of labels wrong at random.

        Args:
            stats: of an embedding that was not trained on the labels.
            samples: of which they are.
        """
        estimate = estimate_noise(samples.told(stats, self.undecided))
        rate = min(estimate.noise_rate, LARGEST_RATE)
        return replace(self, noise_rate=rate, noise_interval=estimate.interval)

    def with_total(self, errors: LabelErrors, gone: float = 0.0) -> HeldRates:
        """Return them with the rate of all wrong labels.

        Args:
            errors: of the labels that could be judged.
            gone: share of the labels that could not be: of classes that are left out as a whole.
        """
        rate, low, high = (x * (1 - gone) + gone for x in (errors.rate, *errors.interval))
        return replace(self, total_rate=rate, total_interval=(low, high))

    def widened(self, samples: Samples) -> HeldRates:
        """Return them with an interval of the total as wide as an audit's.

        Args:
            samples: that were judged.
        """
        interval, by_null = self.total_interval, self.noise_interval
        if interval is None or by_null is None:
            return self
        sizes = samples.codes[samples.reference > 0].unique(return_counts=True)[1]
        return replace(self, total_interval=widened(interval, by_null, sizes.numpy()))

    @property
    def held(self) -> float:
        """Return the share of labels to leave out."""
        rate = self.noise_rate if self.total_rate is None else self.total_rate
        assert rate is not None
        return min(rate, LARGEST_RATE)

    @property
    def mostly_confused(self) -> bool:
        """Say whether more labels are confused with a similar class than wrong at random."""
        if self.total_rate is None or self.noise_rate is None:
            return False
        return self.total_rate > 2 * self.noise_rate

    def fields(self) -> dict[str, Any]:
        """Return the fields of a `CurriculumRecord` about them: rates of all labels."""

        def of_all(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(of_all, value))
            return None if value is None else value * (1 - self.apart) + self.apart_wrong

        names = "noise_rate", "noise_interval", "total_rate", "total_interval"
        return {name: of_all(getattr(self, name)) for name in names}

    def state_dict(self) -> dict[str, Any]:
        """Return them as plain values."""
        return {
            "noise_rate": self.noise_rate,
            "interval": None if self.noise_interval is None else list(self.noise_interval),
            "total_rate": self.total_rate,
            "total_interval": None if self.total_interval is None else list(self.total_interval),
            "apart": [self.apart, self.apart_wrong],
            "undecided": self.undecided,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> HeldRates:
        """Return what `state_dict` saved.

        Args:
            state: of a curriculum; those before the label model have no total.

        Raises:
            CheckpointError: a number outside [0, 1].
        """
        rates = state["noise_rate"], state.get("total_rate")
        ends = state["interval"], state.get("total_interval")
        intervals = [None if pair is None else (pair[0], pair[1]) for pair in ends]
        apart, apart_wrong = state.get("apart", [0.0, 0.0])
        numbers = [*rates, apart, apart_wrong, *(end for pair in intervals for end in pair or ())]
        undecided = state.get("undecided")
        masks = undecided, state.get("in_half_a")  # of the same samples
        kinds = [(getattr(mask, "dtype", None), getattr(mask, "shape", None)) for mask in masks]
        fits = undecided is None or kinds[0] == kinds[1]
        if not fits or not all(number is None or 0 <= number <= 1 for number in numbers):
            raise CheckpointError(
                "the saved curriculum has numbers that no curriculum has. Was the checkpoint "
                "edited? Start the run anew."
            )
        return cls(rates[0], intervals[0], rates[1], intervals[1], apart, apart_wrong, undecided)
