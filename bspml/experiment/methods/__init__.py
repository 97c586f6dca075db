"""Training methods by name: the losses the papers compare, with the settings they print.

    name, hyper-parameters -> build(name, MethodContext(...)) -> MethodParts

`MethodParts` says what a training loop needs: the loss, its miner, which curriculum moves the
sample weights, whether the loss has parameters of its own.  `registry` has the names, `parts` what
a method is, and the other modules have one family each.
"""

from bspml.experiment.methods.parts import MethodContext, MethodParts, sample_confidences, sigma
from bspml.experiment.methods.registry import (
    METHODS,
    WEIGHINGS,
    WRAPPERS,
    build,
    check_method,
    hyper_parameters,
    names,
    parsed,
    title,
)

__all__ = [
    "METHODS",
    "WEIGHINGS",
    "WRAPPERS",
    "MethodContext",
    "MethodParts",
    "build",
    "check_method",
    "hyper_parameters",
    "names",
    "parsed",
    "sample_confidences",
    "sigma",
    "title",
]
