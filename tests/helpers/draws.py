"""Random tensors by seed: the same numbers for the same arguments, whatever was drawn before."""

import numpy as np
import torch


def generator_of(seed):
    """The generator itself, or a new one with that seed."""
    return seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)


def pixels(*shape, seed=0):
    """Values in [0, 1), as of images."""
    return torch.rand(*shape, generator=generator_of(seed))


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=generator_of(seed))


def double(values, **options):
    return torch.tensor(values, dtype=torch.float64, **options)


def balanced(classes, each):
    """Labels 0, 0, ..., 1, 1, ...: `each` of every class."""
    return np.repeat(np.arange(classes), each)


def around_centres(labels, *shape, spread, seed=0, dtype=torch.float32, classes=None):
    """A standard normal centre for each class, and rows (or maps) of `shape` around theirs.

    Drawn in `dtype`: first the centres, then the noise, which is multiplied by `spread`.  `seed`
    may be a generator, for draws before or after these.  Where labels are shapes without values,
    the number of `classes` must be given.
    """
    generator = generator_of(seed)
    classes = int(labels.max()) + 1 if classes is None else classes
    centres = torch.randn(classes, *shape, generator=generator, dtype=dtype)
    noise = torch.randn(len(labels), *shape, generator=generator, dtype=dtype)
    return centres[labels] + spread * noise


def normal_batch(rows, columns, classes, seed=0, dtype=torch.float64):
    """Embeddings that want a gradient, drawn in float64, and labels 0, 1, ..., 0, 1, ..."""
    embeddings = torch.randn(rows, columns, generator=generator_of(seed), dtype=torch.float64)
    return embeddings.to(dtype).requires_grad_(), torch.arange(rows) % classes


def logits_and_labels(seed=0, rows=10, classes=4, scale=3.0, dtype=torch.float64):
    """(N, C) logits with that standard deviation, and labels at random."""
    generator = generator_of(seed)
    logits = scale * torch.randn(rows, classes, dtype=dtype, generator=generator)
    return logits, torch.randint(classes, (rows,), generator=generator)


def clouds(rng, classes, each, dim, spread):
    """Rows around unit centres, `each` of every class, and their codes; by a generator of numpy."""
    centres = rng.standard_normal((classes, dim))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    codes = balanced(classes, each)
    return centres[codes] + spread * rng.standard_normal((len(codes), dim)), codes
