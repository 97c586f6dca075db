"""From a folder of photos to features: what a first audit or `bspml embed` waits for.

    python benchmarks/speed --rows features --root PHOTOS

Without a root, pictures of 500 x 375 pixels are made up in a temporary folder.  The network is
efficientnet-lite0, whose weights a package carries; the cache is empty.  `user` and `system` are
seconds of the processor, all threads together; photos a second are by the clock.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bspml.data.sets.folder import read_folder
from bspml.networks.feature_cache import cached_features
from bspml.networks.feature_cache.identity import FeatureSource
from speed.measuring import Peak, Row

BACKBONE = "efficientnet-lite0"


def measure_features(quick: bool, root: Path | None = None) -> list[Row]:
    """One line, of the photos below `root`."""
    with tempfile.TemporaryDirectory() as made:
        folder = make_pictures(Path(made), 8 if quick else 500) if root is None else root
        return [measure_folder(folder, "made-up pictures" if root is None else "photos")]


def make_pictures(folder: Path, number: int, seed: int = 0) -> Path:
    """Write JPEGs of random smooth colours, in ten classes."""
    rng = np.random.default_rng(seed)
    for i in range(number):
        file = folder / str(i % 10) / f"{i}.jpg"
        file.parent.mkdir(exist_ok=True)
        colours = rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(colours).resize((500, 375), Image.Resampling.BICUBIC).save(file)
    return folder


def measure_folder(folder: Path, what: str) -> Row:
    """Extract, with a cache of its own."""
    split, source = read_folder(folder), FeatureSource(BACKBONE)
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as cache:
        few = split.take(np.arange(len(split)) < 2)
        cached_features(few, source, first, device="cpu", progress=False)  # imports
        before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        with Peak() as peak:
            cached_features(split, source, cache, device="cpu", progress=False)
        seconds, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "photos_per_second": len(split) / seconds,
        "user_s_per_1000": 1000 * (after.ru_utime - before.ru_utime) / len(split),
        "system_s_per_1000": 1000 * (after.ru_stime - before.ru_stime) / len(split),
        "page_faults_per_photo": (after.ru_minflt - before.ru_minflt) / len(split),
    }
    words = "{:.3g} photos/s; a 1,000 take {:.3g} s user, {:.2g} s system".format(*found.values())
    threads = torch.get_num_threads()
    return {
        "row": f"features of {len(split):,} {what}, {BACKBONE}, threads: {threads}",
        "ours_s": seconds,
        "peak_mb": peak.highest / 1e6,
        "met": None,
        "details": {"reason": words, **found},
    }
