"""Parts of a network that training leaves as they are."""

from __future__ import annotations

from typing import Any

from torch import nn

from bspml.errors import InputError
from bspml.tensors.arguments import check_flags, check_kind


def freeze_backbone(model: nn.Module) -> int:
    """Train only the last linear layer of `model` from now on; its batch statistics stay too.

    Returns:
        How many parameters (numbers, not tensors) are left to train.

    Raises:
        InputError: `model` has no linear layer.
    """
    check_kind(model, "model", nn.Module, "a torch.nn.Module")
    head = head_of(model)
    freeze_batchnorm(model)
    model.requires_grad_(False)
    head.requires_grad_(True)
    return sum(p.numel() for p in head.parameters())


def head_of(model: nn.Module) -> nn.Linear:
    """Return the last linear layer of a network.

    Raises:
        InputError: `model` has no linear layer.
    """
    heads = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not heads:
        raise InputError("`model` must end in a linear layer, the head that is trained; got none.")
    return heads[-1]


def freeze_batchnorm(model: nn.Module, affine: bool = False) -> int:
    """Keep the batch normalisations of `model` at their running statistics, for good.

    They return to evaluation mode at each forward pass, so `model.train()` does not undo it.

    Args:
        model: changed in place.
        affine: also stop training their scale and shift.

    Returns:
        How many layers were frozen.
    """
    check_flags(affine=affine)
    check_kind(model, "model", nn.Module, "a torch.nn.Module")
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    layers = [module for module in model.modules() if isinstance(module, kinds)]
    for layer in layers:
        layer.eval()
        layer.register_forward_pre_hook(_to_eval)
        if affine:
            for parameter in layer.parameters():
                parameter.requires_grad_(False)
    return len(layers)


def _to_eval(module: nn.Module, _inputs: Any) -> None:
    # A function of the module, not a closure: models stay picklable and deep-copyable.
    module.eval()
