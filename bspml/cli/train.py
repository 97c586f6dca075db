"""`bspml train`: from arguments to a run folder and one table."""

from __future__ import annotations

import json
import logging
import os
import shlex
from pathlib import Path
from typing import Any

from bspml.cli.exit_codes import InterruptedRun
from bspml.cli.options import TrainOptions
from bspml.cli.terminal import ClassifierTerminal, Terminal
from bspml.distributed import from_main, is_main, joined
from bspml.errors import ConfigError
from bspml.experiment.config import ClassificationConfig, Config, load_experiment, shipped_configs
from bspml.experiment.engine import train_experiment
from bspml.experiment.run import experiment_of
from bspml.files.run import RunFolder
from bspml.report.tables import format_table
from bspml.tensors.checks import check_choice, check_device

# Of what a run may leave; methods that weigh no sample leave no weights, a classifier no page.
_FOR_PEOPLE = ("report.html", "weights.csv", "predictions.csv", "records.jsonl", "figures/")


def run_train(options: TrainOptions) -> None:
    """Start or resume the experiment that the options describe, and print its table."""
    with joined():
        _run(options)


def _run(options: TrainOptions) -> None:
    """On every rank; the first one prints and writes."""
    resume = options.resume
    if resume is not None:
        if options.config or options.settings or options.output is not None:
            raise ConfigError(
                "--resume goes on with the run's own configuration; drop the other arguments, or "
                "start a new run without --resume."
            )
        folder, config = from_main(lambda: _read_run(resume))
        experiment = experiment_of(config)
    else:
        config = _read_arguments(options)
        check_device(config.device)
        experiment = experiment_of(config)
        experiment.check()
        # Made last, so that a mistake above leaves no empty folder.
        folder = from_main(
            lambda: RunFolder.create(options.output or str(Path("runs") / config.name))
        )
    # pml warns of every optional dictionary entry that is absent.
    logging.getLogger("PML").setLevel(logging.ERROR)
    terminal = ClassifierTerminal if isinstance(config, ClassificationConfig) else Terminal
    narrator = terminal(options.quiet or options.json or not is_main())
    try:
        result = train_experiment(experiment, folder, resume is not None, narrator)
    except KeyboardInterrupt:
        raise InterruptedRun(
            f"interrupted; to go on: bspml train --resume {shlex.quote(str(folder.path))}"
        ) from None
    finally:
        narrator.close()
    if is_main():
        _print_result(result, options.json)


def run_configs(name: str | None) -> None:
    """Print a shipped experiment as it is written, or a line for each.

    Args:
        name: of one; None: of all.
    """
    shipped = shipped_configs()
    if name is not None:
        check_choice(name, "NAME", list(shipped))
        print(shipped[name].read_text(encoding="utf-8"), end="")
        return
    width = max(map(len, shipped))
    for key, path in shipped.items():
        first = path.read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")
        print(f"{key:{width}}  {first}")


def _read_run(path: str) -> tuple[RunFolder, Config | ClassificationConfig]:
    folder = RunFolder.open(path)
    return folder, load_experiment(folder.config, unread_may_stand=True)


def _read_arguments(options: TrainOptions) -> Config | ClassificationConfig:
    arguments = options.config or []
    files = [a for a in arguments if "=" not in a or os.path.isfile(a)]  # noqa: PTH113  (long ones raise in Path)
    if len(files) > 1:
        raise ConfigError(
            f"one configuration file at most; got {', '.join(files)}. Settings are key=value."
        )
    overrides = [a for a in arguments if a not in files]
    return load_experiment(files[0] if files else None, [*overrides, *options.settings])


def _print_result(result: Any, as_json: bool) -> None:
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
    there = [name for name in _FOR_PEOPLE if (result.folder.path / name).exists()]
    print(f"\nrun folder: {result.folder.path}  ({', '.join(there)})")
