"""One alphabet for the shapes in annotations.

N: samples of the data set.  B: rows of a batch.  R: reference rows.  D: embedding dimension.
C: classes.  K: neighbours.  A one-axis string starts with a space (`" N"`), as jaxtyping asks.
"""

from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike
from torch import Tensor

__all__ = ["ArrayLike", "Bool", "Float", "Int", "Tensor"]
