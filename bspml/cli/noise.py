"""`bspml noise`: a label file with wrong labels in it, the truth kept beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from bspml.cli.options import NoiseOptions
from bspml.data import noise
from bspml.data.labels.decisions import DECIDED, is_corrected
from bspml.data.labels.own_labels import held_labels, refuse_planted
from bspml.errors import InputError
from bspml.files.atomic import check_not_read, remove_leftovers
from bspml.files.cells import label_cells
from bspml.files.delimited import write_table
from bspml.files.tables import read_beside
from bspml.tensors.checks import check_choice
from bspml.words import counted

# The kinds that need labels only.
KINDS: dict[str, Callable[..., noise.NoisyLabels]] = {
    "symmetric": noise.symmetric,
    "pair-flip": noise.pair_flip,
    "small-cluster": noise.small_cluster,
    "open-set": noise.open_set,
    "semantic": noise.semantic,  # by the names of the classes
}
_READ_BY = {
    "per_class": ("symmetric", "pair-flip", "semantic"),
    "keep_original": ("symmetric",),
    "exact": ("symmetric", "pair-flip"),
}


def run_noise(options: NoiseOptions) -> None:
    """Write index, label, true_label, is_noisy as CSV, with what else the file has beside its
    labels; as .npz with the matrix."""
    kind, rate = options.kind, options.rate
    check_choice(kind, "--kind", list(KINDS))
    switches = {
        "per_class": ("--per-class", options.per_class, True),
        "keep_original": ("--keep-original", options.keep_original, True),
        "exact": ("--by-chance", options.by_chance, False),
    }
    settings = {}
    for name, (flag, on, value) in switches.items():
        if on and kind not in _READ_BY[name]:
            raise InputError(f"{flag} goes with {' and '.join(_READ_BY[name])}; got --kind {kind}.")
        if on:
            settings[name] = value
    if options.per_class and options.by_chance:
        raise InputError("--per-class fixes the counts that --by-chance leaves open; give one.")
    true_labels = held_labels(options.labels)
    refuse_planted(options.labels, "the truth that would be kept beside the new ones")
    # A decision is about a label that a wrong one may stand for now.
    passed = DECIDED if is_corrected(options.labels) else ()
    beside = {k: v for k, v in read_beside(options.labels).items() if k.lower() not in passed}
    noisy = KINDS[kind](true_labels, rate, seed=options.seed or 0, **settings)
    path = Path(options.output or f"{Path(options.labels).stem}-{kind}-{rate:g}.csv")
    if path.suffix.lower() not in ("", ".csv", ".npz"):
        raise InputError(f"--output must end in .csv or .npz; got {path.name}.")
    check_not_read(path, options.labels)
    remove_leftovers(path.parent)
    if path.suffix.lower() == ".npz":
        noisy.save(path)
    else:
        columns = {
            "index": range(len(true_labels)),
            "label": label_cells(noisy.labels),
            "true_label": label_cells(true_labels),
            "is_noisy": [int(flag) for flag in noisy.is_noisy],
        }
        write_table(path, columns | {k: v for k, v in beside.items() if k.lower() not in columns})
    num_changed = int(noisy.is_noisy.sum())
    if options.json:
        print(json.dumps({"file": str(path), "changed": num_changed, "samples": len(true_labels)}))
    else:
        labels = counted(len(true_labels), "label")
        print(f"{path}: {num_changed} of {labels} changed ({kind}, rate {rate:g})")
