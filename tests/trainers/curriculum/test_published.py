"""The paper's update: what it solves, which age it uses next, and what it refuses."""

import math

import pytest
import torch

import bspml
from helpers.draws import around_centres


def clusters(classes=6, per_class=8, flips=8, seed=0, spread=0.15):
    """Tight clusters on the sphere, with the first `flips` samples under the next label."""
    g = torch.Generator().manual_seed(seed)
    true = torch.arange(classes).repeat_interleave(per_class)
    E = around_centres(true, 16, spread=spread, seed=g)
    labels = true.clone()
    noisy = torch.zeros(len(true), dtype=torch.bool)
    noisy[torch.randperm(len(true), generator=g)[:flips]] = True
    labels[noisy] = (true[noisy] + 1) % classes
    return E, labels, noisy


def test_update_writes_the_solution_of_the_weight_problem_at_the_age_and_lets_the_age_grow():
    E, labels, _ = clusters()
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(
        weights, preset="paper", age=1.0, age_growth=1.5, age_max=2.0, balance=0.5
    )
    stats = bspml.pair_statistics(E, labels, alpha=2, beta=50, base=1.0)
    problem = bspml.WeightProblem(stats.xi_pos, stats.xi_neg, labels, age=1.0, balance=0.5)
    expected = bspml.solve_weights(problem)
    record = curriculum.update(E)
    assert torch.equal(weights.weights, expected.weights.float())
    assert (record.age, record.age_next) == (1.0, 1.5)
    assert record.objective_after <= record.objective_before
    assert record.stationarity <= 1e-8
    assert [curriculum.update(E).age for _ in range(3)] == [1.5, 2.0, 2.0]


def test_the_record_says_in_words_how_the_solve_ended():
    E, labels, _ = clusters()

    def after(**options):
        weights = bspml.SampleWeights(labels)
        return bspml.SelfPacedCurriculum(weights, preset="paper", age=1.0, **options).update(E)

    exact = after()
    assert exact.status == "local_minimum"
    assert exact.message == "No feasible move close by lowers the objective."
    options = {"tol": 0, "classes_per_step": 1, "samples_per_class": 1, "decay_passes": math.inf}
    sampled = after(solver="doubly-stochastic", balance=100.0, solver_options=options)
    assert sampled.status == "no_progress"
    assert "nothing needs to be changed" in sampled.message
    assert "curriculum.solver" in sampled.message


def test_the_search_of_the_solver_is_an_option_of_the_curriculum():
    E, labels, _ = clusters()
    ends = []
    for search in ("default", "deep"):
        options = {"age": 1.0, "solver_options": {"search": search}}
        curriculum = bspml.SelfPacedCurriculum(bspml.SampleWeights(labels), "paper", **options)
        ends.append(curriculum.update(E).objective_after)
    assert ends[1] <= ends[0] + 1e-12


def test_second_update_starts_from_the_first_weights():
    E, labels, _ = clusters()
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(weights, preset="paper", age=1.2, age_growth=1.0)
    first = curriculum.update(E)
    second = curriculum.update(E)
    # A stationary point is where the solver stops at once.
    assert second.changed == 0
    assert second.objective_before == pytest.approx(first.objective_after, abs=1e-6)


@pytest.mark.parametrize("target", [0.3, 0.6, 0.9])
def test_target_maw_is_met_within_its_tolerance(target):
    E, labels, _ = clusters(classes=12, per_class=20, flips=30)
    weights = bspml.SampleWeights(labels)
    record = bspml.SelfPacedCurriculum(weights, preset="paper", target_maw=target).update(E)
    assert record.maw == pytest.approx(target, abs=2e-3)
    assert record.age > 0


def test_a_curriculum_whose_age_was_found_to_be_0_goes_on():
    E, labels, _ = clusters()
    first, again = (
        bspml.SelfPacedCurriculum(bspml.SampleWeights(labels), preset="paper", target_maw=0)
        for _ in range(2)
    )
    assert first.update(E).age <= 0
    again.load_state_dict(first.state_dict())
    assert again.state_dict()["update"] == first.state_dict()["update"]


def test_flipped_labels_lose_their_weight():
    E, labels, noisy = clusters()
    weights = bspml.SampleWeights(labels)
    record = bspml.SelfPacedCurriculum(
        weights, preset="paper", target_maw=0.8, is_noisy=noisy
    ).update(E)
    assert record.detection_recall >= 0.9
    assert record.detection_precision >= 0.7


