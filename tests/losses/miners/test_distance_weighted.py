"""Distance-weighted sampling: the parent's triplets, from a generator of the batch's own."""

import pytest
import torch
from pytorch_metric_learning import miners as pml_miners

from bspml.errors import InputError
from bspml.losses.miners.distance_weighted import DistanceWeightedMiner


def batch(rows=32, classes=8, width=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    emb = torch.nn.functional.normalize(torch.randn(rows, width, generator=generator))
    return emb, torch.arange(rows) % classes


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_same_batch_gives_the_same_triplets_and_another_batch_others():
    emb, labels = batch()
    miner = DistanceWeightedMiner()
    first = miner(emb, labels)
    torch.manual_seed(5)
    torch.rand(3)
    assert same(first, miner(emb, labels))
    assert same(first, DistanceWeightedMiner()(emb.clone(), labels.clone()))
    assert not same(first, DistanceWeightedMiner(seed=1)(emb, labels))
    moved = emb.clone()
    moved[0, 0] += 1e-6
    assert not same(first, miner(moved, labels))


def test_the_global_generator_is_left_alone():
    emb, labels = batch()
    before = torch.get_rng_state()
    DistanceWeightedMiner()(emb, labels)
    assert torch.equal(before, torch.get_rng_state())


def test_triplets_are_the_parent_s_for_the_same_generator():
    emb, labels = batch()
    miner = DistanceWeightedMiner(cutoff=0.4, nonzero_loss_cutoff=1.2, seed=3)
    ours = miner(emb, labels)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(miner._seed_of(emb, labels, emb, labels))
        theirs = pml_miners.DistanceWeightedMiner(cutoff=0.4, nonzero_loss_cutoff=1.2)(emb, labels)
    assert same(ours, theirs)


def test_triplets_are_triplets_with_near_negatives():
    emb, labels = batch(64, 16)
    a, p, n = DistanceWeightedMiner(nonzero_loss_cutoff=1.3)(emb, labels)
    assert len(a) > 0
    assert (labels[a] == labels[p]).all()
    assert (a != p).all()
    assert (labels[a] != labels[n]).all()
    assert ((emb[a] - emb[n]).norm(dim=1) < 1.3).all()


def test_near_negatives_are_drawn_as_often_as_the_weights_say():
    # Three negatives at distances .6, .9 and 1.2 of one anchor, in 6 dimensions.
    distances = torch.tensor([0.6, 0.9, 1.2], dtype=torch.float64)
    cosines = 1 - distances.square() / 2
    emb = torch.zeros(5, 6, dtype=torch.float64)
    emb[:2, 0] = 1
    emb[2:, 0] = cosines
    emb[2:, 1] = (1 - cosines.square()).sqrt()
    labels = torch.tensor([0, 0, 1, 2, 3])
    drawn = torch.zeros(3)
    for seed in range(1500):
        a, _, n = DistanceWeightedMiner(seed=seed)(emb, labels)
        drawn += torch.bincount(n[a == 0] - 2, minlength=3)
    density = distances.pow(4) * (1 - distances.square() / 4).pow(1.5)  # q(d), d - 2 = 4
    expected = (1 / density) / (1 / density).sum()
    torch.testing.assert_close((drawn / drawn.sum()).double(), expected, rtol=0, atol=0.03)


def test_references_half_precision_and_batches_without_triplets_work():
    emb, labels = batch()
    refs, ref_labels = batch(20, 5, seed=1)
    a, p, n = DistanceWeightedMiner()(emb, labels, refs, ref_labels)
    assert (labels[a] == ref_labels[p]).all()
    assert (labels[a] != ref_labels[n]).all()
    assert len(DistanceWeightedMiner()(emb.bfloat16(), labels)[0]) > 0
    assert [len(t) for t in DistanceWeightedMiner()(emb, torch.zeros(32).long())] == [0, 0, 0]
    with pytest.raises(InputError, match="`seed` must be a whole number of at least 0"):
        DistanceWeightedMiner(seed=-1)


@pytest.mark.parametrize("name", ["cutoff", "nonzero_loss_cutoff"])
def test_a_cutoff_that_is_not_above_0_is_refused(name):
    for value in (0, -1, float("nan")):
        with pytest.raises(InputError, match=rf"`{name}` must be in \(0, inf\)"):
            DistanceWeightedMiner(**{name: value})
