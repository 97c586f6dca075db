"""Training methods by name: the public door of `bspml.experiment.methods`.

Example:
    >>> from bspml import methods
    >>> "proxy-anchor" in methods.names(), methods.title("superloss:margin")
    (True, 'SuperLoss on Margin')
    >>> methods.hyper_parameters("rdml")["eta"].default
    1.0
"""

from bspml.experiment.methods import *  # noqa: F403
from bspml.experiment.methods import __all__ as __all__
