"""`bspml train`: from arguments to a run folder and one table."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from pathlib import Path
from typing import Any

from bspml.cli.app import InterruptedRun
from bspml.distributed import from_main, is_main, joined
from bspml.errors import ConfigError
from bspml.experiment.config import ClassificationConfig, Config, load_experiment
from bspml.experiment.engine import train_experiment
from bspml.experiment.run import experiment_of
from bspml.files.run import EpochRecord, RunFolder
from bspml.report.tables import format_table
from bspml.tensors.checks import check_device


def run_train(
    arguments: list[str],
    resume: str | None,
    output: str | None,
    common: dict[str, Any],
    as_json: bool,
    quiet: bool,
) -> None:
    """Start or resume the experiment the arguments describe, and print its table."""
    settings = [f"{key}={value}" for key, value in common.items() if value is not None]
    with joined():
        _run(arguments, settings, resume, output, as_json, quiet)


def _run(
    arguments: list[str],
    settings: list[str],
    resume: str | None,
    output: str | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """On every rank; the first one prints and writes."""
    if resume is not None:
        if arguments or settings or output is not None:
            raise ConfigError(
                "--resume goes on with the run's own configuration; drop the other arguments, or "
                "start a new run without --resume."
            )
        folder, config = from_main(lambda: _read_run(resume))
        experiment = experiment_of(config)
    else:
        config = _read_arguments(arguments, settings)
        check_device(config.device)
        experiment = experiment_of(config)
        experiment.check()
        # Made last, so that a mistake above leaves no empty folder.
        folder = from_main(lambda: RunFolder.create(output or str(Path("runs") / config.name)))
    # pml warns of every optional dictionary entry that is absent.
    logging.getLogger("PML").setLevel(logging.ERROR)
    narrator = _terminal(config)(quiet or as_json or not is_main())
    try:
        result = train_experiment(experiment, folder, resume is not None, narrator)
    except KeyboardInterrupt:
        raise InterruptedRun(
            f"interrupted; to go on: bspml train --resume {shlex.quote(str(folder.path))}"
        ) from None
    finally:
        narrator.close()
    if is_main():
        _print_result(result, as_json, narrator.files)


def _read_run(path: str) -> tuple[RunFolder, Config | ClassificationConfig]:
    folder = RunFolder.open(path)
    return folder, load_experiment(folder.config)


def _terminal(config: Config | ClassificationConfig) -> type[Terminal]:
    if not isinstance(config, ClassificationConfig):
        return Terminal
    from bspml.cli.train_classifier import ClassifierTerminal

    return ClassifierTerminal


def _read_arguments(arguments: list[str], settings: list[str]) -> Config | ClassificationConfig:
    files = [a for a in arguments if "=" not in a or Path(a).is_file()]
    if len(files) > 1:
        raise ConfigError(
            f"one configuration file at most; got {', '.join(files)}. Settings are key=value."
        )
    overrides = [a for a in arguments if a not in files]
    return load_experiment(files[0] if files else None, [*overrides, *settings])


def _print_result(result: Any, as_json: bool, files: str) -> None:
    """The table of an `ExperimentResult`."""
    if as_json:
        value = {
            "run": str(result.folder.path),
            "true_noise_rate": result.noise_rate,
            "results": result.results,
        }
        print(json.dumps(value, allow_nan=False))
        return
    print()
    print(format_table(result.results))
    print(f"\nrun folder: {result.folder.path}  ({files})")


def labels_in_words(noise: Any, what: str) -> str:
    """Where a section of noise takes its labels from: '30% symmetric label noise planted'."""
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

    files = "weights.csv, records.jsonl, figures/"  # what a person finds in the run folder

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.bar: Any = None

    def begin(self, config: Any, folder: RunFolder) -> None:
        """One line: what is trained on what, and where."""
        labels = labels_in_words(config.noise, "label noise")
        self.say(f"{config.name}: {config.data.name}, {labels}, seed {config.seed}; {folder.path}")

    def say(self, line: str) -> None:
        """A line that stays."""
        if not self.quiet:
            self.close()
            print(line, file=sys.stderr, flush=True)

    def step(self, method: str, done: int, steps: int, loss: float) -> None:
        """Move the bar of this round."""
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
                disable=None,  # no bar in a log file, where every refresh would be a line
                dynamic_ncols=True,
            )
        self.bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        self.bar.update(done - self.bar.n)

    def record(self, record: EpochRecord) -> None:
        """The round's line."""
        cells = [f"{record.method:>16}", f"epoch {record.epoch:5.2f}", f"loss {record.loss:6.3f}"]
        if record.recall_at_k:
            k, recall = next(iter(record.recall_at_k.items()))
            cells.append(f"Recall@{k} {100 * (recall or 0):5.1f} %")
        if record.phase is not None:
            cells.append(f"MAW {record.maw:.3f}  SDAW {record.sdaw:.3f}")
            if record.noise_rate is not None:
                cells.append(f"noise {record.noise_rate:.3f}")
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
