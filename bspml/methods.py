"""Training methods by name: the public door of `bspml.experiment.methods`."""

from bspml.experiment.methods import (
    METHODS,
    WRAPPERS,
    MethodContext,
    MethodParts,
    build,
    check_method,
    hyper_parameters,
    names,
    sample_confidences,
    sigma,
    title,
)

__all__ = [
    "METHODS",
    "WRAPPERS",
    "MethodContext",
    "MethodParts",
    "build",
    "check_method",
    "hyper_parameters",
    "names",
    "sample_confidences",
    "sigma",
    "title",
]
