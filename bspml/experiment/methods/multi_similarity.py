"""Multi-similarity, plain, under sample weights (the paper's, ours, the clean reference), filtered.

All are `BSPMLLoss` with its miner inside, so that they differ in weights and scales only.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from bspml.errors import InputError
from bspml.experiment.config.schema import LossSettings, PaperLoss
from bspml.experiment.methods.parts import Method, MethodContext, MethodParts, table_of
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.filtered import FilteredLoss
from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.losses.neighbour_vote import NeighbourVote
from bspml.losses.prism import PRISMFilter, Score, check_noise_rate
from bspml.trainers.settings import (
    RHO,
    AutoSettings,
    Count,
    Fraction,
    NotNegative,
    Number,
    PaperSettings,
    Scales,
    key,
    keywords_of,
)
from bspml.weights.state import SampleWeights

# At 0 known noise [Zhang 2023] still leaves the hardest samples out for a while; our choice.
_LARGEST_MAW = 0.95
_WEIGHS = "it weighs samples already"
_DROPS = "it drops samples by a rule of its own"
_DEFAULT_MEMORY = 8192  # rows, where the size of the data set is not known


def multi_similarity_loss(settings: LossSettings, weights: SampleWeights | None) -> BSPMLLoss:
    """Build the loss with its miner inside: one similarity matrix serves both.

    Args:
        settings: its scales, weighting and mining.
        weights: the table of sample weights; None: every sample weighs 1.
    """
    return BSPMLLoss(
        weights,
        alpha=settings.alpha,
        beta=settings.beta,
        base=settings.base,
        weighting=settings.weighting,
        miner=BSPMLMiner(weights, epsilon=settings.epsilon, skip_zero=settings.skip_zero),
    )


def _weighted(
    settings: _Ours | BSPMLPaper, context: MethodContext, curriculum_kind: str, **more: Any
) -> MethodParts:
    """The weighted loss of a method, by the table of weights that its curriculum writes to."""
    loss = multi_similarity_loss(settings, table_of(context, settings.name))
    return MethodParts(
        settings.name, loss, curriculum_kind=curriculum_kind, needs_sample_index=True, **more
    )


def _filtered(
    settings: _Ours, keep: nn.Module, weights: SampleWeights | None, note: str
) -> MethodParts:
    """The plain loss of the samples that a filter keeps."""
    loss = FilteredLoss(multi_similarity_loss(settings, None), keep, weights=weights)
    return MethodParts(settings.name, loss, needs_sample_index=weights is not None, notes=(note,))


class _Ours(Method, LossSettings):
    """The settings of the methods at our base; how weights enter the loss is not theirs to set."""

    hidden = ("weighting", "skip_zero")


class MultiSimilarity(_Ours):
    """Multi-similarity without sample weights, at our base."""

    name, title, source = "multi-similarity", "MS", "[Wang MS 2019]"
    says = "log-sums over mined pairs, every sample weighs 1"

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss; a note says where its base is not the printed one."""
        notes: tuple[str, ...] = ()
        if self.base != Scales().base:
            notes = (
                f"multi-similarity: base {self.base:g}; [Zhang 2023] prints 1, at which beta 50 "
                "nearly switches the negatives off: multi-similarity-paper has that",
            )
        return MethodParts(self.name, multi_similarity_loss(self, None), notes=notes)


class MultiSimilarityPaper(MultiSimilarity):
    """Multi-similarity without sample weights, as printed."""

    name, title = "multi-similarity-paper", "MS (rho 1)"
    says = "the same with the printed base"

    base: Number = key(Scales().base, RHO, printed=True)


class BSPMLPaper(Method, PaperLoss, PaperSettings):
    """[Zhang 2023] as printed: whole log-sums weighted, mining without weights."""

    name, title, source = "bspml-paper", "BSPML (paper)", "[Zhang 2023]"
    says = "the paper's self-paced weights, as printed"
    needs_weights = True
    unweighable = _WEIGHS
    hidden: ClassVar[tuple[str, ...]] = ("weighting", "skip_zero", "solver_options")

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss under weights that the paper's preset moves."""
        curriculum = {"preset": "paper", **keywords_of(PaperSettings, self)}
        if self.age is not None:
            note = f"no first age is printed in [Zhang 2023]; {self.age:g} was given"
        elif self.target_maw is not None:
            note = f"holds MAW at {self.target_maw:g}, as given"
        else:
            target = curriculum["target_maw"] = self._target(context.noise_rate)
            note = (
                f"holds MAW at {target:g}, from the known noise rate (at most "
                f"{_LARGEST_MAW:g}); [Zhang 2023] prints no age"
            )
        note = f"{self.name}: {note}"
        return _weighted(self, context, "paper", curriculum=curriculum, notes=(note,))

    def _target(self, noise_rate: float | None) -> float:
        """The MAW to reach where no age is given; the paper prints neither."""
        if noise_rate is None:
            raise InputError(
                f"{self.name} needs `hyper.age` or `hyper.target_maw`, or the noise rate to derive "
                "one from: the paper prints none of them. Pass hyper={'target_maw': 0.7} for 30 % "
                f"wrong labels; in a configuration it is `hyperparameters.{self.name}.target_maw`."
            )
        return min(1 - noise_rate, _LARGEST_MAW)


