"""The automatic curriculum: weights from label p-values, with no noise rate and no age to choose.

A label may only be judged by an embedding that was not trained on it.  Features of a pretrained
backbone satisfy that for free (`warmup="features"`).  A network trained from scratch does not: it
pulls each sample towards its wrong class, and the estimated rate decays.  So the warm-up is
cross-fitted (`warmup="cross-fit"`):

    half A     train on a random half A; judge half B against A, estimate the noise rate
    half B     re-initialise the network, train on what B keeps; judge half A against that
    weights    train on both; update every round, the noise rate held at the honest estimate

Why a sample gets weight 0 under rule="threshold" (`_keep_smallest`): of the samples judged in this
step (all, or one half of a cross-fit) the share 1 - noise rate with the smallest p-values is kept,
ties by difficulty, and this one is not among them.  Its p-value is the share of random wrong labels
that would fit as well: large where the sample is hardly more similar to its class than to everyone
(the difficulty d of `bspml.statistics.contrastive`).  The noise rate is that of the first estimate,
.95 at most.  A sample that nothing can be compared with keeps weight 1, and what the user decided
stays whatever its p-value.  Of a run, `suspects.json` and the page hold the p-values, and
`records.jsonl` the noise rate.  Under rule="quadratic" see `bspml.weights.problem`.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from bspml.distributed.main_rank import solved_once
from bspml.errors import CheckpointError, InputError
from bspml.statistics.contrastive import ContrastiveStatistics
from bspml.statistics.noise_rate import (
    ALIKE,
    best_fitting,
    estimate_noise,
    label_p_values,
    why_unjudgeable,
)
from bspml.trainers.curriculum.search import StatisticsSearch
from bspml.trainers.settings import AutoSettings
from bspml.weights.age import age_for_maw
from bspml.weights.state import SampleWeights

_LARGEST_RATE = 0.95


class AutomaticUpdate:
    """Find weights such that the share 1 - noise rate of the labels is kept.

    rule="threshold" keeps the labels with the smallest p-values.  rule="quadratic" solves the
    paper's problem, eq. (6), with the contrastive statistics in place of its own and the age
    found by bisection for MAW = 1 - noise rate.
    """

    def __init__(self, weights: SampleWeights, settings: AutoSettings, seed: int) -> None:
        self.weights, self.settings, self.warmup = weights, settings, settings.warmup
        self.search = StatisticsSearch(settings.search, settings.statistics_error)
        self.phase = "half A" if self.warmup == "cross-fit" else "features"
        self.rounds_in_phase = 0
        self.in_half_a = _random_half(self.codes, seed)
        self.noise_rate: float | None = None
        self.interval: tuple[float, float] | None = None
        self.p_values: Tensor | None = None
        self.rows_were_read = False

    @property
    def codes(self) -> Tensor:
        """Return the (N,) class codes on the CPU."""
        return self.weights.codes.cpu()

    def training_rows(self) -> Tensor | None:
        """Return (N,) bool, the rows that the next round may train on; None for all."""
        self.rows_were_read = True
        positive = self.weights.weights.cpu() > 0
        half = self.allowed_rows()
        return positive if half is None else positive & half

    def allowed_rows(self) -> Tensor | None:
        """Return (N,) bool, the half that the network may see in this phase; None for both."""
        if self.phase in ("half A", "half B"):
            return self.in_half_a if self.phase == "half A" else ~self.in_half_a
        return None

    @property
    def rounds_to_reset(self) -> int | None:
        """Return how many updates are left on this half, if the network starts afresh then."""
        if self.phase == "half A" or (self.phase == "half B" and self.settings.reset):
            return self.settings.warmup_rounds - self.rounds_in_phase
        return None

    def update(self, embeddings: Tensor) -> dict[str, Any]:
        """Judge, weigh, move to the next phase, and return the record's fields."""
        phase = self.phase
        if phase not in ("half A", "half B"):
            fields, everyone = {"phase": phase}, torch.ones(len(self.weights), dtype=torch.bool)
            # Two rounds before the first step: the second under the weights just found.
            for _ in range(2 if phase == "features" else 1):
                fields |= self._judge(embeddings, self.weights.weights.cpu().double(), everyone)
            self._enter("weights")
            return fields
        if not self.rows_were_read:
            raise InputError(
                'warmup="cross-fit" judges each half by a network trained on the other: train '
                "only on the rows of `curriculum.training_rows()` before each update, or use "
                'warmup="features" with embeddings of a pretrained backbone.'
            )
        self.rounds_in_phase += 1
        if self.rounds_in_phase < self.settings.warmup_rounds:
            self.rows_were_read = False
            return {"phase": f"{phase}, waiting", "noise_rate": self.noise_rate}
        trained_on = self.in_half_a if phase == "half A" else ~self.in_half_a
        reference = self.weights.weights.cpu().double() * trained_on
        fields = self._judge(embeddings, reference, judged=~trained_on)
        self._enter("half B" if phase == "half A" else "weights")
        # Half A may only be judged by a network that never saw it, so the first reset is a must.
        reset = phase == "half A" or self.settings.reset
        return fields | {"phase": phase, "reset_model": reset}

    def _enter(self, phase: str) -> None:
        self.phase, self.rounds_in_phase, self.rows_were_read = phase, 0, False

    def _judge(self, embeddings: Tensor, reference: Tensor, judged: Tensor) -> dict[str, Any]:
        """Weigh the rows `judged` by their fit to the rows of positive `reference` weight."""
        start = time.perf_counter()
        rows = None if bool(judged.all()) else judged.nonzero()[:, 0]
        stats = self.search.contrastive_statistics(embeddings, self.codes, reference, rows)
        solving = time.perf_counter()
        fields = solved_once(self, lambda: self._weigh(stats, judged))
        return fields | {
            "seconds_statistics": solving - start,
            "seconds_solve": time.perf_counter() - solving,
        }

    def _weigh(self, stats: ContrastiveStatistics, judged: Tensor) -> dict[str, Any]:
        """Find the weights of the rows `judged` and write them."""
        p_values = label_p_values(stats)
        if self.noise_rate is None:
            if why_unjudgeable(stats) == ALIKE:
                raise InputError(f"no label could be judged: {ALIKE}")
            estimate = estimate_noise(stats)
            # Held from here on: an estimate from statistics under its own weights feeds on itself.
            # With nothing kept there would be nothing left to judge by.
            self.noise_rate = min(estimate.noise_rate, _LARGEST_RATE)
            self.interval = estimate.interval
        testable = stats.testable & judged
        new = self.weights.weights.cpu().double().clone()
        new[judged] = 1.0  # what cannot be judged keeps weight 1
        fields: dict[str, Any] = {}
        if not testable.any():
            pass
        elif self.settings.rule == "threshold":
            new[testable] = self._keep_smallest(p_values, stats.difficulty, testable)
        else:
            new[testable], fields = self._solve_quadratic(stats, testable)
        self._check_left(new, judged)
        self._remember(p_values, testable)
        self.weights.update(new)
        return fields | {
            "noise_rate": self.noise_rate,
            "noise_interval": self.interval,
            "num_untestable": int((judged & ~stats.testable).sum()),
        }

    def _check_left(self, new: Tensor, judged: Tensor) -> None:
        """Labels are judged by comparing classes: at least two must keep a sample."""
        left = self.codes[judged & (new > 0)].unique()
        if len(left) < 2:
            raise InputError(
                f"the embeddings fit hardly any label better than a random one (estimated noise "
                f"rate {self.noise_rate:.2f}): {len(left)} classes would keep a sample, and two "
                "are needed to judge by. Are the embeddings collapsed, or the labels shuffled?"
            )

    def _keep_smallest(self, p_values: Tensor, difficulty: Tensor, testable: Tensor) -> Tensor:
        """1 for the share 1 - noise rate of the testable rows whose labels fit best, else 0.

        Weights that are fixed count in that share and stay as they are.
        """
        assert self.noise_rate is not None
        p = p_values[testable].clone()
        # What the user decided takes its place at the two ends, whatever its p-value.
        decided, before = self.weights.fixed.cpu()[testable], self.weights.weights.cpu()[testable]
        p[decided] = torch.where(before[decided] > 0, -1.0, 2.0).to(p)
        return best_fitting(p, difficulty[testable], 1 - self.noise_rate).double()

    def _solve_quadratic(
        self, stats: ContrastiveStatistics, testable: Tensor
    ) -> tuple[Tensor, dict[str, Any]]:
        """Eq. (6) with xi_pos = -s_i(y_i), xi_neg = t_i, each shifted to a minimum of 0."""
        assert self.noise_rate is not None
        xi_pos, xi_neg = -stats.own[testable], stats.everyone[testable]
        search = age_for_maw(
            xi_pos - xi_pos.min(),
            xi_neg - xi_neg.min(),
            self.codes[testable],
            self.settings.balance,
            1 - self.noise_rate,
        )
        return search.solution.weights, {
            "age": search.age,
            "objective_after": search.solution.objective,
            "stationarity": search.solution.stationarity,
            "status": search.solution.status,
            "message": search.solution.message,
        }

    def _remember(self, p_values: Tensor, testable: Tensor) -> None:
        if self.p_values is None:
            self.p_values = torch.full((len(self.weights),), float("nan"), dtype=torch.float64)
        self.p_values[testable] = p_values[testable]

    def scores(self) -> Tensor | None:
        """Return (N,) p-values, NaN where no honest judgement exists yet; None before the first."""
        return self.p_values

    def state_dict(self) -> dict[str, Any]:
        """Return phase, halves and the held estimate, as plain values and tensors."""
        return {
            "phase": self.phase,
            "rounds_in_phase": self.rounds_in_phase,
            "rows_were_read": self.rows_were_read,
            "in_half_a": self.in_half_a,
            "noise_rate": self.noise_rate,
            "interval": None if self.interval is None else list(self.interval),
            "p_values": None if self.p_values is None else self.p_values.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned, if it fits these weights."""
        if len(state["in_half_a"]) != len(self.weights):
            raise CheckpointError(
                f"the curriculum was saved for {len(state['in_half_a'])} samples; these weights "
                f"hold {len(self.weights)}. Resume with the same data set."
            )
        rate, p_values = state["noise_rate"], state["p_values"]
        if (
            state["phase"] not in ("half A", "half B", "features", "weights")
            or state["in_half_a"].dtype != torch.bool
            or not (rate is None or 0 <= rate <= 1)
            or not (p_values is None or p_values.shape == state["in_half_a"].shape)
        ):
            raise CheckpointError(
                "the saved curriculum has an unknown phase, or numbers that no curriculum has. "
                "Was the checkpoint edited? Start the run anew."
            )
        self._enter(state["phase"])
        self.rounds_in_phase = state["rounds_in_phase"]
        self.rows_were_read = state["rows_were_read"]
        self.in_half_a = state["in_half_a"]
        self.noise_rate = state["noise_rate"]
        self.interval = None if state["interval"] is None else tuple(state["interval"])
        self.p_values = state["p_values"]


def _random_half(codes: Tensor, seed: int) -> Tensor:
    """(N,) bool, a random half of every class, so that each class can be judged by the other."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.rand(len(codes), generator=generator, dtype=torch.float64)
    order = torch.argsort(codes + keys)  # by class, at random within it
    # Alternating along the whole order balances odd classes against each other.
    half = torch.zeros(len(codes), dtype=torch.bool)
    half[order[::2]] = True
    return half
