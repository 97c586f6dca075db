"""The vote of neighbours against a loop over all samples, and on planted clusters."""

import copy
import math
from collections import Counter

import pytest
import torch
from hypothesis import given, strategies as st

from bspml.errors import InputError, SampleIndexError
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.filtered import FilteredLoss
from bspml.losses.neighbour_vote import NeighbourVote
from bspml.weights.state import SampleWeights


def loop(memory, rows, labels, index, k):
    """Of each row: sort all others by similarity, count the labels of the first k."""
    keep = []
    for x, label, i in zip(rows, labels, index, strict=True):
        x = x / x.norm()
        others = sorted(
            ((float(x @ v), other) for j, (v, other) in memory.items() if j != i), reverse=True
        )
        votes = Counter(other for _, other in others[:k])
        keep.append(not votes or votes[label] == max(votes.values()))
    return keep


@given(seed=st.integers(0, 2**20), k=st.sampled_from([1, 3, 8, 40]), classes=st.integers(1, 4))
def test_it_is_the_loop_over_all_other_samples(seed, k, classes):
    draw = torch.Generator().manual_seed(seed)
    ours, memory, shown = NeighbourVote(12, 3, k), {}, 0
    for _ in range(6):
        index = torch.randperm(12, generator=draw)[:5].tolist()
        emb = torch.randn(5, 3, generator=draw)
        labels = torch.randint(0, classes, (5,), generator=draw)
        expected = [True] * 5 if shown < 12 else loop(memory, emb, labels.tolist(), index, k)
        assert ours(emb, labels, index).tolist() == expected
        for x, label, i in zip(emb, labels.tolist(), index, strict=True):
            memory[i] = (x / x.norm(), label)
        shown += 5


def planted(rate=0.3):
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(8, 16, generator=draw)
    true = torch.arange(8).repeat_interleave(20)
    emb = centres[true] + 0.4 * torch.randn(160, 16, generator=draw)
    wrong = torch.rand(160, generator=draw) < rate
    shift = torch.randint(1, 8, (160,), generator=draw)
    return emb, torch.where(wrong, (true + shift) % 8, true), wrong


def test_it_finds_planted_wrong_labels_without_a_rate():
    for rate in (0.0, 0.3):
        emb, labels, wrong = planted(rate)
        keep = NeighbourVote(160, 16)
        assert keep(emb, labels, torch.arange(160)).all()
        assert torch.equal(keep(emb, labels, torch.arange(160)), ~wrong)


def test_a_draw_keeps_and_a_sample_does_not_vote_for_itself():
    keep = NeighbourVote(3, 2, k=2)
    emb, labels = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.9, 0.2]]), torch.tensor([0, 0, 1])
    keep(emb, labels, [0, 1, 2])
    # The first two: one vote each way.  The last: two against it, its own does not count.
    assert keep(emb, labels, [0, 1, 2]).tolist() == [True, True, False]


def test_renamed_classes_and_longer_rows_change_nothing():
    emb, labels, _ = planted()
    first, second = NeighbourVote(160, 16), NeighbourVote(160, 16)
    for _ in range(2):
        keep = first(emb, labels, torch.arange(160))
        assert torch.equal(keep, second(7.0 * emb.double(), 100 - labels, torch.arange(160)))
    assert not keep.all()


def test_eval_mode_changes_nothing_and_a_resumed_filter_goes_on_exactly():
    emb, labels, _ = planted()
    ours = NeighbourVote(160, 16)
    ours(emb, labels, torch.arange(160))
    resumed = NeighbourVote(160, 16)
    resumed.load_state_dict(copy.deepcopy(ours.state_dict()))
    ours.eval()
    first = ours(emb.flip(0), labels, torch.arange(160))
    assert torch.equal(first, ours(emb.flip(0), labels, torch.arange(160)))
    assert torch.equal(first, resumed(emb.flip(0), labels, torch.arange(160)))


def test_a_filtered_loss_tells_it_whose_rows_they_are():
    emb, labels, wrong = planted()
    weights = SampleWeights(labels)
    loss = FilteredLoss(BSPMLLoss(), NeighbourVote(160, 16), weights=weights)
    order = torch.arange(160).flip(0)
    for _ in range(2):
        loss(emb[order], labels[order], sample_index=order)
    assert torch.equal(loss.as_weights() == 0, wrong)
    assert torch.equal(loss.sample_filter.memory_labels, labels)
    with pytest.raises(InputError, match="`weights` must be given: NeighbourVote"):
        FilteredLoss(BSPMLLoss(), NeighbourVote(160, 16))


@pytest.mark.parametrize("change", [{"num_samples": 0}, {"embedding_size": 0}, {"k": 0}])
def test_impossible_settings_are_refused(change):
    with pytest.raises(InputError, match=f"`{next(iter(change))}` must be a whole number"):
        NeighbourVote(**{"num_samples": 2, "embedding_size": 2, **change})


def test_batches_that_do_not_fit_are_refused_and_not_remembered():
    keep, labels = NeighbourVote(4, 2), torch.tensor([0, 1])
    with pytest.raises(InputError, match=r"the memory's 2 columns; got 3"):
        keep(torch.eye(3)[:2], labels, [0, 1])
    with pytest.raises(InputError, match="`labels` must be 0 at least; got -1"):
        keep(torch.eye(2), labels - 1, [0, 1])
    with pytest.raises(InputError, match="`labels` must be given"):
        keep(torch.eye(2), None, [0, 1])
    with pytest.raises(InputError, match="`sample_index` must be given"):
        keep(torch.eye(2), labels)
    with pytest.raises(SampleIndexError):
        keep(torch.eye(2), labels, [0, 4])
    with pytest.raises(InputError, match="must be finite"):
        keep(torch.full((2, 2), math.nan), labels, [0, 1])
    assert keep.rows_shown == 0
    assert keep(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64), []).shape == (0,)


@pytest.mark.parametrize("scale", [1e-30, 1e25])
def test_rows_of_any_finite_length_vote_alike(scale):
    emb, labels, _ = planted()
    votes = []
    for x in (emb, scale * emb):
        keep = NeighbourVote(160, 16)
        keep(x, labels, torch.arange(160))
        votes.append(keep(x, labels, torch.arange(160)).tolist())
    assert votes[0] == votes[1]
    assert not all(votes[0])
