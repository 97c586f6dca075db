"""A context of methods, a batch that every miner finds pairs in, and one step on it."""

import torch

from bspml.experiment.methods import MethodContext
from bspml.weights.state import SampleWeights

ROWS, CLASSES, WIDTH = 32, 8, 16


def context(**changes):
    given = {
        "num_classes": CLASSES,
        "embedding_size": WIDTH,
        "weights": SampleWeights(torch.arange(ROWS) % CLASSES),
        "noise_rate": 0.25,
        "seed": 3,
    }
    return MethodContext(**{**given, **changes})


def batch(seed=0):
    generator = torch.Generator().manual_seed(seed)
    emb = torch.randn(ROWS, WIDTH, generator=generator)
    # Closer than random rows of 16 columns, as after a first epoch: every miner finds pairs.
    labels = torch.arange(ROWS) % CLASSES
    emb += 1.5 * torch.randn(CLASSES, WIDTH, generator=generator)[labels] + 1.0
    return emb.requires_grad_(), labels


def step(parts, emb, labels, weights):
    weights.set_batch(torch.arange(ROWS))
    pairs = None if parts.miner is None else parts.miner(emb, labels)
    return parts.loss(emb, labels, pairs)
