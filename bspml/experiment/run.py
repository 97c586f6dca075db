"""From a configuration to a finished run: retrieval, classification or regression.

`run_experiment` loads the data that the configuration names and hands the experiment to the engine,
`bspml.experiment.engine`, where the way through is written down.
"""

from __future__ import annotations

from typing import Any

from bspml.distributed import main_first, ranks
from bspml.errors import ConfigError
from bspml.experiment.classification.data import load_data as load_targets
from bspml.experiment.classification.experiment import Classification
from bspml.experiment.config import ClassificationConfig, Config
from bspml.experiment.data import load_data
from bspml.experiment.engine import Experiment, ExperimentResult, train_experiment
from bspml.experiment.retrieval import Retrieval
from bspml.files.run import RunFolder
from bspml.tensors.arguments import check_flags
from bspml.trainers.progress import Narrator


def experiment_of(config: Config | ClassificationConfig, data: Any = None) -> Experiment:
    """Return the experiment that a configuration describes, its data loaded.

    Args:
        config: of any `task`.
        data: what this function loads, if they are there already: `ExperimentData` or `TaskData`.

    Raises:
        DataError: files missing or damaged, or labels of another number than samples.
        ConfigError: settings that do not go with the data set, or a classification by several
            processes.
    """
    if not isinstance(config, ClassificationConfig):
        return Retrieval(config, main_first(lambda: load_data(config)) if data is None else data)
    if ranks() > 1:
        raise ConfigError(
            f"`task`: {config.task} is trained by one process; got {ranks()}. Start it without "
            "torchrun."
        )
    return Classification(config, load_targets(config) if data is None else data)


def run_experiment(
    config: Config | ClassificationConfig,
    folder: RunFolder,
    resume: bool = False,
    narrator: Narrator | None = None,
    figures: bool = True,
    data: Any = None,
) -> ExperimentResult:
    """Train every method of `config`, write everything into `folder`, return the final table.

    See `bspml.experiment.engine.train_experiment` for what several processes and failures do.

    Args:
        config: the experiment.
        folder: of a new run (`RunFolder.create`), or of an interrupted one with `resume`.
        resume: go on from the checkpoints in `folder`.
        narrator: told what happens.
        figures: draw them, and the page, at the end; a classification has none.
        data: of the experiment, if they are loaded already.

    Raises:
        ConfigError: settings that cannot work with these data, or, with `resume`, that changed.
        CheckpointError: the data set changed since the checkpoint, or a checkpoint is damaged.
        RunError: a file cannot be written, another process is training this run, or the training
            diverged.
    """
    check_flags(resume=resume, figures=figures)
    experiment = experiment_of(config, data)
    return train_experiment(experiment, folder, resume, narrator, figures)
