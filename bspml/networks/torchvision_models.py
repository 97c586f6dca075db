"""Classifiers of torchvision, with weights from a file of the user's."""

from __future__ import annotations

import os

from torch import nn

from bspml.errors import InputError
from bspml.networks.backbone import Backbone
from bspml.networks.weights_file import load_weights

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of all their weights' pixels


def load_torchvision(model: str, weights: str | os.PathLike[str] | None) -> Backbone:
    """Return the classifier `model`, such as "resnet50"; random weights if `weights` is None.

    Args:
        model: name of a torchvision classifier.
        weights: file of its state dict, or None.

    Raises:
        InputError: no such model, or one without a last linear layer.
        DataError: see `load_weights`.
    """
    from torchvision import models

    names = models.list_models(module=models)
    if model not in names:
        raise InputError(
            f"`name`: torchvision has no classifier {model!r}; it has {', '.join(names)}."
        )
    net = models.get_model(model, weights=None)
    linear = {n: m for n, m in net.named_modules() if isinstance(m, nn.Linear)}
    # Inception's auxiliary classifiers would make the output a tuple; squeezenet ends in a
    # convolution.  Neither has one last linear layer to replace.
    if hasattr(net, "aux_logits") or not linear:
        raise InputError(
            f"`name`: torchvision:{model} does not end in one linear layer, so its embedding layer "
            "is not ours to choose. Use another, such as torchvision:resnet50."
        )
    last, layer = list(linear.items())[-1]
    if weights is not None:
        load_weights(net, weights, [last])
    # VGG keeps 7 x 7 positions apart; densenet and others average in `forward`, without a module.
    pool = getattr(net, "avgpool", None)
    global_pool = isinstance(pool, nn.AdaptiveAvgPool2d) and pool.output_size in (1, (1, 1))
    return Backbone(
        f"torchvision:{model}", net, last, layer.in_features, _MEAN, _STD,
        pool="avgpool" if global_pool else None,
    )  # fmt: skip
