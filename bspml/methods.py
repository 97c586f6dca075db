"""Training methods by name: the public door of `bspml.experiment.methods`."""

from bspml.experiment.methods import *  # noqa: F403
from bspml.experiment.methods import __all__ as __all__
