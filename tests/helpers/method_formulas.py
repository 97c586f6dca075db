"""A method built for a small batch, and the comparison of its loss with a formula."""

import torch

from bspml import methods
from bspml.experiment.methods import MethodContext
from helpers.draws import normal_batch

ROWS, CLASSES, WIDTH = 12, 4, 6


def build(name, **hyper):
    """The parts of a method with these hyper-parameters."""
    return methods.build(name, MethodContext(CLASSES, WIDTH, hyper=hyper))


def batch(seed=0):
    """Embeddings that want a gradient, and labels."""
    return normal_batch(ROWS, WIDTH, CLASSES, seed)


def unit(emb):
    """The rows, normalised."""
    return emb / emb.norm(dim=1, keepdim=True)


def assert_same(value, expected, emb, tolerance=1e-12):
    """Value and gradient by the embeddings are those expected."""
    torch.testing.assert_close(value, expected, rtol=0, atol=tolerance)
    grad, expected_grad = (torch.autograd.grad(v, emb)[0] for v in (value, expected))
    torch.testing.assert_close(grad, expected_grad, rtol=0, atol=tolerance)
