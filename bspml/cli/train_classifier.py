"""`bspml train` for `task: classification` and `task: regression`: what differs on the terminal."""

from __future__ import annotations

from typing import Any

from bspml.cli.train import Terminal, labels_in_words
from bspml.files.run import EpochRecord, RunFolder


class ClassifierTerminal(Terminal):
    """A bar inside each epoch and a line after it, both on stderr."""

    files = "weights.csv, predictions.csv, records.jsonl"

    def begin(self, config: Any, folder: RunFolder) -> None:
        """One line: what is trained on what, and where."""
        labels = labels_in_words(config.noise, "noise")
        self.say(
            f"{config.name}: {config.task} of {config.data.name}, {labels}, seed {config.seed}; "
            f"{folder.path}"
        )

    def record(self, record: EpochRecord) -> None:
        """The epoch's line: held-out samples, then the clean and the noisy subset of training."""
        cells = [f"{record.method:>18}", f"epoch {record.epoch:3g}", f"loss {record.loss:7.4f}"]
        scores: dict[str, Any] = dict(record.extra.get("scores", {}))
        error = "truncated" in scores
        for key, name in (
            ("held_out", record.extra.get("held_out")),
            ("clean", "clean"),
            ("noisy", "noisy"),
        ):
            value = scores.get(key)
            if value is not None:
                number = f"error {value:.3f}" if error else f"{100 * value:5.1f} %"
                cells.append(f"{name} {number}")
        if record.detection_auroc is not None:
            cells.append(f"AUROC {record.detection_auroc:.3f}")
        self.say("  ".join(cells))
