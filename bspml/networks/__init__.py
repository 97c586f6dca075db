"""Networks that make embeddings: small ones built here, and backbones found elsewhere by name.

All return un-normalised embeddings (B, D): the losses and the evaluation normalise.  Image networks
take pixels in [0, 1]; pretrained ones shift and scale them as they were trained, so a data set
needs no normalising transform, and must not have one.
"""

from bspml.networks.backbone import PretrainedNet
from bspml.networks.by_name import build_network, feature_network
from bspml.networks.embedding import embed
from bspml.networks.freezing import freeze_backbone, freeze_batchnorm
from bspml.networks.mlp import MLPHead
from bspml.networks.pooling import GeM
from bspml.networks.small_conv import SmallConvNet
from bspml.networks.weights_file import load_weights

__all__ = [
    "GeM",
    "MLPHead",
    "PretrainedNet",
    "SmallConvNet",
    "build_network",
    "embed",
    "feature_network",
    "freeze_backbone",
    "freeze_batchnorm",
    "load_weights",
]
