"""From a split of images to the features of a frozen backbone, now or at an earlier time."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.utils.data import Subset
from tqdm import tqdm

from bspml.data.retrieval import RetrievalSplit
from bspml.data.sets.glyphs import cache_dir
from bspml.errors import DataError, InputError
from bspml.networks import embed, feature_network
from bspml.networks.backbone import IMAGE_SIZE
from bspml.networks.feature_cache.identity import FeatureSource, identity_of
from bspml.networks.feature_cache.store import FeatureStore
from bspml.shapes import Float, Tensor
from bspml.tensors.checks import check_device, check_whole

_BATCH = 64

_log = logging.getLogger(__name__)


def cached_features(
    split: RetrievalSplit,
    source: FeatureSource,
    cache: str | os.PathLike[str] | None = None,
    device: torch.device | str | None = None,
    num_workers: int = 0,
    progress: bool | None = None,
) -> Float[Tensor, "N F"]:
    """Return what a frozen backbone says of the images of a split, from the cache or extracted now.

    The images are shown as at test time, without random views, and the backbone is in evaluation
    mode.  Features are extracted again when any of these changes: the list of images, the size or
    the modification time of one (pixels, of a split in memory), the boxes if they are looked at,
    the backbone, what is in its file of weights, or the image size.  The device is not among them:
    a GPU's features differ by rounding.

    Any number of processes may ask for the same features: each file appears whole.

    Args:
        split: N images, in files or in memory.
        source: the backbone, its weights, and how it is shown the images.
        cache: folder; None is the environment's BSPML_CACHE, or the user's cache folder.
        device: to extract on; None is the GPU where there is one.
        num_workers: processes that decode images.
        progress: show a line on stderr while extracting; None shows it on a terminal.

    Returns:
        (N, F) float32 on the CPU, in the split's order.  From 1 GiB on they stay on the disk and
        are read as they are used; writing to them does not change the file.

    Raises:
        InputError: the split holds no images, an unknown backbone, or one without its weights.
        DataError: an image or the weights cannot be read, `cache` cannot be written, or the
            features are not finite.
        MissingDependencyError: the backbone's package is not installed.
        RunError: the disk is full.
    """
    image_size = IMAGE_SIZE if source.image_size is None else source.image_size
    size = check_whole(image_size, "image_size")
    images = split.images(size, crop_boxes=source.crop_boxes)
    if not len(split):
        raise InputError("`split` must hold at least one image; got none.")
    identity = identity_of(split, replace(source, image_size=size))
    store = FeatureStore(cache_dir(cache) / "features", identity)
    features = store.read()
    if features is not None:
        return features
    target = check_device("auto" if device is None else device)
    net = feature_network(source.backbone, source.weights).to(target)
    is_shown = sys.stderr.isatty() if progress is None else progress
    title = f"features of {split.name}"
    with tqdm(desc=title, total=len(split), unit="image", disable=not is_shown) as bar:

        def rows(start: int, stop: int) -> np.ndarray:
            part = Subset(images, range(start, stop))
            return _extracted(net, part, start, source.backbone, num_workers, bar.update)

        try:
            store.prepare()
        except OSError as err:
            if cache is not None:
                raise DataError(
                    f"`cache` must be a folder that can be written; got {os.fspath(cache)} "
                    f"({err}). Choose another, or leave it out to use the user's cache folder."
                ) from err
            _log.warning(
                "features are extracted at each start: cannot write %s (%s)", store.path, err
            )
            return torch.from_numpy(rows(0, len(split)))
        return store.write(rows, bar.update)


def _extracted(
    net: nn.Module,
    images: Subset,
    start: int,
    backbone: str,
    num_workers: int,
    count: Callable[[int], object],
) -> np.ndarray:
    """Features (n, F) of n images, the first of which is image `start` of its split.

    Raises:
        InputError: the backbone does not take images of this size.
        DataError: a feature is not finite.
    """
    try:
        features = embed(net, images, _BATCH, None, num_workers, count)
    except AssertionError as err:  # what transformers, made for one size, raise
        raise InputError(
            f"`image_size`: {backbone} does not take these images ({err}). Give the size "
            "that it was trained on."
        ) from err
    bad_rows = torch.nonzero(~features.isfinite().all(1)).flatten()
    if len(bad_rows):
        raise DataError(
            f"{backbone}: the features of {len(bad_rows)} images are not finite, the first is "
            f"image {start + int(bad_rows[0])}. Is the file of weights damaged?"
        )
    return features.numpy()
