"""Which keys are read only where a key of another section says so: one table.

Runs that were begun before a line came here hold such values; they go on.  (A key that another one
of its own section rules out has the mark `ReadBy`.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from bspml.trainers.settings import as_yaml

if TYPE_CHECKING:
    from bspml.experiment.config.classification import ClassificationConfig
    from bspml.experiment.config.schema import Config

MAY_STAND = "unread_may_stand"  # of pydantic's context
_MOVED = ("spms", "bspml-paper")  # their weights follow the embeddings by keys of their own


class Unread(NamedTuple):
    """Say where nothing reads some keys.

    Attributes:
        keys: dotted.
        where: tells it of an experiment.
        why: as a clause after "nothing reads it".
        remedy: what would read them.
    """

    keys: tuple[str, ...]
    where: Callable[[Any], bool]
    why: str
    remedy: str


def _in(section: str, *keys: str) -> tuple[str, ...]:
    return tuple(f"{section}.{key}" for key in keys)


# Of every kind of experiment.
PLANTED = (
    Unread(
        ("noise.seed",),
        lambda c: c.noise.kind == "none",
        "while `noise.kind` is none",
        "set `noise.kind` to a kind of noise",
    ),
)
UNREAD = (
    *PLANTED,
    Unread(
        _in("data", "image_size", "channels", "crop_boxes"),
        lambda c: c.data.name == "features",
        "while `data.name` is features, since the network sees no images",
        "name data of images",
    ),
    Unread(
        ("data.channels",),
        lambda c: c.data.features is not None,
        "while `data.features` names a backbone, which sees images in colour",
        "set `data.features` to null",
    ),
    Unread(
        ("data.cache",),
        lambda c: c.data.features is None,
        "while `data.features` is null, since it is the folder of these",
        "give `data.features`",
    ),
    Unread(
        ("data.incomplete",),
        lambda c: c.data.name in ("features", "glyphs") and c.data.classes == "official",
        "while `data.name` is features or glyphs, of which no file can be missing",
        "name data of image files",
    ),
    Unread(
        _in("curriculum", "rule", "warmup", "warmup_epochs", "reset", "judge_every", "repair")
        + _in("curriculum", "search", "statistics_error"),
        lambda c: c.curriculum.preset == "auto" and not c.automatic,
        "while no method follows the curriculum",
        "add a method such as auto:contrastive to `training.methods`",
    ),
    Unread(
        ("curriculum.embeddings",),
        lambda c: not c.automatic and not {*_MOVED} & {*c.training.methods},
        "while no method follows the embeddings",
        "add a method such as auto:contrastive to `training.methods`",
    ),
    Unread(
        ("curriculum.balance",),
        lambda c: c.curriculum.preset == "auto" and c.curriculum.rule == "threshold",
        "while `curriculum.preset` is auto and `curriculum.rule` threshold",
        "set `curriculum.rule` to quadratic",
    ),
    Unread(
        ("curriculum.solver",),
        lambda c: c.curriculum.preset == "auto",
        "while `curriculum.preset` is auto",
        "set `curriculum.preset` to paper",
    ),
    Unread(
        ("curriculum.statistics_error",),
        lambda c: c.curriculum.search == "exact",
        "while `curriculum.search` is exact",
        "set `curriculum.search` to auto or neighbours",
    ),
    Unread(
        _in("curriculum", "warmup_epochs", "reset"),
        lambda c: c.curriculum.preset == "auto" and not c.cross_fitted,
        "while the warm-up judges labels by pretrained features",
        "set `curriculum.warmup` to cross-fit",
    ),
    Unread(
        ("training.channels_last",),
        lambda c: c.data.holds_features,
        "while the network sees features, which have no layout",
        "train on images",
    ),
    Unread(
        ("training.prefetch",),
        lambda c: c.workers == 0,
        "while `workers` is 0, since workers prepare the batches",
        "set `workers` to 1 or more",
    ),
)


def may_stand(info: Any) -> bool:
    """Say whether a configuration may hold what nothing reads, as that of a run may.

    Args:
        info: pydantic's `ValidationInfo`.
    """
    return bool((info.context or {}).get(MAY_STAND))


def check_read(config: Config | ClassificationConfig, rules: tuple[Unread, ...] = UNREAD) -> None:
    """Refuse a value that nothing reads: whoever sets it believes that it does something.

    A default may always stand.

    Args:
        config: the experiment.
        rules: those that are about its kind.

    Raises:
        ValueError: says which value, why nothing reads it, and what would.
    """
    for keys, where, why, remedy in rules:
        for dotted in keys if where(config) else ():
            part, _, key = dotted.partition(".")
            section = getattr(config, part)
            value, default = getattr(section, key), type(section).model_fields[key].default
            if value != default:
                raise ValueError(
                    f"`{dotted}` is {as_yaml(value)}, but nothing reads it {why}; leave it at "
                    f"{as_yaml(default)}, or {remedy}"
                )
