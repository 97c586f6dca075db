"""Files of weights, which come from anywhere: read as tensors, never as code."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bspml.errors import DataError, MissingDependencyError, import_optional
from bspml.files.opening import open_regular, reason

_WRAPPERS = ("state_dict", "model")  # keys under which training scripts keep the state dict
_PARALLEL = "module."  # what torch's DataParallel puts before every name


def load_weights(
    net: nn.Module, file: str | os.PathLike[str], replaced: Sequence[str] = ()
) -> None:
    """Put the tensors of `file` into `net`, each name and shape as it must be.

    Args:
        net: changed in place.
        file: a state dict saved with `torch.save`, alone or under the key `state_dict` or `model`,
            or a .safetensors file.
        replaced: dotted names of modules that will not be used, such as a classifier that gives
            way to another: what the file says of them, or does not, is ignored.

    Raises:
        DataError: missing, damaged, holds more than tensors, or is of another network; names it.
        MissingDependencyError: a .safetensors file without the package that reads it.
    """
    path = Path(file)
    state = _unwrapped(_read_tensors(path), net)
    if isinstance(state, Mapping):
        prefixes = tuple(f"{name}." for name in replaced)
        state = {k: v for k, v in state.items() if not str(k).startswith(prefixes)}
        state |= {k: v for k, v in net.state_dict().items() if k.startswith(prefixes)}
    try:
        net.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as err:
        reason = " ".join(str(err).split())[:300]
        raise DataError(f"`weights`: {path} does not fit {type(net).__name__}: {reason}") from err


def _read_tensors(path: Path) -> Any:
    with open_regular(path, "a file of weights", where=f"`weights`: {path}"):
        try:
            if path.suffix == ".safetensors":
                missing = (
                    f"`weights`: {path} needs safetensors, which is not installed; "
                    "`pip install safetensors`."
                )
                return import_optional("safetensors.torch", missing).load_file(path)
            return torch.load(path, map_location="cpu", weights_only=True)
        except MissingDependencyError:
            raise
        except Exception as err:  # damaged bytes can lead the unpickler into any error at all
            raise DataError(
                f"`weights`: {path} is damaged, or holds more than tensors ({type(err).__name__}: "
                f"{reason(err)}). "
                "Save `model.state_dict()` with torch.save."
            ) from err


def _unwrapped(state: Any, net: nn.Module) -> Any:
    """The state dict inside what a training script saved."""
    for key in _WRAPPERS:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if isinstance(state, Mapping) and _parallel(state) and not _parallel(net.state_dict()):
        return {k.removeprefix(_PARALLEL): v for k, v in state.items()}
    return state


def _parallel(state: Mapping[Any, Any]) -> bool:
    return all(isinstance(k, str) and k.startswith(_PARALLEL) for k in state)
