"""`bspml noise`: a label file with wrong labels in it, the truth kept beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from bspml.data import noise
from bspml.errors import InputError
from bspml.files.tables import read_labels, write_labels
from bspml.tensors.checks import check_choice
from bspml.words import counted

# The kinds that need labels only.
KINDS: dict[str, Callable[..., noise.NoisyLabels]] = {
    "symmetric": noise.symmetric,
    "pair-flip": noise.pair_flip,
    "small-cluster": noise.small_cluster,
    "open-set": noise.open_set,
}
_READ_BY = {
    "per_class": ("symmetric", "pair-flip"),
    "keep_original": ("symmetric",),
    "exact": ("symmetric", "pair-flip"),
}


def run_noise(
    labels: str,
    kind: str,
    rate: float,
    per_class: bool,
    keep_original: bool,
    by_chance: bool,
    output: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Write index, label, true_label, is_noisy as CSV; as .npz with the matrix."""
    check_choice(kind, "--kind", list(KINDS))
    asked = {
        "per_class": ("--per-class", per_class, True),
        "keep_original": ("--keep-original", keep_original, True),
        "exact": ("--by-chance", by_chance, False),
    }
    options = {}
    for name, (flag, on, value) in asked.items():
        if on and kind not in _READ_BY[name]:
            raise InputError(f"{flag} goes with {' and '.join(_READ_BY[name])}; got --kind {kind}.")
        if on:
            options[name] = value
    given = read_labels(labels)
    noisy = KINDS[kind](given, rate, seed=seed, **options)
    path = Path(output or f"{Path(labels).stem}-{kind}-{rate:g}.csv")
    if path.suffix.lower() == ".npz":
        noisy.save(path)
    else:
        columns = {
            "label": noisy.labels.tolist(),
            "true_label": given.tolist(),
            "is_noisy": [int(flag) for flag in noisy.is_noisy],
        }
        write_labels(path, columns)
    changed = int(noisy.is_noisy.sum())
    if as_json:
        print(json.dumps({"file": str(path), "changed": changed, "samples": len(given)}))
    else:
        print(
            f"{path}: {changed} of {counted(len(given), 'label')} changed ({kind}, rate {rate:g})"
        )
