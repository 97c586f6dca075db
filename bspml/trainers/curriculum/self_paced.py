"""What moves the sample weights between rounds: statistics, then weights, then age."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor

from bspml.distributed import is_main
from bspml.errors import CheckpointError, InputError
from bspml.shapes import ArrayLike, Bool, Float
from bspml.tensors.checks import check_choice, check_embeddings, check_whole, encode_labels
from bspml.tensors.precision import full_precision
from bspml.tensors.row_index import check_same_rows
from bspml.trainers.curriculum.automatic import AutomaticUpdate
from bspml.trainers.curriculum.blind import NOT_JUDGED
from bspml.trainers.curriculum.detection import Truth
from bspml.trainers.curriculum.old_names import OldNames
from bspml.trainers.curriculum.pace import num_changed
from bspml.trainers.curriculum.published import PublishedUpdate
from bspml.trainers.curriculum.record import CurriculumRecord
from bspml.trainers.settings import READ_BY, AnySection, AutoSettings, PaperSettings, section_of
from bspml.trainers.state import faults_named
from bspml.weights.state import SampleWeights

_KEYWORDS = {*AutoSettings.model_fields, *PaperSettings.model_fields}


class SelfPacedCurriculum(OldNames):
    """Update `SampleWeights` from embeddings of the whole training set.

    preset="auto" estimates the noise rate and keeps the rest: nothing to tune.
    preset="paper" is [Zhang 2023] Algorithm 1, lines 4 and 5: solve eq. (6) at the current age,
    then age = min(age_growth * age, age_max); or meet `target_maw` by bisection over the age.
    The defaults, where a keyword is None, stand in `bspml.trainers.settings`.

    Args:
        weights: the weights to update in place.
        preset: "auto" or "paper".
        age: paper: the first age (the paper's lambda), units of the pair statistics.
        age_growth: paper: multiplier per update (the paper's c; not printed there, 1.1 is ours).
        age_max: paper: ceiling of the age (lambda_inf); None for no ceiling.
        target_maw: paper: mean average weight to meet instead of an age, in [0, 1].
        balance: the paper's mu, >= 0, 1 by default; 0 is SPMS.
        alpha, beta, base: paper: scales of the pair statistics, eq. (3); 2, 50 and 1 as printed.
        statistics: paper: "unweighted" (the default, as printed), or "weighted": under the current
            weights.
        solver: paper: "coordinate" (the default) or "doubly-stochastic" (Algorithm 3).
        solver_options: paper: keywords handed to `solve_weights`.
        rule: auto: "threshold" (the default) or "quadratic".
        warmup: auto: "features" (the default) when the embeddings were not trained on these labels,
            "cross-fit" for a network trained from scratch.
        warmup_rounds: auto, cross-fit: updates to wait on each half, 2 by default.
        reset: auto, cross-fit: ask for a fresh network after the second half too (after the
            first one it is always asked for: half A must be judged by a network that never saw it).
            True by default.
        judge_every: auto: k, 3 by default; once two judgements in a row moved few weights (3 % at
            most), `needs_embeddings` after every k-th round only, until a judgement moves more.
            1: after every round.
        repair: auto: "none" (the default), or "confident": once, after two to six passes over the
            samples, suspects whose label the network never saw are trained under the class it
            believes, if it is sure, and stay out if not: `weights.current_labels`.
        search: "auto" (the default): exact statistics below 200,000 samples and on an accelerator,
            nearly linear ones beyond; "exact" or "neighbours" decide it.  By neighbours the
            statistics have an error that is proved, see `bspml.neighbour_statistics` and
            `bspml.sampled_contrastive_statistics`.
        statistics_error: by neighbours: the largest error of a statistic; None for 1e-3 (paper)
            and 2e-2 (auto).
        groups: auto: (N,) numbers or texts, equal for copies of one sample, which count once and
            lie in one half of a cross-fit.  None: with warmup="features" they are found by the
            first embeddings, and a cross-fit knows none.
        is_noisy: (N,) the truth, if known; adds detection figures to the records.
        is_outlier: (N,) which of the noisy belong to no class that any label names; they are left
            out of the detection and have figures of their own.  None: none does.
        seed: for the random halves.

    Raises:
        InputError: an option of the other preset, or an impossible value.

    Warns:
        UserWarning: a value that nothing reads beside the others.

    Example:
        >>> import torch
        >>> weights = SampleWeights([0, 0, 1, 1])
        >>> curriculum = SelfPacedCurriculum(weights, preset="paper", age=100.0, age_growth=1.5)
        >>> record = curriculum.update(torch.eye(4))
        >>> record.maw, record.age_next  # an age beyond all statistics keeps everything
        (1.0, 150.0)
    """

    def __init__(
        self,
        weights: SampleWeights,
        preset: str = "auto",
        *,
        age: float | None = None,
        age_growth: float | None = None,
        age_max: float | None = None,
        target_maw: float | None = None,
        balance: float | None = None,
        alpha: float | None = None,
        beta: float | None = None,
        base: float | None = None,
        statistics: str | None = None,
        solver: str | None = None,
        solver_options: dict[str, Any] | None = None,
        rule: str | None = None,
        warmup: str | None = None,
        warmup_rounds: int | None = None,
        reset: bool | None = None,
        judge_every: int | None = None,
        repair: str | None = None,
        search: str | None = None,
        statistics_error: float | None = None,
        groups: ArrayLike | None = None,
        is_noisy: Bool[Tensor, " N"] | ArrayLike | None = None,
        is_outlier: Bool[Tensor, " N"] | ArrayLike | None = None,
        seed: int = 0,
    ) -> None:
        # Every keyword that a section has, as it came; the sections know what each takes.
        keywords = {k: v for k, v in locals().items() if k in _KEYWORDS and v is not None}
        if not isinstance(weights, SampleWeights):
            raise InputError(
                f"`weights` must be SampleWeights; got {type(weights).__name__}. "
                "Make them with SampleWeights(labels)."
            )
        check_choice(preset, "preset", ["auto", "paper"])
        seed = check_whole(seed, "seed", low=0)
        if is_outlier is not None and is_noisy is None:
            raise InputError(
                "`is_outlier` says which of the noisy are outliers; got it without `is_noisy`. "
                "Pass both."
            )
        check_same_rows(
            weights.labels_index, groups=groups, is_noisy=is_noisy, is_outlier=is_outlier
        )
        self.weights, self.preset, self.rounds = weights, preset, 0
        self._was_warned = False
        self._update: PublishedUpdate | AutomaticUpdate
        if preset == "paper":
            if groups is not None:
                raise InputError(
                    '`groups` belong to preset="auto": the paper\'s problem knows no copies. Drop '
                    'them, or pass preset="auto".'
                )
            self._update = PublishedUpdate(weights, _settings(PaperSettings, "auto", keywords))
        else:
            settings = _settings(AutoSettings, "paper", keywords)
            group = None if groups is None else encode_labels(groups, len(weights), "groups").codes
            self._update = AutomaticUpdate(weights, settings, seed, group)
        _warn_of_unread(preset, self._update.settings)
        self._truth = None if is_noisy is None else Truth(is_noisy, is_outlier, len(weights))

    @property
    def starts_with_update(self) -> bool:
        """Say whether `update` should be called once before the first training step."""
        return self._update.warmup == "features" and self.rounds == 0

    @property
    def may_reset(self) -> bool:
        """Say whether a coming record can still ask for a fresh network."""
        return self._update.phase in ("half A", "half B")

    @property
    def rounds_to_reset(self) -> int | None:
        """Return after how many more updates a fresh network is asked for; None: never again."""
        return self._update.rounds_to_reset

    @property
    def needs_embeddings(self) -> bool:
        """Say whether labels are due to be judged; where not, `update` takes None, and waits."""
        return self._update.needs_embeddings

    def training_mask(self) -> Bool[Tensor, " N"] | None:
        """Return (N,) bool: the rows that the next round may train on; None for every row."""
        return self._update.training_mask()

    def allowed_mask(self) -> Bool[Tensor, " N"] | None:
        """Return (N,) bool: the rows that the next round may visit; None for every row.

        Whatever they weigh: a superset of `training_mask`, for when those are of too few classes
        to fill a batch.
        """
        return None if (mask := self._update.allowed_mask()) is None else mask.clone()

    def scores(self) -> Float[Tensor, " N"] | None:
        """Return (N,) label p-values of the automatic curriculum (large: suspicious), or None."""
        return None if (scores := self._update.scores()) is None else scores.clone()

    def update(self, embeddings: Float[Tensor, "N D"] | ArrayLike | None) -> CurriculumRecord:
        """Compute statistics, solve for the weights, write them, and say what happened.

        In a torch.distributed group every rank must make this call, with the same embeddings: the
        statistics are shared among them, rank 0 solves, and all end with the same weights.

        Args:
            embeddings: (N, D) of the whole training set, in data-set order, eval mode; or None,
                where `needs_embeddings` is False: this round's labels are not judged then.

        Raises:
            InputError: another number of rows than weights, or NaN; the weights stay as they were.
        """
        embeddings = self._checked(embeddings)
        before, state = self.weights.weights.detach().cpu().clone(), self._update.state_dict()
        labels = self.weights.current_codes.clone()
        try:
            with full_precision():
                fields = self._update.update(embeddings)
            after = self.weights.weights.detach().cpu()
            record = CurriculumRecord(
                round=self.rounds + 1,
                maw=self.weights.maw(),
                sdaw=self.weights.sdaw(),
                changed=num_changed(before, after),
                **fields,
                **self._detection(),
            )
        except BaseException:  # Ctrl-C included
            # Several steps write; a refused one must not leave the others behind.
            self.weights.relabel(labels)
            self.weights.update(before)
            self._update.load_state_dict(state)
            raise
        self.rounds = record.round
        self.weights.restarts += record.reset_model
        if record.status == NOT_JUDGED and not self._was_warned and is_main():
            warnings.warn(str(record.message), stacklevel=2)
            self._was_warned = True
        return record

    def _checked(self, embeddings: Any) -> Tensor | None:
        """Refuse embeddings that do not fit, and None where labels are due to be judged."""
        if embeddings is None:
            if not self.needs_embeddings:
                return None
            raise InputError(
                "`embeddings` are needed where labels are judged; got None, which is for rounds "
                "whose `curriculum.needs_embeddings` is False. Embed the whole training set."
            )
        check_same_rows(self.weights.labels_index, embeddings=embeddings)
        embeddings = check_embeddings(embeddings)
        if len(embeddings) != len(self.weights):
            raise InputError(
                f"`embeddings` must have one row per weight, ({len(self.weights)}, D); got "
                f"{tuple(embeddings.shape)}. Embed the whole training set, in its order."
            )
        return embeddings

    def _detection(self) -> dict[str, Any]:
        """How well the given labels are told apart, where the truth is known."""
        return {} if self._truth is None else self._truth.figures(self.weights, self.scores())

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the weights themselves, which `SampleWeights` saves."""
        return {
            "preset": self.preset,
            "labels": self.weights.label_digest,
            "rounds": self.rounds,
            "update": self._update.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned, the age that it had reached included.

        Settings are those of this curriculum.

        Raises:
            CheckpointError: the state of another preset, or of other labels or another order of
                them; nothing is changed then.
        """
        before = self._update.state_dict()
        try:
            with faults_named():
                self._check_whose(state)
                rounds = check_whole(state["rounds"], "rounds", low=0)
                self._update.load_state_dict(state["update"])
        except CheckpointError:
            self._update.load_state_dict(before)
            raise
        self.rounds = rounds

    def _check_whose(self, state: dict[str, Any]) -> None:
        if state.get("preset") != self.preset:
            raise CheckpointError(
                f"the state was saved with preset={state.get('preset')!r:.16}; this curriculum has "
                f"preset={self.preset!r}. Resume with the configuration of the run."
            )
        own = self.weights.label_digest
        if state.get("labels", own) != own:  # not before it was kept
            raise CheckpointError(
                f"the curriculum was saved for other labels, or for these in another order, than "
                f"the {len(self.weights)} of these weights: its numbers are about other rows. "
                "Resume with the labels of the run."
            )


def _warn_of_unread(preset: str, settings: PaperSettings | AutoSettings) -> None:
    """Say what does nothing, for the caller of the caller."""
    for name, mark in READ_BY[preset].items():
        fault = mark.fault(settings, name, type(settings).model_fields[name].default)
        if fault:
            warnings.warn(f"{fault}.", stacklevel=3)


def _settings(kind: type[AnySection], other: str, keywords: dict[str, Any]) -> AnySection:
    """Build the section of a preset; what only the `other` preset reads is refused."""
    for name in keywords:
        if name not in kind.model_fields:
            preset = "auto" if other == "paper" else "paper"
            raise InputError(
                f'`{name}` belongs to preset="{other}" and nothing would read it under '
                f'preset="{preset}". Drop it, or pass preset="{other}".'
            )
    return section_of(kind, keywords)
