"""From a split of images to the features of a frozen backbone, now or at an earlier time."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Subset
from tqdm import tqdm

from bspml.data.picture_keys import picture_keys
from bspml.data.retrieval import RetrievalSplit
from bspml.errors import DataError, InputError, RunError
from bspml.files.folders import cache_dir
from bspml.files.opening import reason
from bspml.networks import embed, feature_network
from bspml.networks.by_name import view_for
from bspml.networks.embedding import embed_by_threads
from bspml.networks.feature_cache.identity import FeatureSource, identity_of
from bspml.networks.feature_cache.store import PART, FeatureStore
from bspml.shapes import Float, Tensor
from bspml.tensors.checks import check_device
from bspml.words import counted

Cache = str | os.PathLike[str] | None

_BATCH = 64

_log = logging.getLogger(__name__)


def cached_features(
    split: RetrievalSplit,
    source: FeatureSource,
    cache: Cache = None,
    device: torch.device | str | None = None,
    num_workers: int = 0,
    progress: bool | None = None,
    say: Callable[[str], object] | None = None,
) -> Float[Tensor, "N F"]:
    """Return what a frozen backbone says of the images of a split, from the cache or extracted now.

    The images are shown as at test time (`view_for`), without random views, and the backbone
    is in evaluation mode.  A feature is extracted once for each content of an image file (or each
    picture in memory), box if boxes are looked at, view, and content of the file of weights:
    whichever command, folder or table asks for it.  The device is not among these: a GPU's
    features differ by rounding.

    Any number of processes may ask for the same features: each file of the cache appears whole.

    Args:
        split: N images, in files or in memory.
        source: the backbone, its weights, and how it is shown the images.
        cache: folder; None is the environment's BSPML_CACHE, or the user's cache folder.
        device: to extract on; None is the GPU where there is one.
        num_workers: processes that decode images; 0, which on a CPU is quickest: threads decode
            and embed.
        progress: show a line on stderr while extracting; None shows it on a terminal.
        say: told in a sentence how many are extracted and how many were there.

    Returns:
        (N, F) float32 on the CPU, in the split's order.

    Raises:
        InputError: the split holds no images, an unknown backbone, or one without its weights.
        DataError: an image or the weights cannot be read, `cache` cannot be written, or the
            features are not finite.
        MissingDependencyError: the backbone's package is not installed.
        RunError: the disk of `cache` is full.
    """
    view: Any = view_for(source.backbone, source.image_size, split.content)
    own = view if source.backbone.startswith("timm:") else None  # else pixels of that size stay
    images = split.images(view.image_size, crop_boxes=source.crop_boxes, view=own)
    if not len(split):
        raise InputError("`split` must hold at least one image; got none.")
    positions: dict[bytes, int] = {}  # of each picture; copies share one
    keys = picture_keys(split, source.crop_boxes)
    rows = np.array([positions.setdefault(key, len(positions)) for key in keys])
    first_rows = np.unique(rows, return_index=True)[1]
    identity = identity_of(source, view)
    store = FeatureStore(cache_dir(cache) / "features", identity)
    features, known = store.read(positions)
    missing = np.flatnonzero(~known)
    if say is not None:
        say(_in_words(source.backbone, len(missing), len(known)))
    if not len(missing):
        return torch.from_numpy(features[rows])
    target = check_device("auto" if device is None else device)
    net = feature_network(source.backbone, source.weights).to(target)
    if target.type == "cpu":  # faster there for convolutions, and the same features
        net = net.to(memory_format=torch.channels_last)
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    is_shown = on_terminal if progress is None else progress
    title, names, keeps = f"features of {split.name}", list(positions), _prepared(store, cache)
    with tqdm(desc=title, total=len(missing), unit="image", disable=not is_shown) as bar:
        for start in range(0, len(missing), PART):
            part = missing[start : start + PART]
            part_keys = [names[i] for i in part]
            made = store.read_part(part_keys) if keeps else None
            if made is None:
                shown = Subset(images, first_rows[part].tolist())
                made = _extracted(net, shown, source.backbone, num_workers, bar.update)
                keeps = keeps and _kept(store, part_keys, made, cache)
            if not features.shape[1]:
                features = np.empty((len(known), made.shape[1]), made.dtype)
            features[part] = made
    return torch.from_numpy(features[rows])


def _in_words(backbone: str, made: int, pictures: int) -> str:
    there = f"the features of {counted(pictures - made, 'image')} are in the cache"
    if not made:
        return f"{backbone}: {there}"
    return f"embedding {counted(made, 'image')} with {backbone}" + (
        f"; {there}" if made < pictures else ""
    )


# --- keeping --------------------------------------------------------------------------------------


def _prepared(store: FeatureStore, cache: Cache) -> bool:
    """Whether features can be kept; a folder that was named must be one that can be written."""
    try:
        store.prepare()
    except OSError as err:
        if cache is not None:
            raise DataError(
                f"`cache` must be a folder that can be written; got {os.fspath(cache)} "
                f"({err}). Choose another, or leave it out to use the user's cache folder."
            ) from err
        return _warned(store, err)
    return True


def _kept(store: FeatureStore, keys: list[bytes], features: np.ndarray, cache: Cache) -> bool:
    """Keep features; whether more can be kept.  A disk that is full stops whoever named it."""
    try:
        store.add(keys, features)
    except RunError as err:
        if cache is not None:
            raise
        return _warned(store, err)
    return True


def _warned(store: FeatureStore, err: OSError) -> bool:
    _log.warning(
        "features are extracted at each start: cannot write %s (%s)", store.folder, reason(err)
    )
    return False


# --- extraction -----------------------------------------------------------------------------------


def _extracted(
    net: nn.Module, images: Subset, backbone: str, num_workers: int, count: Callable[[int], object]
) -> np.ndarray:
    """Features (n, F) of n images.

    Raises:
        InputError: the backbone does not take images of this size.
        DataError: a feature is not finite.
    """
    try:
        if num_workers or any(p.device.type != "cpu" for p in net.parameters()):
            features = embed(net, images, _BATCH, None, num_workers, count)
        else:
            features = embed_by_threads(net, images, count)
    except AssertionError as err:  # what transformers, made for one size, raise
        raise InputError(
            f"`image_size`: {backbone} does not take these images ({err}). Give the size "
            "that it was trained on."
        ) from err
    bad_rows = torch.nonzero(~features.isfinite().all(1)).flatten()
    if len(bad_rows):
        raise DataError(
            f"{backbone}: the features of {len(bad_rows)} images are not finite, the first is "
            f"image {images.indices[int(bad_rows[0])]}. Is the file of weights damaged?"
        )
    return features.numpy()