def test_weighted_statistics_ignore_samples_of_weight_zero():
    E, labels, noisy = clusters()
    weights = bspml.SampleWeights(labels)
    weights.update((~noisy).double())
    curriculum = bspml.SelfPacedCurriculum(
        weights, preset="paper", age=1.0, statistics="weighted", base=0.5
    )
    w = (~noisy).double()
    stats = bspml.pair_statistics(E, labels, base=0.5, sample_weights=w)
    problem = bspml.WeightProblem(stats.xi_pos, stats.xi_neg, labels, age=1.0)
    curriculum.update(E)
    expected = bspml.solve_weights(problem, start=w).weights.float()
    assert torch.equal(weights.weights, expected)


def test_algorithm_3_solves_at_the_age_that_meets_the_target():
    E, labels, _ = clusters()
    exact, stochastic = bspml.SampleWeights(labels), bspml.SampleWeights(labels)
    bspml.SelfPacedCurriculum(exact, preset="paper", target_maw=0.6).update(E)
    record = bspml.SelfPacedCurriculum(
        stochastic, preset="paper", target_maw=0.6, solver="doubly-stochastic"
    ).update(E)
    assert not torch.equal(exact.weights, stochastic.weights)
    assert record.maw == pytest.approx(0.6, abs=0.2)


def test_options_of_the_solver_are_read_beside_a_target_maw():
    E, labels, _ = clusters()
    records = [
        bspml.SelfPacedCurriculum(
            bspml.SampleWeights(labels), preset="paper", target_maw=0.6, solver_options=options
        ).update(E)
        for options in (None, {"max_sweeps": 1, "tol": 1e-15})
    ]
    assert records[0].age == records[1].age
    assert [record.status for record in records] == ["local_minimum", "max_sweeps"]


def test_without_noise_the_record_names_the_false_alarms():
    E, labels, _ = clusters(flips=0)
    weights = bspml.SampleWeights(labels)
    truth = torch.zeros(len(labels), dtype=torch.bool)
    record = bspml.SelfPacedCurriculum(
        weights, preset="paper", target_maw=0.5, is_noisy=truth
    ).update(E)
    assert record.false_alarm_rate == pytest.approx(float((weights.weights < 0.5).float().mean()))


@pytest.mark.parametrize("statistics", ["unweighted", "weighted"])
@pytest.mark.parametrize("decided", ["suspects", "a class"])
def test_labels_decided_to_be_wrong_are_as_absent(decided, statistics):
    E, labels, noisy = clusters(flips=12)
    rows = noisy.nonzero()[:6, 0] if decided == "suspects" else (labels == 2).nonzero()[:, 0]
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[rows] = False
    options = {"preset": "paper", "age": 0.6, "statistics": statistics}
    weights, fewer = bspml.SampleWeights(labels), bspml.SampleWeights(labels[rest])
    weights.fix(rows, torch.zeros(len(rows)))
    one, other = (bspml.SelfPacedCurriculum(table, **options) for table in (weights, fewer))
    for _ in range(3):
        records = one.update(E), other.update(E[rest])
        assert torch.equal(weights.weights[rest], fewer.weights)
        assert 0 < float(fewer.weights.mean()) < 1
        assert records[0].objective_after == records[1].objective_after
    assert not weights.weights[rows].any()


def test_a_target_is_met_by_all_labels_those_decided_among_them():
    E, labels, _ = clusters(flips=0)
    labels[::8] = (labels[::8] + 1) % 6  # one of 8 of each class
    weights = bspml.SampleWeights(labels)
    weights.fix(torch.arange(1, 48, 8), torch.zeros(6))  # and another one
    record = bspml.SelfPacedCurriculum(weights, preset="paper", target_maw=0.7).update(E)
    assert record.maw == pytest.approx(0.7, abs=2e-3)
    weights.fix(torch.arange(2, 14), torch.ones(12))  # a class and a half
    record = bspml.SelfPacedCurriculum(weights, preset="paper", target_maw=0.6).update(E)
    assert record.maw == pytest.approx(0.6, abs=2e-3)
    assert float(weights.weights[2:14].min()) == 1
    there = (weights.weights > 0) | ~weights.fixed
    stats = bspml.pair_statistics(E[there], labels[there], base=1.0)
    problem = bspml.WeightProblem(stats.xi_pos, stats.xi_neg, labels[there], record.age)
    assert record.objective_after == pytest.approx(problem.objective(weights.weights[there]))
    everyone = bspml.SampleWeights(labels)
    everyone.fix(range(len(labels)), torch.zeros(len(labels)))
    record = bspml.SelfPacedCurriculum(everyone, preset="paper", target_maw=0.75).update(E)
    assert record.maw == 0
