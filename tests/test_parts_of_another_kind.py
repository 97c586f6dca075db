"""A function, class or number where a part is wanted is refused where it is handed over."""

import inspect
from functools import partial

import numpy as np
import pytest
import torch
from pytorch_metric_learning import losses as pml_losses

import bspml
from bspml.data.catalogue import catalogue_entry
from bspml.data.indexed import sample_index_getter
from bspml.data.noise.noisy_labels import NoisyLabels
from bspml.errors import InputError
from bspml.evaluation import AccuracyCalculator
from bspml.experiment.methods.registry import _check_known
from bspml.networks import embed, freeze_backbone, freeze_batchnorm
from bspml.tensors.arguments import check_kind
from bspml.trainers import FixedCurriculum, Patience, average_weights

WEIGHTS, NETWORK = bspml.SampleWeights([0, 0, 1, 1]), torch.nn.Linear(3, 2)


def bare(called):
    """Past the type checks that only the tests have."""
    if not isinstance(called, type):
        return inspect.unwrap(called)
    return partial(inspect.unwrap(called.__init__), object.__new__(called))


def memory(miner):
    return bare(bspml.CrossBatchMemory)(pml_losses.ContrastiveLoss(), 2, 8, miner=miner)


CALLS = {
    "model": lambda: bare(embed)(print, torch.ones(4, 3)),
    "progress": lambda: bare(embed)(NETWORK, torch.ones(4, 3), progress="yes"),
    "network": lambda: bare(average_weights)(print),
    "weights": lambda: bare(sample_index_getter)(None),
    "weights ": lambda: bare(FixedCurriculum)(print),
    "weights  ": lambda: bare(FixedCurriculum)(bspml.SampleWeights),
    "miner": lambda: memory(print),
    "miner ": lambda: memory(bspml.BSPMLMiner),
    "distance": lambda: bspml.BSPMLLoss(WEIGHTS, distance=print),
    "distance ": lambda: bspml.BSPMLMiner(WEIGHTS, distance=print),
    "value": lambda: bare(Patience)(2, "recall"),
    "reducer": lambda: bspml.BSPMLLoss(WEIGHTS, reducer=print),
    "name": lambda: bare(bspml.networks.build_network)(None, 8),
    "name ": lambda: bare(catalogue_entry)([]),
    "path": lambda: bare(NoisyLabels.save)(bspml.noise.symmetric([0, 1], 0.5), 3),
    "hyper": lambda: bare(_check_known)("margin", torch.ones(2)),
    "include": lambda: bare(AccuracyCalculator._chosen)(AccuracyCalculator(), 3, ()),
    "exclude": lambda: bare(AccuracyCalculator._chosen)(AccuracyCalculator(), (), "nmi"),
    "seed": lambda: bare(AccuracyCalculator)(seed="x"),
    "device": lambda: bspml.evaluate(torch.eye(2), [0, 0], device=torch.ones(2)),
    "device ": lambda: bspml.evaluate(torch.eye(2), [0, 0], device=np.ones(2)),
    "problem": lambda: bare(bspml.solve_weights)([1.0, 2.0]),
    "model ": lambda: bare(freeze_backbone)(None),
    "model  ": lambda: bare(freeze_batchnorm)([NETWORK]),
    "data": lambda: bare(embed)(NETWORK, None),
    "output_device": lambda: embed(NETWORK, torch.ones(4, 3), output_device="gpu"),
    "names": lambda: bspml.audit(torch.eye(4), [0, 0, 1, 1], np.eye(4)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_part_of_another_kind_is_refused_by_name(name):
    with pytest.raises(InputError, match=f"`{name.strip()}` must (be|name) .*; got "):
        CALLS[name]()


def test_a_kind_is_an_instance_of_it():
    check_kind(NETWORK, "network", torch.nn.Module, "a network")
    with pytest.raises(InputError, match="`network` must be a network; got the class Linear"):
        check_kind(torch.nn.Linear, "network", torch.nn.Module, "a network")
