"""A retrieval experiment: the same network trained by each method, its embeddings searched.

A run folder holds the resolved configuration, one record per round, a checkpoint per method, the
weights as a table, figures, a page, and at the end a summary.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

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
from bspml.experiment.data import ExperimentData
from bspml.experiment.engine import Experiment, MethodRun, Outputs, Workplace
from bspml.experiment.method import RetrievalRun
from bspml.experiment.outputs import write_outputs, write_page
from bspml.experiment.words import opening_lines
from bspml.files.run import EpochRecord, RunFolder


class Retrieval(Experiment):
    """Train every method of a `Config`.

    Args:
        config: the experiment.
        data: what `bspml.experiment.data.load_data(config)` gives.
    """

    config: Config
    data: ExperimentData

    def __init__(self, config: Config, data: ExperimentData) -> None:
        super().__init__(config, data)
        self.methods = list(config.training.methods)
        self.one_thread_is_faster = config.network.name == "small-conv"

    def check_parts(self, pretrained: bool) -> None:
        """Build every part of a method once: network, sampler, optimiser, curriculum."""
        config, data = self.config, self.data
        most, ks = data.most_neighbours, config.evaluation.ks
        if max(ks) > most:
            raise ConfigError(
                f"`evaluation.ks` asks for the {max(ks)} nearest, but a test sample has only "
                f"{most} others. Use ks up to {most}."
            )
        make_sampler(config, data.codes)
        make_optimizer(config, make_network(config, data.width, pretrained))
        for method in self.methods:
            weights = make_weights(method, data)
            try:
                parts = make_method(method, config, data, weights)
            except InputError as err:
                raise ConfigError(f"`training.methods`: {err}") from None
            make_curriculum(parts, config, data, weights)

    def opening_lines(self) -> list[str]:
        """Say what is trained on, what is held out, what was changed about either."""
        return opening_lines(self.config, self.data)

    def start(self, workplace: Workplace, resumed: Collection[str]) -> Sequence[MethodRun]:
        """Build every method; what will take a checkpoint needs no file of weights.

        Args:
            workplace: of the run.
            resumed: methods that will take the state of a checkpoint.
        """
        return [
            RetrievalRun(method, self, workplace, pretrained=method not in resumed)
            for method in self.methods
        ]

    def write_outputs(
        self,
        folder: RunFolder,
        runs: Sequence[MethodRun],
        records: Sequence[EpochRecord],
        figures: bool,
    ) -> Outputs:
        """Write the weights of every method that has any, and figures of the first."""
        return write_outputs(self.config, self.data, folder, records, figures)

    def write_page(self, folder: RunFolder) -> None:
        """Write report.html."""
        write_page(folder)
