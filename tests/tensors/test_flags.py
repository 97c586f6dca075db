"""Every keyword that is true or false refuses what is neither, before anything else is done."""

import dataclasses
import inspect
from unittest.mock import MagicMock

import numpy as np
import pytest

import bspml
from bspml import networks
from bspml.data.checking import check_dataset
from bspml.data.retrieval import RetrievalSplit
from bspml.data.transforms import standard_view
from bspml.errors import InputError
from bspml.experiment.engine import train_experiment
from bspml.experiment.run import run_experiment
from bspml.miners import BSPMLMiner
from bspml.noise import NoisyLabels
from bspml.statistics.label_errors import judge_labels
from bspml.statistics.label_model import fit_label_model
from bspml.statistics.noise_rate import estimate_noise
from bspml.tensors.arguments import check_flags
from bspml.trainers.step import StepTrainer
from bspml.weights.doubly_stochastic import StochasticOptions
from bspml.weights.problem import WeightProblem

# What users import has its names in these; the rest is reached through the command line, too.
_DOORS = [bspml, *(getattr(bspml, name) for name in bspml._MODULES), networks]
_MORE = [
    *(check_dataset, RetrievalSplit, standard_view, train_experiment, run_experiment),
    *(BSPMLMiner, NoisyLabels, judge_labels, fit_label_model, estimate_noise),
    *(StepTrainer, StochasticOptions, WeightProblem),
]
# Read by pydantic, in its own words; called by the trainer alone.
_OTHERS = ("SelfPacedCurriculum.__init__", "StepTrainer.step_lr_schedulers")


def _functions():
    things = [getattr(d, name) for d in _DOORS for name in getattr(d, "__all__", dir(d))]
    for thing in [*things, *_MORE]:
        members = vars(thing).items() if inspect.isclass(thing) else [("", thing)]
        for name, member in members:
            function = getattr(member, "__func__", member)
            is_record = dataclasses.is_dataclass(thing) and not hasattr(thing, "__post_init__")
            if is_record and name == "__init__":
                continue  # nobody makes it but bspml
            if inspect.isfunction(function) and (name == "__init__" or name[:1] != "_"):
                yield inspect.unwrap(function), thing


def _flags():
    found = {}
    for function, thing in _functions():
        for name, parameter in inspect.signature(function).parameters.items():
            has_default = parameter.default is not parameter.empty
            is_ours = function.__module__.startswith("bspml")
            if parameter.annotation in (bool, "bool") and is_ours and has_default:
                found[f"{function.__qualname__} {name}"] = (function, name, thing)
    return {k: v for k, v in found.items() if not k.split()[0].endswith(_OTHERS)}


FLAGS = _flags()


def test_the_keywords_are_found():
    assert len(FLAGS) > 30
    assert "evaluate query_in_gallery" in FLAGS


@pytest.mark.parametrize("odd", [[True, False], np.array([True]), 1, "yes", None], ids=repr)
def test_what_is_neither_true_nor_false_is_refused(odd):
    taken = []
    for where, (function, flag, thing) in FLAGS.items():
        needed = {
            name: MagicMock()
            for name, p in inspect.signature(function).parameters.items()
            if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        }
        if "self" in needed:
            needed["self"] = object.__new__(thing)
        try:
            function(**needed | {flag: odd})
        except Exception as err:
            sentence = f"`{flag}` must be True or False; got "
            if isinstance(err, InputError) and str(err).startswith(sentence):
                continue
        taken.append(where)
    assert taken == []


def test_flags_of_numpy_pass():
    check_flags(exact=np.True_, other=False)
