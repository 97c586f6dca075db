"""Wrong labels made on purpose: the public door of `bspml.data.noise`."""

from bspml.data.noise import (
    NoisyLabels,
    NoisyTargets,
    asymmetric,
    from_labels,
    instance_dependent,
    load,
    open_set,
    pair_flip,
    sibling_flip,
    sibling_swap,
    small_cluster,
    symmetric,
    targets,
)

__all__ = [
    "NoisyLabels",
    "NoisyTargets",
    "asymmetric",
    "from_labels",
    "instance_dependent",
    "load",
    "open_set",
    "pair_flip",
    "sibling_flip",
    "sibling_swap",
    "small_cluster",
    "symmetric",
    "targets",
]