class SPMS(BSPMLPaper):
    """[Zhang 2023] as printed, without the balance term."""

    name, title = "spms", "SPMS"
    says = "the paper's self-paced weights without the balance term"
    hidden: ClassVar[tuple[str, ...]] = (*BSPMLPaper.hidden, "balance")

    balance: NotNegative = 0.0


class BSPML(_Ours, AutoSettings):
    """Multi-similarity under weights that follow label p-values."""

    name, title, source = "bspml", "BSPML (auto)", "this package"
    says = "weights from label p-values, nothing to tune"
    needs_weights = True
    unweighable = _WEIGHS

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss under weights that the automatic preset moves."""
        curriculum = {"preset": "auto", **keywords_of(AutoSettings, self)}
        return _weighted(self, context, "auto", curriculum=curriculum)


class PRISM(_Ours):
    """Multi-similarity of the samples that PRISM's filter keeps."""

    name, title, source = "prism", "PRISM", "[Liu 2021]"
    says = "drop the labels that their class centre believes least"
    unweighable = _DROPS

    noise_rate: Fraction | None = key(None, "share to drop; null: the known rate of what trains")
    memory_size: Count | None = key(None, "rows remembered; null: as many as samples")
    window: Count = key(30, "batches whose thresholds are averaged")
    score: Score = key("mean", "mean similarity to a class; vmf: and how tight the class is")

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss behind its filter, which drops by the noise rate."""
        weights = context.weights
        rate = context.noise_rate if self.noise_rate is None else self.noise_rate
        if rate is None:
            raise InputError(
                "prism needs the noise rate, which is not known here: pass "
                "hyper={'noise_rate': 0.3} for 30 % wrong labels; in a configuration it is "
                "`hyperparameters.prism.noise_rate`."
            )
        if self.noise_rate is None and weights is not None:  # decided wrong ones do not train
            gone = float((weights.weights == 0).double().mean())
            rate = max((rate - gone) / (1 - gone), 0.0) if gone < 1 else rate
        rate = check_noise_rate(rate)
        size = self.memory_size or (_DEFAULT_MEMORY if weights is None else len(weights))
        sizes = (context.num_classes, context.embedding_size)
        keep = PRISMFilter(*sizes, rate, size, self.window, self.score)
        note = (
            f"prism: drops by the noise rate it is given, {rate:g}; filters multi-similarity, "
            "without the loss on memory rows that [Liu 2021] trains beside"
        )
        return _filtered(self, keep, weights, note)


class NeighbourVoteMethod(_Ours):
    """Multi-similarity of the samples whose neighbours share their label."""

    name, title, source = "neighbour-vote", "Neighbour vote", "after [Galanakis 2024]"
    says = "drop the labels that a sample's nearest neighbours outvote; no rate needed"
    unweighable = _DROPS
    needs_weights = True

    k: Count = key(10, "neighbours that vote")

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss behind its filter, which remembers every sample."""
        weights = table_of(context, self.name)
        keep = NeighbourVote(len(weights), context.embedding_size, self.k)
        note = (
            f"neighbour-vote: the label of most of {self.k} neighbours decides, which is our "
            "reading of [Galanakis 2024]'s abstract"
        )
        return _filtered(self, keep, weights, note)


class CleanOnly(_Ours):
    """Multi-similarity of the samples whose labels are right: the upper reference."""

    name, title, source = "clean-only", "Clean only", "upper reference"
    says = "multi-similarity on exactly the clean samples"
    needs_weights = True
    unweighable = _WEIGHS

    def make(self, context: MethodContext) -> MethodParts:
        """Build the loss under weights that are 1 for right labels and 0 for wrong ones."""
        note = (
            "clean-only: trained on exactly the samples whose labels are right, which nobody knows"
        )
        return _weighted(self, context, "fixed-clean", notes=(note,))
