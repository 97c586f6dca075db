"""From a split of images to the features of a frozen backbone, now or at an earlier time."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Subset

from bspml.data.retrieval import RetrievalSplit
from bspml.data.sets.glyphs import cache_dir
from bspml.data.split_images import SplitImages
from bspml.errors import DataError, InputError
from bspml.networks import embed, feature_network
from bspml.networks.backbone import IMAGE_SIZE
from bspml.networks.feature_cache.identity import identity_of
from bspml.networks.feature_cache.store import FeatureStore
from bspml.shapes import Float, Tensor
from bspml.tensors.checks import check_device, check_whole

_BATCH = 64

_log = logging.getLogger(__name__)


def cached_features(
    split: RetrievalSplit,
    backbone: str,
    weights: str | os.PathLike[str] | None = None,
    image_size: int | None = None,
    crop_boxes: bool = False,
    cache: str | os.PathLike[str] | None = None,
    device: torch.device | str | None = None,
    num_workers: int = 0,
    progress: bool | None = None,
) -> Float[Tensor, "N F"]:
    """What a frozen backbone says of the images of a split, from the cache or extracted now.

    The images are shown as at test time, without random views, and the backbone is in evaluation
    mode.  Features are extracted again when any of these changes: the list of images, the size or
    the modification time of one (pixels, of a split in memory), the boxes if they are looked at,
    the backbone, what is in its file of weights, or the image size.  The device is not among them:
    a GPU's features differ by rounding.

    Any number of processes may ask for the same features: each file appears whole.

    Args:
        split: N images, in files or in memory.
        backbone: "efficientnet-lite0", "torchvision:MODEL" or "timm:MODEL".
        weights: file of its weights, see `bspml.networks.build_network`.
        image_size: side in pixels; None is 224.
        crop_boxes: look at the annotated boxes only.
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
    size = IMAGE_SIZE if image_size is None else check_whole(image_size, "image_size")
    images = split.images(size, crop_boxes=crop_boxes)
    if not len(split):
        raise InputError("`split` must hold at least one image; got none.")
    store = FeatureStore(
        cache_dir(cache) / "features", identity_of(split, backbone, weights, size, crop_boxes)
    )
    stored = store.read()
    if stored is not None:
        return stored
    target = check_device("auto" if device is None else device)
    extractor = _Extractor(
        feature_network(backbone, weights).to(target), images, num_workers, backbone
    )
    shown = sys.stderr.isatty() if progress is None else progress
    with extractor.bar(f"features of {split.name}", shown):
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
            return torch.from_numpy(extractor.rows(0, len(split)))
        return store.write(extractor.rows, extractor.count)


class _Extractor:
    """Computes rows of features when they are asked for, and shows how far it is."""

    def __init__(
        self, net: nn.Module, images: SplitImages, num_workers: int, backbone: str
    ) -> None:
        self.net, self.images, self.num_workers = net, images, num_workers
        self.backbone = backbone
        self._bar: Any = None

    @contextlib.contextmanager
    def bar(self, title: str, shown: bool) -> Iterator[None]:
        """Inside, a line on stderr counts the images, if `shown`."""
        if not shown:
            yield
            return
        from tqdm import tqdm

        with tqdm(desc=title, total=len(self.images), unit="image") as self._bar:
            yield

    def count(self, images: int) -> None:
        """So many more are done."""
        if self._bar is not None:
            self._bar.update(images)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """(stop - start, F) float32.

        Raises:
            InputError: the backbone does not take images of this size.
            DataError: NaN or infinity.
        """
        part = Subset(self.images, range(start, stop))
        try:
            found = embed(self.net, part, _BATCH, None, self.num_workers, self.count)
        except AssertionError as err:  # what transformers, made for one size, raise
            raise InputError(
                f"`image_size`: {self.backbone} does not take these images ({err}). Give the size "
                "that it was trained on."
            ) from err
        bad = torch.nonzero(~found.isfinite().all(1)).flatten()
        if len(bad):
            raise DataError(
                f"{self.backbone}: the features of {len(bad)} images are not finite, the first is "
                f"image {start + int(bad[0])}. Is the file of weights damaged?"
            )
        return found.numpy()
