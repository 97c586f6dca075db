"""Features of a frozen backbone, extracted once and kept: later epochs and runs only read them."""

from bspml.networks import feature_network
from bspml.networks.feature_cache.extraction import cached_features

__all__ = ["cached_features", "feature_network"]
