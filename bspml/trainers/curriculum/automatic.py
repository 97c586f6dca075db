"""The automatic curriculum: weights from how well labels fit, with no noise rate to choose.

A label may only be judged by an embedding that was not trained on it.  Features of a pretrained
backbone satisfy that for free (`warmup="features"`).  A network trained from scratch does not: it
pulls each sample towards its wrong class, and the estimated rate decays.  So the warm-up is
cross-fitted (`warmup="cross-fit"`):

    half A     train on a random half A; judge half B against A, estimate the noise rate
    half B     re-initialise the network, train on what B keeps; judge half A against that
    weights    re-initialise, train on what is kept; update every round, in the first two passes
               by what this network finds (`second_judgement`), then with that share left out

Why a sample gets weight 0 under rule="threshold" (`_keep_smallest`): of the samples judged in this
step (all, or one half of a cross-fit) the share 1 - held rate whose labels fit best is kept, ties
by difficulty, and this one is not among them.  Two judges tell how well a label fits:

    the random null   its p-value, the share of random wrong labels that would fit as well: large
                      where the sample is hardly more similar to its class than to everyone (the
                      difficulty d of `bspml.statistics.contrastive`).  Blind to confusions between
                      similar classes
    the label model   its odds of being wrong, confusions included, as an audit has them
                      (`bspml.statistics.label_errors`)

    phase             errors mostly random: ranks, held      mostly confusions: ranks, held
    features          label model, its rate                  label model, its rate
    half A, half B    p-value, rate of the null              label model, its rate (`half_trained`)
    the first passes  label model, its rate                  margin of the discriminant, the same
    after two passes  label model, its rate                  label model, its rate
    later             p-value, that share left out           margin, that share left out

"Mostly confusions" is where the label model's rate held is above twice that of the null.  In later
rounds the network has seen the labels it kept; the left-out discriminant still tells a similar
class from the right one, where p-values do not (docs/benchmarks.md).  Rates are .95 at most.

A sample that nothing can be compared with keeps the weight it has: a class that lost its last label
stays out and counts in the share, until a second judgement compares its labels with each other.
What the user decided stays whatever speaks against it.  With statistics by neighbours, below ten
labels, and where the label model's rate lies below the null's interval, the null alone judges.
Embeddings that do not tell the classes apart judge nobody (`blind`), and copies count once
(`samples`); the rates that records show are of all labels.  rule="quadratic": `weights.problem`.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

from bspml.distributed.main_rank import solved_once
from bspml.errors import CheckpointError, InputError
from bspml.statistics.contrastive import ContrastiveStatistics
from bspml.statistics.label_errors import LabelErrors, judge_labels
from bspml.statistics.margins import label_margins
from bspml.statistics.noise_rate import ALIKE, best_fitting, label_p_values, why_unjudgeable
from bspml.statistics.tail_count import FEWEST_LABELS
from bspml.tensors.checks import check_whole
from bspml.trainers.curriculum.blind import check_left, not_judged, tell_apart
from bspml.trainers.curriculum.halves import random_half
from bspml.trainers.curriculum.pace import Pace, num_changed
from bspml.trainers.curriculum.quadratic import quadratic_weights
from bspml.trainers.curriculum.rates import HeldRates
from bspml.trainers.curriculum.samples import Samples, find_copies
from bspml.trainers.curriculum.search import StatisticsSearch
from bspml.trainers.curriculum.second_judgement import (
    SecondJudgement,
    surely_right,
    with_lost_classes,
)
from bspml.trainers.settings import AutoSettings
from bspml.trainers.state import are_p_values, is_grouping
from bspml.weights.state import SampleWeights


class AutomaticUpdate:
    """Find weights such that the share 1 - held rate of the labels is kept.

    rule="threshold" keeps the labels that fit best.  rule="quadratic" solves the paper's problem,
    eq. (6), with the contrastive statistics in place of its own and the age found by bisection for
    MAW = 1 - held rate.
    """

    def __init__(
        self, weights: SampleWeights, settings: AutoSettings, seed: int, group: Tensor | None = None
    ) -> None:
        self.weights, self.settings, self.warmup = weights, settings, settings.warmup
        self.search = StatisticsSearch(settings.search, settings.statistics_error)
        self.phase = "half A" if self.warmup == "cross-fit" else "features"
        self.rounds_in_phase = 0
        self.pace, self.rates = Pace(settings.judge_every), HeldRates()
        self.group, self.in_half_a = group, random_half(self.codes, seed, group)
        self.p_values: Tensor | None = None
        self.rows_were_read = False
        self.repairs = settings.repair == "confident"
        untrained = self.warmup == "cross-fit"
        wanted, waits = self.repairs or untrained, self.repairs and untrained
        self.second = SecondJudgement(len(weights), wanted, waits)

    @property
    def codes(self) -> Tensor:
        """Return the (N,) codes of the classes that samples are trained under, on the CPU."""
        return self.weights.current_codes.cpu()

    def training_mask(self) -> Tensor | None:
        """Return (N,) bool, the rows that the next round may train on; None for all."""
        self.rows_were_read = True
        return self._trained_rows()

    def _trained_rows(self) -> Tensor:
        positive, half = self.weights.weights.cpu() > 0, self.allowed_mask()
        return positive if half is None else positive & half

    def allowed_mask(self) -> Tensor | None:
        """Return (N,) bool, the rows that the network may see in this phase; None for all."""
        if self.phase in ("half A", "half B"):
            return self.in_half_a if self.phase == "half A" else ~self.in_half_a
        return None

    @property
    def rounds_to_reset(self) -> int | None:
        """Return how many updates are left on this half, if the network starts afresh then."""
        if self.phase == "half A" or (self.phase == "half B" and self.settings.reset):
            return self.settings.warmup_rounds - self.rounds_in_phase
        return None

    @property
    def needs_embeddings(self) -> bool:
        """Say whether the next update is to judge labels, or to let a round pass."""
        if self.phase != "weights":
            return not self._half_learns_on
        again = self.second.wanted and not self.second.is_done
        return not self.is_blind and (again or self.pace.is_due)

    @property
    def is_blind(self) -> bool:
        """Say whether no honest embedding told the classes apart, and later ones may not judge."""
        return self.phase == "weights" and self.rates == HeldRates()

    @property
    def _is_second(self) -> bool:
        """Whether this judgement is of the second kind: by the label model, of all labels."""
        early = self.second.is_due and not self.rates.mostly_confused
        return self.phase == "weights" and (self.second.is_last or early)

    @property
    def _half_learns_on(self) -> bool:
        halved, done = self.phase in ("half A", "half B"), self.rounds_in_phase + 1
        return halved and done < self.settings.warmup_rounds

    def update(self, embeddings: Tensor | None) -> dict[str, Any]:
        """Judge (None: let a round pass), weigh, go on to the next phase; the record's fields."""
        phase, before = self.phase, self.weights.weights.cpu().clone()
        if phase != "features":
            self._note_training()
        if embeddings is None or self._half_learns_on or self.is_blind:
            fields = self._pass()
        else:
            fields = self._judged_round(embeddings)
            if phase == "weights":
                moved = num_changed(before, self.weights.weights.cpu())
                self.pace.judged(moved / len(before))
        return fields | ({"num_repaired": int(self.weights.repaired.sum())} if self.repairs else {})

    def _note_training(self) -> None:
        """Note which rows the network was trained on in this round."""
        if self.repairs and not self.rows_were_read:
            raise InputError(
                'repair="confident" judges by a network that never saw the suspects\' labels: '
                "train only on the rows of `curriculum.training_mask()` before each update."
            )
        self.second.trained(self._trained_rows(), under_weights=self.phase == "weights")
        self.rows_were_read &= self.phase != "weights"

    def _pass(self) -> dict[str, Any]:
        """Let a round pass without a judgement."""
        if self.phase == "weights":
            self.pace.passed()
        else:
            self._check_rows_were_read()
            self.rounds_in_phase, self.rows_were_read = self.rounds_in_phase + 1, False
        fields = {"phase": f"{self.phase}, waiting"} | self.rates.fields()
        return fields | (not_judged(self.warmup, later=True) if self.is_blind else {})

    def _judged_round(self, embeddings: Tensor) -> dict[str, Any]:
        """Judge and weigh all rows, or one half of them in the warm-up."""
        phase = self.phase
        if phase not in ("half A", "half B"):
            again = "repair" if self.second.is_last and self.repairs else phase
            fields, everyone = {"phase": again}, torch.ones(len(self.weights), dtype=torch.bool)
            kept = self.weights.weights.cpu().double()
            reference = with_lost_classes(kept, self.weights) if self._is_second else kept
            fields |= self._judge(embeddings, reference, everyone)
            self._enter("weights")
            # The label model weighs its references itself; other rules see them weighed now.
            weighed = self.rates.total_rate is not None and self.settings.rule == "threshold"
            if phase == "features" and not (weighed or self.is_blind):
                fields |= self._judge(embeddings, self.weights.weights.cpu().double(), everyone)
            return fields
        self._check_rows_were_read()
        trained_on = self.in_half_a if phase == "half A" else ~self.in_half_a
        reference = self.weights.weights.cpu().double() * trained_on
        fields = self._judge(embeddings, reference, judged=~trained_on)
        # Half A may only be judged by a network that never saw it, so the first reset is a must.
        reset = phase == "half A" or self.settings.reset
        if reset:
            self.second.restarted()
        self._enter("half B" if phase == "half A" else "weights")
        return fields | {"phase": phase, "reset_model": reset}

    def _check_rows_were_read(self) -> None:
        if not self.rows_were_read:
            raise InputError(
                'warmup="cross-fit" judges each half by a network trained on the other: train '
                "only on the rows of `curriculum.training_mask()` before each update, or use "
                'warmup="features" with embeddings of a pretrained backbone.'
            )

    def _enter(self, phase: str) -> None:
        self.phase, self.rounds_in_phase, self.rows_were_read = phase, 0, False

    def _judge(self, embeddings: Tensor, reference: Tensor, judged: Tensor) -> dict[str, Any]:
        """Weigh the rows `judged` by their fit to the rows of positive `reference` weight."""
        start = time.perf_counter()
        if self.phase == "features" and self.group is None:
            self.group = find_copies(embeddings, self.codes)
        samples = Samples(embeddings, self.codes, reference, judged)
        samples = samples.without_copies(self.group, self.weights)
        if self.search.is_exact(samples.embeddings):
            samples = samples.in_content_order(self.weights)
        rows = samples.judged & ~self.rates.absent(samples, self.weights)
        stats = self.search.contrastive_statistics(
            samples.embeddings,
            samples.codes,
            samples.reference,
            None if bool(rows.all()) else rows.nonzero()[:, 0],
            for_rate=self.rates.noise_rate is None,
        )
        solving = time.perf_counter()
        fields = solved_once(self, lambda: self._weigh(stats, samples))
        return fields | {
            "seconds_statistics": solving - start,
            "seconds_solve": time.perf_counter() - solving,
        }

    def _weigh(self, stats: ContrastiveStatistics, samples: Samples) -> dict[str, Any]:
        """Find the weights of the judged samples and write them, to all their copies."""
        judged = samples.judged
        p_values, testable = label_p_values(stats), stats.testable & judged
        before = self.rates
        if before == HeldRates():
            if why_unjudgeable(stats) == ALIKE:
                raise InputError(f"no label could be judged: {ALIKE}")
            # Held from here on: an estimate from statistics under its own weights feeds on itself.
            self.rates = before.read_now(samples, self.weights).estimated(stats, samples)
        suspicion, errors = self._suspicion(stats, p_values, testable, samples)
        asked = judged & ~self.rates.absent(samples, self.weights)
        untestable = int((asked & ~stats.testable).sum())
        if suspicion is None:  # nor do p-values or rates of such embeddings mean anything
            self.rates = before
            return not_judged(self.warmup) | self.rates.fields() | {"num_untestable": untestable}
        new = samples.taken(self.weights.weights.cpu().double())  # kept by what cannot be judged
        fields: dict[str, Any] = {}
        share = 1 - self.held_rate
        outdone = samples.outdone(samples.decided_first(suspicion, self.weights), testable)
        new[outdone], ranked = 0.0, testable & ~outdone & samples.among(self.rates.undecided)
        gone = samples.gone(self.weights, testable) / max(int(ranked.sum()), 1)
        share = min(share + share * gone, 1.0)
        if self._is_second and errors is not None and ranked.any():
            share = surely_right(torch.from_numpy(errors.wrong_probability)[ranked], share)
        if self.settings.rule == "threshold" and ranked.any():
            new[ranked] = best_fitting(suspicion[ranked], stats.difficulty[ranked], share).double()
        elif ranked.any():
            new[ranked], fields = quadratic_weights(stats, ranked, self.settings.balance, share)
        new = samples.as_decided(new, self.weights)
        check_left(samples.codes[judged & (new > 0)], self.held_rate)
        self._remember(samples.spread(p_values, math.nan), samples.spread(testable, 0.0))
        self._write(samples.spread(new), samples.spread(judged, 1.0))
        if self.second.is_last:
            if self.repairs and errors is not None:
                self.second.repair(self.weights, errors, samples)
            self.rates = self.rates.read_now(samples, self.weights)
            kept = samples.taken(self.weights.weights.cpu().double()) > 0
            self.second.done(kept[judged & ~outdone & samples.among(self.rates.undecided)])
        return fields | self.rates.fields() | {"num_untestable": untestable}

    def _write(self, new: Tensor, judged: Tensor) -> None:
        """Write the (N,) weights `new` where rows were `judged`."""
        self.weights.update(torch.where(judged, new, self.weights.weights.cpu().double()))

    def _suspicion(
        self, stats: ContrastiveStatistics, p_values: Tensor, testable: Tensor, samples: Samples
    ) -> tuple[Tensor | None, LabelErrors | None]:
        """(M,) what ranks the labels, large for those to leave out, and what the label model found.

        None to rank by comes from blind embeddings.
        """
        if int(testable.sum()) < FEWEST_LABELS:
            return p_values, None
        weighs, second = self.phase == "weights", self._is_second
        # The label model looks at all classes.
        if not self.search.is_exact(samples.embeddings) and not (
            self.second.is_last and self.repairs
        ):
            blind = not weighs and not tell_apart(stats, testable & samples.telling, samples)
            return None if blind else p_values, None
        if weighs and not second:
            if self.settings.rule == "quadratic" or not self.rates.mostly_confused:
                return p_values, None
            return label_margins(samples.embeddings, samples.codes, samples.reference), None
        errors = self._judged(samples, testable)
        if errors.model is None:  # of a second judgement: the first stands
            return p_values if second else None, None
        by_null = self.rates.total_rate is None
        return p_values if by_null else torch.from_numpy(errors.odds), errors

    def _judged(self, samples: Samples, testable: Tensor) -> LabelErrors:
        """Ask the audit's judge, and keep its rate where that is to be held."""
        cross_fitted, second = self.phase in ("half A", "half B"), self._is_second
        rates = self.rates.read_now(samples, self.weights) if second else self.rates
        telling = samples.telling & samples.among(rates.undecided)
        errors = judge_labels(
            samples.embeddings,
            samples.labels(self.weights),
            samples.reference,
            rows=testable.nonzero()[:, 0] if cross_fitted or second else None,
            random_rate=self.rates.noise_rate,
            fitted_to=telling.numpy(),
            half_trained=cross_fitted,
        )
        # Random errors alone are as many as the null says.  An interval all below its own is of a
        # model which took wrong labels for its doubt, as where most labels are wrong.
        least = 0.0 if self.rates.noise_interval is None else self.rates.noise_interval[0]
        holds = errors.model is not None and (self.p_values is None or second)
        total = rates.with_total(errors, samples.gone(self.weights, testable) / len(testable))
        most = 0.0 if total.total_interval is None else total.total_interval[1]
        if holds and most >= least and (total.mostly_confused or not cross_fitted):
            self.rates = total.widened(samples)
        return errors

    @property
    def held_rate(self) -> float:
        """The share of labels that is left out: what the second judgement left out, once done."""
        if self.second.is_done and (self.repairs or self.settings.rule == "threshold"):
            return self.second.left_out
        return self.rates.held

    def _remember(self, p_values: Tensor, testable: Tensor) -> None:
        before = torch.full_like(p_values, math.nan) if self.p_values is None else self.p_values
        # Of the given labels: what a repaired one fits says nothing of the one it replaced.
        given = testable & ~self.weights.repaired.cpu()
        self.p_values = torch.where(given, p_values, before)

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
            "group": self.group,
            **self.rates.state_dict(),
            "p_values": None if self.p_values is None else self.p_values.clone(),
            "pace": self.pace.state_dict(),
            "second": self.second.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned, if it fits these weights."""
        if state["in_half_a"].shape != self.weights.codes.shape:
            raise CheckpointError(
                f"the curriculum was saved for {len(state['in_half_a'])} samples; these weights "
                f"hold {len(self.weights)}. Resume with the same data set."
            )
        rates, p_values = HeldRates.from_state(state), state["p_values"]
        group = state.get("group")  # unknown before copies were
        rounds = check_whole(state["rounds_in_phase"], "rounds_in_phase", low=0)
        if (
            state["phase"] not in ("half A", "half B", "features", "weights")
            or state["in_half_a"].dtype != torch.bool
            or (group is not None and not is_grouping(group, state["in_half_a"].shape))
            or type(state["rows_were_read"]) is not bool
            or not (p_values is None or are_p_values(p_values, state["in_half_a"].shape))
        ):
            raise CheckpointError(
                "the saved curriculum has an unknown phase, or numbers that no curriculum has. "
                "Was the checkpoint edited? Start the run anew."
            )
        self.phase, self.rounds_in_phase = state["phase"], rounds
        self.rows_were_read, self.in_half_a = state["rows_were_read"], state["in_half_a"]
        self.rates, self.group, self.p_values = rates, group, p_values
        self.pace.load_state_dict(state.get("pace", {"waited": 0, "resting": 0}))
        if (second := state.get("second", state.get("repair"))) is not None:  # its name before
            self.second.load_state_dict(second)
