"""Checkpoints: plain values and tensors in a file that says what it is and whose data it knows.

Read with `weights_only=True` and nothing else: a pickle can run any code when it is opened, and
checkpoints travel.  States must therefore be tensors, numbers, text, None, lists, tuples and
dicts, which `save` checks, since at load time it would be too late.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bspml
from bspml.errors import CheckpointError, InputError
from bspml.files.atomic import atomic_write
from bspml.files.opening import open_regular

FORMAT = "bspml-checkpoint"
VERSION = 1

State = dict[str, Any]


def save(path: str | os.PathLike[str], state: Mapping[str, Any], fingerprint: str = "") -> Path:
    """Write `state`, atomically: an older checkpoint stays whole until the new one is.

    Args:
        path: the file.
        state: tensors and plain values, nested in dicts, lists and tuples.
        fingerprint: of the data set (see `fingerprint`); empty if there is none.

    Raises:
        InputError: a value that could not be read back; names where it is.
        RunError: the file cannot be written (disk full); names it.
    """
    _check_plain(dict(state), "state")
    content = {
        "format": FORMAT,
        "version": VERSION,
        "bspml": bspml.__version__,
        "fingerprint": fingerprint,
        "state": dict(state),
    }
    return atomic_write(path, lambda file: torch.save(content, file))


def load(path: str | os.PathLike[str], expect_fingerprint: str | None = None) -> State:
    """Read a checkpoint back, tensors on the CPU.

    Args:
        path: the file.
        expect_fingerprint: of the data set in hand; None leaves the check out.

    Raises:
        CheckpointError: missing, empty, truncated or damaged; not a bspml checkpoint; from a
            newer version; or of other data.  One line, with what to do.
    """
    path = Path(path)
    content = _read_state(path)
    if not _has_header(content):
        raise _foreign(path)
    if content["version"] > VERSION:
        raise CheckpointError(
            f"{path}: was written by bspml {content.get('bspml')} (format {content['version']}); "
            f"this is {bspml.__version__} (format {VERSION}). Upgrade bspml to read it."
        )
    if expect_fingerprint is not None and content["fingerprint"] != expect_fingerprint:
        raise CheckpointError(
            f"{path}: the data set changed since the checkpoint (fingerprint "
            f"{content['fingerprint'][:8] or 'none'} then, {expect_fingerprint[:8]} now). Restore "
            "the images and labels it was trained on, or start a new run."
        )
    return content["state"]


def fingerprint(items: Any, labels: Any) -> str:
    """Return a hex digest that changes when the data set does.

    Args:
        items: the samples: an array or tensor (hashed by shape, type and content); or a sequence
            of paths (by file name and size in bytes: moving a data set does not change it, and
            60,000 images are not read) or of texts; or None.
        labels: (N,) integers or text, in the data set's order.

    Returns:
        32 hexadecimal digits.
    """
    digest = hashlib.blake2b(digest_size=16)
    _update(digest, _content(items))
    _update(digest, _content(labels))
    return digest.hexdigest()


def generator_states() -> State:
    """Return the global random generators, ready for `save`: torch (CPU, CUDA), numpy and python.

    Our own code draws from local generators only; layers (dropout) and other people's transforms
    draw from these.
    """
    name, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002  (that one)
    version, internal, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": {
            "name": str(name),
            "keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "gauss": float(gauss),
        },
        "python": {
            "version": version,
            "internal": torch.tensor(internal, dtype=torch.int64),
            "gauss_next": gauss_next,
        },
    }


def restore_generators(state: Mapping[str, Any]) -> None:
    """Set the global generators as `generator_states` found them.

    CUDA states go to the devices that exist: a run moved to another machine goes on, though not
    bit for bit.
    """
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available():
        for device, cuda in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(cuda, device)
    legacy = state["numpy"]
    keys = legacy["keys"].numpy().astype(np.uint32)
    np.random.set_state(  # noqa: NPY002  (the global generator is the point)
        (legacy["name"], keys, legacy["position"], legacy["has_gauss"], legacy["gauss"])
    )
    python = state["python"]
    random.setstate((python["version"], tuple(python["internal"].tolist()), python["gauss_next"]))


def check_generators(state: Any) -> None:
    """Raise a CheckpointError unless `restore_generators` could restore `state`."""
    saved_states = generator_states()
    try:
        restore_generators(state)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as err:
        raise CheckpointError(
            f"the states of the random generators are not what was saved ({err!r:.80})."
        ) from None
    finally:
        restore_generators(saved_states)


def _check_plain(value: Any, where: str) -> None:
    """Refuse what `weights_only=True` would refuse at load time."""
    if type(value) in (dict, OrderedDict):
        for key, inner in value.items():
            if not isinstance(key, str | int):
                raise InputError(f"`{where}` has a key {key!r}; a checkpoint's are text or int.")
            _check_plain(inner, f"{where}[{key!r}]")
    elif type(value) in (list, tuple):
        for i, inner in enumerate(value):
            _check_plain(inner, f"{where}[{i}]")
    elif type(value) not in (int, float, bool, str, type(None)) and not isinstance(value, Tensor):
        raise InputError(
            f"`{where}` must be a tensor, number, text, list or dict; got "
            f"{type(value).__name__}, which a checkpoint cannot hold. Convert it first "
            "(torch.from_numpy, int, float)."
        )


def _read_state(path: Path) -> Any:
    """Read the file after checking its checksums; every fault is a CheckpointError."""
    _check_archive(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise CheckpointError(
            f"{path}: holds more than tensors and plain values, and opening that could run code; "
            "refused. Use a checkpoint that bspml wrote."
        ) from None
    except (RuntimeError, EOFError, KeyError, ValueError, TypeError, AttributeError):
        raise _foreign(path) from None


def _has_header(content: Any) -> bool:
    return (
        isinstance(content, dict)
        and content.get("format") == FORMAT
        and isinstance(content.get("version"), int)
        and isinstance(content.get("fingerprint"), str)
        and isinstance(content.get("state"), dict)
    )


def _check_archive(path: Path) -> None:
    """A checkpoint is a zip archive; torch does not check its sums, so a flipped bit would pass."""
    missing = (
        "no such checkpoint. Was the run stopped before it wrote its first one? Then start it anew."
    )
    with open_regular(path, "a checkpoint", CheckpointError, missing=missing) as file:
        start = file.read(4)
        if not start:
            raise CheckpointError(f"{path}: is empty. {_ELSEWHERE}")
        try:
            with zipfile.ZipFile(file) as archive:
                damaged = archive.testzip()
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, struct.error):
            if start.startswith(b"PK"):
                raise CheckpointError(f"{path}: is truncated or damaged. {_ELSEWHERE}") from None
            raise _foreign(path) from None
    if damaged is not None:
        raise CheckpointError(f"{path}: is damaged (wrong checksum). {_ELSEWHERE}")


_ELSEWHERE = "Use another checkpoint, or start the run anew."


def _foreign(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path}: is not a bspml checkpoint. Give a run folder or its checkpoint.pt."
    )


def _content(items: Any) -> Sequence[bytes | memoryview]:
    """`items` as pieces to hash."""
    if items is None:
        return [b"none"]
    if isinstance(items, Tensor):
        items = items.detach().cpu().numpy()
    if not isinstance(items, np.ndarray):
        items = list(items)
        if all(isinstance(item, Path) for item in items):
            return [
                f"{item.name}\0{item.stat().st_size}".encode("utf-8", "surrogatepass")
                for item in items
            ]
        items = np.asarray(items)
    if items.dtype.kind in "iub":
        items = items.astype(np.int64) if items.ndim == 1 else items  # int32 labels are the same
    if items.dtype.kind in "OU":
        return [str(item).encode("utf-8", "surrogatepass") for item in items.ravel()]
    return [
        f"{items.dtype.str}{items.shape}".encode(),
        np.ascontiguousarray(items).reshape(-1).view(np.uint8).data,
    ]


def _update(digest: Any, pieces: Sequence[bytes | memoryview]) -> None:
    for piece in [str(len(pieces)).encode(), *pieces]:
        # Lengths between the pieces, so that ['ab', 'c'] and ['a', 'bc'] differ.
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)
