"""What the commands print: results on stdout, notes and the progress of a training on stderr.

Neither the work nor the exit code depends on a reader, who may be gone.
"""

from __future__ import annotations

import sys
from typing import Any

from bspml.cli.exit_codes import note as note
from bspml.files.run import EpochRecord, RunFolder
from bspml.words import interval_in_words


def put(text: str) -> None:
    """Print the result; a reader that went away (head, less) gets no more of it."""
    try:
        print(text)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # Python would complain once more while closing it


# --- training ------------------------------------------------------------------------------------


def labels_in_words(noise: Any, what: str) -> str:
    """Return where a section of noise takes its labels from: '30% symmetric label noise planted'.

    Args:
        noise: that section of a configuration.
        what: what the noise is called.
    """
    # The noise of a classification has neither a list nor decisions.
    file = noise.labels_file or getattr(noise, "list_file", None)
    decisions = getattr(noise, "decisions_file", None)
    if file:
        labels = f"labels of {file}"
    elif noise.kind == "none":
        labels = "labels as given" if decisions else "labels as they are"
    else:
        labels = f"{noise.rate:.0%} {noise.kind} {what} planted"
    return f"{labels}, with the decisions of {decisions}" if decisions else labels


class Terminal:
    """A bar inside each round and a line after it, both on stderr."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.bar: Any = None

    def begin(self, config: Any, folder: RunFolder) -> None:
        """Print one line: what is trained on what, and where.

        Args:
            config: the experiment.
            folder: of the run.
        """
        task = f"{config.task} of " if hasattr(config, "task") else ""  # of a classification
        labels = labels_in_words(config.noise, "noise" if task else "label noise")
        what = f"{task}{config.data.name}"
        self.say(f"{config.name}: {what}, {labels}, seed {config.seed}; {folder.path}")

    def say(self, line: str) -> None:
        """Print a line that stays."""
        if not self.quiet:
            self.close()
            note(line)

    def step(self, method: str, done: int, steps: int, loss: float) -> None:
        """Move the bar of this round.

        Args:
            method: that is trained.
            done: steps of the round so far, this one included.
            steps: of the whole round.
            loss: of this step.
        """
        if self.quiet:
            return
        if self.bar is None:
            from tqdm import tqdm

            self.bar = tqdm(
                total=steps,
                initial=done - 1,
                desc=method,
                unit="step",
                leave=False,
                file=sys.stderr,
                # No bar in a log file, where every refresh would be a line.
                disable=None if sys.stderr is not None else True,
                dynamic_ncols=True,
            )
        self.bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        self.bar.update(done - self.bar.n)

    def record(self, record: EpochRecord) -> None:
        """Print the round's line."""
        loss = f"{'':11}" if record.loss is None else f"loss {record.loss:6.3f}"
        cells = [f"{record.method:>16}", f"epoch {record.epoch:5.2f}", loss]
        if record.recall_at_k:
            k, recall = next(iter(record.recall_at_k.items()))
            cells.append(f"Recall@{k} {100 * (recall or 0):5.1f} %")
        if record.map_at_r is not None:
            cells.append(f"MAP@R {record.map_at_r:.3f}")
        if record.phase is not None:
            cells.append(f"MAW {record.maw:.3f}  SDAW {record.sdaw:.3f}")
            if record.noise_rate is not None:
                ends = interval_in_words(record.noise_rate_low, record.noise_rate_high, 2)
                cells.append(f"noise {record.noise_rate:.3f}{ends}")
            for name, auroc in (
                ("AUROC", record.detection_auroc),
                ("AUROC of outliers", record.outlier_auroc),
            ):
                if auroc is not None and auroc == auroc:  # NaN: nothing to tell apart
                    cells.append(f"{name} {auroc:.3f}")
            cells.append(record.phase)
        self.say("\n".join(["  ".join(cells), *(f"{'':>16}  {note}" for note in record.notes)]))

    def close(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None


class ClassifierTerminal(Terminal):
    """A bar inside each epoch and a line after it, both on stderr."""

    def record(self, record: EpochRecord) -> None:
        """Print the epoch's line: held-out samples, then clean and noisy ones of the training."""
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
