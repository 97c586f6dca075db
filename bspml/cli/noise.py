"""`bspml noise`: a label file with wrong labels in it, the truth kept beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from bspml import noise
from bspml.checks import check_choice
from bspml.data.tables import read_labels, write_labels
from bspml.errors import InputError

# The kinds that need labels only.
KINDS: dict[str, Callable[..., noise.NoisyLabels]] = {
    "symmetric": noise.symmetric,
    "pair-flip": noise.pair_flip,
    "small-cluster": noise.small_cluster,
    "open-set": noise.open_set,
}
_PER_CLASS = ("symmetric", "pair-flip")


def run_noise(
    labels: str,
    kind: str,
    rate: float,
    per_class: bool,
    output: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Write index, label, true_label, is_noisy as CSV."""
    check_choice(kind, "--kind", list(KINDS))
    if per_class and kind not in _PER_CLASS:
        raise InputError(f"--per-class goes with {' and '.join(_PER_CLASS)}; got --kind {kind}.")
    options = {"per_class": True} if per_class else {}
    given = read_labels(labels)
    noisy = KINDS[kind](given, rate, seed=seed, **options)
    path = Path(output or f"{Path(labels).stem}-{kind}-{rate:g}.csv")
    write_labels(
        path,
        {
            "label": noisy.labels.tolist(),
            "true_label": given.tolist(),
            "is_noisy": [int(flag) for flag in noisy.is_noisy],
        },
    )
    changed = int(noisy.is_noisy.sum())
    if as_json:
        print(json.dumps({"file": str(path), "changed": changed, "samples": len(given)}))
    else:
        print(f"{path}: {changed} of {len(given)} labels changed ({kind}, rate {rate:g})")
