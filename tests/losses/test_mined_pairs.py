import copy
import pickle

import pytest
import torch

from bspml.losses.mined_pairs import MinedPairs


def test_mined_pairs_are_a_tuple_to_everybody():
    mask = torch.rand(5, 5, generator=torch.Generator().manual_seed(0)) > 0.5
    pairs = MinedPairs.of(mask, ~mask)
    plain = (*mask.nonzero(as_tuple=True), *(~mask).nonzero(as_tuple=True))
    for found in (
        tuple(pairs),
        (pairs[0], *pairs[1:]),
        [*pairs],
        () + pairs,  # noqa: RUF005
        pairs + (),  # noqa: RUF005
        tuple(copy.deepcopy(pairs)),
        tuple(pickle.loads(pickle.dumps(pairs))),
        [pairs[-4], pairs[-3], pairs[-2], pairs[-1]],
    ):
        assert all(torch.equal(a, b) for a, b in zip(found, plain, strict=True))
    assert torch.equal(torch.cat(pairs), torch.cat(plain))
    assert torch.equal(torch.cat(tensors=pairs, dim=0), torch.cat(plain))
    assert len(pairs) == 4
    assert pairs == tuple(pairs)
    assert tuple(pairs) == pairs
    assert pairs != 5
    assert pairs[0] in pairs
    assert repr(pairs) == repr(tuple(pairs))
    assert hash(pairs) == hash(tuple(pairs))


def test_lists_that_nobody_looked_at_are_never_computed_with_unmade():
    mask = torch.eye(3, dtype=torch.bool)
    stand_in = next(tuple.__iter__(MinedPairs.of(mask, ~mask)))
    assert torch.equal(stand_in + 1, torch.tensor([1, 2, 3]))
    with torch._C.DisableTorchFunctionSubclass(), pytest.raises(TypeError, match="not made"):
        torch.add(stand_in, 1)
