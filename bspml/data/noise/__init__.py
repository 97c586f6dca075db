"""Wrong labels made on purpose; `bspml.noise`, the public door, says what holds for all kinds."""

from bspml.data.noise.ambiguity import instance_dependent
from bspml.data.noise.confusion import asymmetric, pair_flip
from bspml.data.noise.dissolution import open_set, small_cluster
from bspml.data.noise.noisy_labels import NoisyLabels, from_labels, load
from bspml.data.noise.regression import NoisyTargets, targets
from bspml.data.noise.semantic import semantic
from bspml.data.noise.siblings import sibling_flip, sibling_swap
from bspml.data.noise.uniform import symmetric

__all__ = [
    "NoisyLabels",
    "NoisyTargets",
    "asymmetric",
    "from_labels",
    "instance_dependent",
    "load",
    "open_set",
    "pair_flip",
    "semantic",
    "sibling_flip",
    "sibling_swap",
    "small_cluster",
    "symmetric",
    "targets",
]
