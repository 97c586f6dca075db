"""Whether nested states are equal and weights feasible, and gradients to compare."""

import numpy as np
import torch


def same(a, b):
    """Equal state: tensors and arrays bit for bit, NaN in the same place being equal."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) or bool(
            (a.isnan() & b.isnan()).any() and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
        )
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def feasible(weights):
    """Whether each lies in [0, 1], without any slack, and none is NaN."""
    return all(0 <= float(weight) <= 1 for weight in weights)


def gradient(loss, inputs, labels):
    """Of the sum of `loss(inputs, labels)` by the inputs."""
    leaf = inputs.detach().clone().requires_grad_()
    loss(leaf, labels).sum().backward()
    return leaf.grad


def label_probability(logits, labels):
    """(N,) softmax at the label."""
    return logits.softmax(1).gather(1, labels[:, None]).squeeze(1)
