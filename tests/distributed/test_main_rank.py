"""What rank 0 does for all, and the weight step of all ranks together."""

import pytest
import torch

import bspml
from bspml.distributed import from_main, is_main, main_first, rank, sync_weights
from bspml.errors import InputError
from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.sharded import sharded_contrastive_statistics
from helpers.draws import around_centres

OPTIONS = {
    "auto": {"preset": "auto"},
    "quadratic": {"preset": "auto", "rule": "quadratic"},
    "paper": {"preset": "paper", "age": 2.0, "statistics": "weighted"},
    "held": {"preset": "paper", "target_maw": 0.7},
}


def data(dtype=torch.float64):
    true = torch.arange(12).repeat_interleave(9)
    rows = around_centres(true, 10, spread=0.7, seed=4, dtype=dtype)
    return rows, bspml.noise.symmetric(true, 0.3, seed=2).labels


def judged_by(options):
    rows, labels = data()
    weights = bspml.SampleWeights(labels)
    weights.fix([3, 5], [0.0, 1.0])
    curriculum = bspml.SelfPacedCurriculum(weights, **options)
    for _ in range(2):
        record = curriculum.update(rows)
    return weights.weights, record.noise_rate, record.age, curriculum.state_dict()["update"]


def statistics():
    rows, labels = data()
    weights = torch.rand(len(labels), generator=torch.Generator().manual_seed(7)).double()
    judged = torch.arange(len(labels))[5::3]
    return sharded_contrastive_statistics(rows, labels, weights.round(decimals=1), judged)


def pair_sums():
    rows, labels = data()
    ordinary = bspml.pair_statistics(rows, labels, across_ranks=True)
    steep = bspml.pair_statistics(rows, labels, beta=200, base=0, across_ranks=True)
    return torch.stack([ordinary.xi_pos, ordinary.xi_neg, steep.xi_pos, steep.xi_neg])


def fail():
    raise InputError("only here")


def on_a_rank():
    found = {name: judged_by(options) for name, options in OPTIONS.items()}
    calls = []
    found["value"] = from_main(lambda: calls.append(rank()) or {"rank": rank()})
    found["calls"] = calls
    try:
        from_main(fail)
    except InputError as err:
        found["error"] = (str(err), err.said_elsewhere)
    weights = bspml.SampleWeights([0, 0, 1])
    if is_main():
        weights.update([0.25, 0.5, 1.0])
    sync_weights(weights)
    found["synced"] = weights.weights.tolist()
    found["statistics"], found["pairs"] = statistics(), pair_sums()
    found["first"] = main_first(rank)
    return found


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", OPTIONS)
def test_weights_are_those_of_one_process_on_every_rank(everyone, size, name):
    weights, rate, age, state = judged_by(OPTIONS[name])
    for found in everyone(__file__, size):
        theirs, their_rate, their_age, their_state = found[name]
        torch.testing.assert_close(theirs, weights, rtol=1e-6, atol=1e-6)
        assert their_rate == rate
        assert their_age == pytest.approx(age, rel=1e-9) if age else their_age is None
        assert their_state.keys() == state.keys()
        assert their_state.get("phase") == state.get("phase")
    everyones = [found[name][0] for found in everyone(__file__, size)]
    assert all(torch.equal(theirs, everyones[0]) for theirs in everyones)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_shared_statistics_are_the_whole(everyone, size):
    rows, labels = data()
    weights = torch.rand(len(labels), generator=torch.Generator().manual_seed(7)).double()
    judged = torch.arange(len(labels))[5::3]
    alone = contrastive_statistics(rows, labels, weights.round(decimals=1), rows=judged)
    for found in everyone(__file__, size):
        stats = found["statistics"]
        for name in ("own", "everyone", "difficulty", "other"):
            torch.testing.assert_close(
                getattr(stats, name), getattr(alone, name), rtol=1e-12, atol=1e-12, equal_nan=True
            )
        for name in ("testable", "support", "other_class", "own_bin", "codes", "class_support"):
            assert torch.equal(getattr(stats, name), getattr(alone, name)), name
        assert (stats.null_by_support == alone.null_by_support).all()


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_pair_statistics_shared_by_blocks_are_the_whole(everyone, size):
    for found in everyone(__file__, size):
        torch.testing.assert_close(found["pairs"], pair_sums(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_only_the_first_rank_works_and_all_know_the_outcome(everyone, size):
    results = everyone(__file__, size)
    for number, found in enumerate(results):
        assert found["value"] == {"rank": 0}
        assert found["calls"] == ([0] if number == 0 else [])
        assert found["error"] == ("only here", number > 0)
        assert found["synced"] == [0.25, 0.5, 1.0]
        assert found["first"] == number
