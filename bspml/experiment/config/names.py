"""Names that a configuration can use.  A new one is added here and where it is built."""

from __future__ import annotations

from bspml.experiment.config.common import check_name

# --- metric learning ------------------------------------------------------------------------------

# The user's, and sets collected with mistakes: nobody knows which labels are right.
USERS_DATA = ("folder", "table", "huggingface", "features")
OWN_DATA = (*USERS_DATA, "cars98n", "food101n")
DATASETS = (
    *("glyphs", "omniglot", "cub", "cars196", "in-shop", "sop", "cifar10", "cifar100"),
    *OWN_DATA,
)
NETWORKS = ("small-conv", "mlp", "efficientnet-lite0")
FAMILIES = ("torchvision", "timm")  # of networks, as torchvision:MODEL
NOISE_KINDS = (
    *("none", "symmetric", "pair-flip", "small-cluster", "open-set", "instance-dependent"),
    "semantic",
)

# --- classification and regression ----------------------------------------------------------------

TASKS = ("classification", "regression")
IMAGE_SETS = ("digits", "cifar10", "cifar100")
CLASS_NOISE = ("none", "symmetric", "pair-flip", "cifar10-pairs", "sibling-flip", "sibling-swap")
TARGET_NOISE = ("none", "uniform")
CLASSIFIERS = ("mlp", "small-conv", "resnet20", "resnet32", "resnet44", "resnet56")
CLASS_LOSSES = ("ce", "mae", "gce", "truncated-gce", "imae", "gr", "superloss")
VALUE_LOSSES = ("mse", "smooth-l1", "superloss")


def check_network(value: str, names: tuple[str, ...], families: tuple[str, ...] = FAMILIES) -> str:
    """Refuse what is neither among `names` nor FAMILY:MODEL.

    Args:
        value: what came.
        names: networks of this package.
        families: packages whose networks are taken too.
    """
    family, colon, model = value.partition(":")
    if family in families and colon and model:
        return value
    return check_name(value, (*names, *(f"{family}:MODEL" for family in families)))
