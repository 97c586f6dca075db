"""One experiment: the same network trained plainly and with BSPML, and what each left behind.

A run folder holds the resolved configuration, one record per round, a checkpoint per method, the
weights as a table, figures, and at the end a summary; its presence means the run is complete.
Whatever interrupts a run, `resume=True` goes on from the last checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

from bspml.distributed import explained, from_main, is_main, main_first
from bspml.errors import ConfigError, InputError
from bspml.experiment.build import (
    make_curriculum,
    make_method,
    make_network,
    make_optimizer,
    make_sampler,
    make_weights,
)
from bspml.experiment.config import Config
from bspml.experiment.data import ExperimentData, load_data
from bspml.experiment.method import MethodRun
from bspml.experiment.opening import opening_lines
from bspml.experiment.outputs import write_outputs
from bspml.experiment.resuming import (
    check_none_missing,
    check_ranks_agree,
    check_rounds,
    load_states,
    run_folder,
    set_threads,
)
from bspml.files.checkpoints import State
from bspml.files.run import RecordLog, RunFolder
from bspml.report.tables import Results
from bspml.tensors.checks import check_device
from bspml.trainers.narration import Narrator, Silent


@dataclass(frozen=True)
class ExperimentResult:
    """What an experiment ends with.

    Attributes:
        results: {method: {column: value}}, the final table.
        folder: the run's folder.
        noise_rate: true share of wrong labels, where known.
    """

    results: Results
    folder: RunFolder
    noise_rate: float | None


def run_experiment(
    config: Config,
    folder: RunFolder,
    resume: bool = False,
    narrator: Narrator | None = None,
    figures: bool = True,
    data: ExperimentData | None = None,
) -> ExperimentResult:
    """Train every method of `config`, write everything into `folder`, return the final table.

    Args:
        config: the experiment.
        folder: of a new run (`RunFolder.create`), or of an interrupted one with `resume`.
        resume: go on from the checkpoints in `folder`.
        narrator: told what happens.
        figures: draw them at the end.
        data: what `load_data(config)` gives, if it is loaded already.

    In a torch.distributed group all ranks make this call and train together; rank 0 alone opens the
    folder and is heard.  Otherwise only one process at a time trains in a folder.

    A new run that fails by a user's mistake before its first checkpoint leaves nothing behind.

    Raises:
        ConfigError: settings that cannot work with these data, or, with `resume`, that changed.
        CheckpointError: the data set changed since the checkpoint, or a checkpoint is damaged.
        RunError: a file cannot be written, or another process is training this run.
    """
    narrator = narrator if narrator is not None and is_main() else Silent()
    data = main_first(lambda: load_data(config)) if data is None else data
    check_experiment(config, data, pretrained=not resume)
    held = run_folder(folder, config, config.training.methods, resume)
    with held if is_main() else nullcontext(), explained():
        log = _train(config, folder, resume, narrator, data)
        results = from_main(lambda: write_outputs(config, data, folder, log.read(), figures))
    return ExperimentResult(results, folder, data.noise_rate)


def check_experiment(config: Config, data: ExperimentData, pretrained: bool = True) -> None:
    """Find what cannot work before a folder is made or an hour is spent.

    Builds every part of a method once: network, sampler, optimiser, curriculum.

    Args:
        config: the experiment.
        data: what `load_data(config)` gives.
        pretrained: read the file of weights, too.

    Raises:
        UserError: the mistake, one line.
    """
    check_ranks_agree(config, data.fingerprint)
    check_device(config.device)
    most, ks = data.most_neighbours, config.evaluation.ks
    if max(ks) > most:
        raise ConfigError(
            f"`evaluation.ks` asks for the {max(ks)} nearest, but a test sample has only {most} "
            f"others. Use ks up to {most}."
        )
    make_sampler(config, data.codes)
    make_optimizer(config, make_network(config, data.width, pretrained))
    for method in config.training.methods:
        weights = make_weights(method, data)
        try:
            parts = make_method(method, config, data, weights)
        except InputError as err:
            raise ConfigError(f"`training.methods`: {err}") from None
        make_curriculum(parts, config, data, weights)


def _train(
    config: Config, folder: RunFolder, resume: bool, narrator: Narrator, data: ExperimentData
) -> RecordLog:
    """Every method, one after the other, inside the lock."""
    methods, log = list(config.training.methods), RecordLog(folder.records)
    states: dict[str, State] = {}
    if resume:
        states = from_main(lambda: load_states(folder, methods, config, data.fingerprint))
    runs = [
        MethodRun(method, config, data, folder, log, narrator, method not in states)
        for method in methods
    ]
    for run in runs:
        if run.method in states:
            run.take(states[run.method])
    from_main(lambda: _take_log(log, folder, methods, states))
    narrator.begin(config, folder)
    for line in opening_lines(config, data):
        narrator.say(line)
    # The steps of a small network are shorter than the time two threads wait for each other: two
    # trained glyphs four times slower than one.
    set_threads(config.threads, config.network.name == "small-conv", states, narrator.say)
    for run in runs:
        run.train(run.method in states)
    return log


def _take_log(
    log: RecordLog, folder: RunFolder, methods: list[str], states: Mapping[str, State]
) -> None:
    """Bring the records to where the checkpoints stand, if they belong together."""
    known = max((state["records"] for state in states.values()), default=0)
    # Parsed now, not when the table is made of them hours later.
    kept = log.first(known)
    for method, state in states.items():
        check_rounds(state, kept, folder.checkpoint(method))
    check_none_missing(folder, methods, states, kept)
    # Records written after the last checkpoint will be written again.
    log.truncate(known)
