"""Multi-similarity, plain and under sample weights: the paper's, ours, the clean reference; PRISM.

All are `BSPMLLoss` with its miner inside, so that they differ in weights and scales only.
"""

from __future__ import annotations

from typing import Any

from bspml.errors import InputError
from bspml.experiment.methods.hyper import (
    Hyper,
    at_least_0,
    choice,
    flag,
    fraction,
    number,
    optional,
    positive,
    whole,
)
from bspml.experiment.methods.parts import Method, MethodContext, MethodParts, Values, table_of
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.filtered import FilteredLoss
from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.losses.prism import PRISMFilter, check_noise_rate
from bspml.weights.state import SampleWeights

# At 0 known noise [Zhang 2023] still leaves the hardest samples out for a while; our choice.
_LARGEST_MAW = 0.95
_DEFAULT_MEMORY = 8192  # rows, where the size of the data set is not known


def _loss(hyper: Values, weights: SampleWeights | None, **options: Any) -> BSPMLLoss:
    skip_zero = options.pop("skip_zero", True)
    return BSPMLLoss(
        weights,
        alpha=hyper["alpha"],
        beta=hyper["beta"],
        base=hyper["base"],
        miner=BSPMLMiner(weights, epsilon=hyper["epsilon"], skip_zero=skip_zero),
        **options,
    )


def _plain(context: MethodContext, hyper: Values) -> MethodParts:
    notes: tuple[str, ...] = ()
    if hyper["base"] != 1:
        notes = (
            f"multi-similarity: base {hyper['base']:g}; [Zhang 2023] prints 1, at which beta 50 "
            "nearly switches the negatives off: multi-similarity-paper has that",
        )
    return MethodParts("multi-similarity", _loss(hyper, None), notes=notes)


def _published(context: MethodContext, hyper: Values, balance: float, name: str) -> MethodParts:
    """[Zhang 2023] as printed: whole log-sums weighted, mining without weights."""
    weights = table_of(context, name)
    options, notes = _pace(hyper, context.noise_rate, name)
    curriculum = {
        "preset": "paper",
        "balance": balance,
        "statistics": hyper["statistics"],
        "solver": hyper["solver"],
        **{key: hyper[key] for key in ("alpha", "beta", "base")},
        **options,
    }
    return MethodParts(
        name,
        _loss(hyper, weights, weighting="paper", skip_zero=False),
        curriculum_kind="paper",
        curriculum=curriculum,
        needs_sample_index=True,
        notes=notes,
    )


