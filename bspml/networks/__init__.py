"""Networks that make embeddings: small ones built here, and backbones found elsewhere by name.

All return un-normalised embeddings (B, D): the losses and the evaluation normalise.  Image networks
take pixels in [0, 1]; pretrained ones shift and scale them as they were trained, so a data set
needs no normalising transform, and must not have one.
"""

from bspml.networks.backbone import PretrainedNet as PretrainedNet
from bspml.networks.by_name import (
    build_network as build_network,
    feature_network as feature_network,
)
from bspml.networks.embedding import (
    InputBatches as InputBatches,
    embed as embed,
    embed_by_ranks as embed_by_ranks,
)
from bspml.networks.freezing import (
    freeze_backbone as freeze_backbone,
    freeze_batchnorm as freeze_batchnorm,
)
from bspml.networks.mlp import MLPHead as MLPHead
from bspml.networks.pooling import GeM as GeM
from bspml.networks.small_conv import SmallConvNet as SmallConvNet
from bspml.networks.weights_file import load_weights as load_weights