def _pace(
    hyper: Values, noise_rate: float | None, name: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The age, or the MAW it shall reach; the paper prints neither."""
    age, target = hyper["age"], hyper["target_maw"]
    if age is not None and target is not None:
        raise InputError(
            "`hyper.age` and `hyper.target_maw` exclude each other (the target sets the age); "
            "give one of them."
        )
    if age is not None:
        options = {"age": age, "age_growth": hyper["age_growth"]}
        if hyper["age_max"] is not None:
            options["age_max"] = hyper["age_max"]
        return options, (f"{name}: no first age is printed in [Zhang 2023]; {age:g} was given",)
    if target is None:
        if noise_rate is None:
            raise InputError(
                f"{name} needs `hyper.age` or `hyper.target_maw`, or the noise rate to derive one "
                "from: the paper prints none of them. Pass hyper={'target_maw': 0.7} for 30 % "
                f"wrong labels; in a configuration it is `hyperparameters.{name}.target_maw`."
            )
        target = min(1 - noise_rate, _LARGEST_MAW)
        note = (
            f"{name}: holds MAW at {target:g}, from the known noise rate (at most "
            f"{_LARGEST_MAW:g}); [Zhang 2023] prints no age"
        )
        return {"target_maw": target}, (note,)
    return {"target_maw": target}, (f"{name}: holds MAW at {target:g}, as given",)


def _bspml_paper(context: MethodContext, hyper: Values) -> MethodParts:
    return _published(context, hyper, hyper["balance"], "bspml-paper")


def _spms(context: MethodContext, hyper: Values) -> MethodParts:
    return _published(context, hyper, 0.0, "spms")


def _bspml(context: MethodContext, hyper: Values) -> MethodParts:
    weights = table_of(context, "bspml")
    keys = ("rule", "warmup", "warmup_rounds", "reset")
    given = {key: hyper[key] for key in keys if hyper[key] is not None}
    return MethodParts(
        "bspml",
        _loss(hyper, weights),
        curriculum_kind="auto",
        curriculum={"preset": "auto", "balance": hyper["balance"], **given},
        needs_sample_index=True,
    )


def _clean_only(context: MethodContext, hyper: Values) -> MethodParts:
    note = "clean-only: trained on exactly the samples whose labels are right, which nobody knows"
    return MethodParts(
        "clean-only",
        _loss(hyper, table_of(context, "clean-only")),
        curriculum_kind="fixed-clean",
        needs_sample_index=True,
        notes=(note,),
    )


def _prism(context: MethodContext, hyper: Values) -> MethodParts:
    weights, rate = context.weights, hyper["noise_rate"]
    rate = context.noise_rate if rate is None else rate
    if rate is None:
        raise InputError(
            "prism needs the noise rate, which is not known here: pass hyper={'noise_rate': 0.3} "
            "for 30 % wrong labels; in a configuration it is `hyperparameters.prism.noise_rate`."
        )
    rate = check_noise_rate(rate)
    size = hyper["memory_size"]
    if size is None:
        size = _DEFAULT_MEMORY if weights is None else len(weights)
    keep = PRISMFilter(context.num_classes, context.embedding_size, rate, size, hyper["window"])
    note = (
        f"prism: drops by the noise rate it is given, {rate:g}; filters multi-similarity, without "
        "the loss on memory rows that [Liu 2021] trains beside"
    )
    return MethodParts(
        "prism",
        FilteredLoss(_loss(hyper, None), keep, weights=weights),
        needs_sample_index=weights is not None,
        notes=(note,),
    )


def _scales(base: float, printed: bool) -> dict[str, Hyper]:
    return {
        "alpha": positive(2.0, "scale of the positives' exponent", printed=True),
        "beta": positive(50.0, "scale of the negatives' exponent", printed=True),
        "base": number(base, "similarity at which a pair's term is 1, rho", printed=printed),
        "epsilon": at_least_0(0.1, "margin of the mining", printed=True),
    }


_OURS, _PAPER = _scales(0.5, printed=False), _scales(1.0, printed=True)
_PUBLISHED = {
    **_PAPER,
    "age": optional(Hyper(None, "first age, lambda", positive(1.0, "").check)),
    "age_growth": Hyper(1.1, "its multiplier, c", number(1.1, "").check),
    "age_max": optional(Hyper(None, "its maximum, lambda_inf", number(1.0, "").check)),
    "target_maw": optional(fraction(None, "in place of an age: mean class weight to hold")),
    "statistics": choice("unweighted", "pair statistics", "unweighted", "weighted"),
    "solver": choice("coordinate", "of the weights", "coordinate", "doubly-stochastic"),
}

MULTI_SIMILARITY = (
    Method(
        "multi-similarity",
        "MS",
        "log-sums over mined pairs, every sample weighs 1",
        "[Wang MS 2019]",
        _OURS,
        _plain,
    ),
    Method(
        "multi-similarity-paper",
        "MS (rho 1)",
        "the same with the printed base",
        "[Wang MS 2019]",
        _PAPER,
        _plain,
    ),
    Method(
        "spms",
        "SPMS",
        "the paper's self-paced weights without the balance term",
        "[Zhang 2023]",
        _PUBLISHED,
        _spms,
        needs_weights=True,
    ),
    Method(
        "bspml-paper",
        "BSPML (paper)",
        "the paper's self-paced weights, as printed",
        "[Zhang 2023]",
        {**_PUBLISHED, "balance": at_least_0(1.0, "weight of the balance term, mu")},
        _bspml_paper,
        needs_weights=True,
    ),
    Method(
        "bspml",
        "BSPML (auto)",
        "weights from label p-values, nothing to tune",
        "this package",
        {
            **_OURS,
            "rule": choice("threshold", "how p-values become weights", "threshold", "quadratic"),
            "balance": at_least_0(1.0, "of the quadratic rule"),
            "warmup": optional(
                choice(None, "what judges the labels first", "features", "cross-fit")
            ),
            "warmup_rounds": optional(whole(None, "rounds on each half, cross-fitted")),
            "reset": optional(flag(None, "start the network afresh after the warm-up")),
        },
        _bspml,
        needs_weights=True,
    ),
    Method(
        "prism",
        "PRISM",
        "drop the labels that their class centre believes least",
        "[Liu 2021]",
        {
            **_OURS,
            "noise_rate": optional(fraction(None, "share to drop; null: the known rate")),
            "memory_size": optional(whole(None, "rows remembered; null: as many as samples")),
            "window": whole(30, "batches whose thresholds are averaged"),
        },
        _prism,
    ),
    Method(
        "clean-only",
        "Clean only",
        "multi-similarity on exactly the clean samples",
        "upper reference",
        _OURS,
        _clean_only,
        needs_weights=True,
    ),
)
