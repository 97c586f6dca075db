"""Labels judged a second time, and repaired, by a network that never saw the suspects' labels."""

import copy
from dataclasses import replace

import pytest
import torch

import bspml
from bspml.errors import CheckpointError, InputError
from bspml.statistics.label_errors import judge_labels
from bspml.trainers.curriculum import SelfPacedCurriculum
from bspml.trainers.curriculum.samples import Samples
from bspml.trainers.curriculum.second_judgement import (
    SecondJudgement,
    surely_right,
    with_lost_classes,
)
from bspml.weights.state import SampleWeights
from helpers.draws import around_centres

CLASSES, EACH = 8, 30
N = CLASSES * EACH


def noisy(share=0.4, seed=0):
    """Embeddings (N, 16) around the centres of their true classes, true and given labels."""
    generator = torch.Generator().manual_seed(seed)
    true = torch.arange(N) % CLASSES
    embeddings = around_centres(true, 16, spread=0.5, seed=seed)
    wrong = torch.rand(N, generator=generator) < share
    shift = torch.randint(1, CLASSES, (N,), generator=generator)
    return embeddings, true, torch.where(wrong, (true + shift) % CLASSES, true)


def rounds(curriculum, embeddings, count):
    """Records of `count` updates; embeddings: one (N, D) for all, or one of each round."""
    each = [embeddings] * count if isinstance(embeddings, torch.Tensor) else embeddings
    records = []
    for these in each:
        curriculum.training_mask()
        records.append(curriculum.update(these))
    return records


def blurred(embeddings, seed):
    """As a network sees them that is half trained."""
    noise = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(seed))
    return embeddings + 1.2 * noise


def cross_fitted(given, **options):
    weights = SampleWeights(given)
    return weights, SelfPacedCurriculum(weights, warmup="cross-fit", warmup_rounds=1, **options)


def warmed_up(given, embeddings, **options):
    """A curriculum at the start of its weights, both halves judged by blurred embeddings."""
    weights, curriculum = cross_fitted(given, **options)
    rounds(curriculum, [blurred(embeddings, 1), blurred(embeddings, 2)], 2)
    return weights, curriculum


def test_it_is_due_from_the_first_round_on_until_two_passes_over_as_many_samples():
    second, half = SecondJudgement(4, wanted=True), torch.tensor([True, True, False, False])
    second.trained(~half, under_weights=False)  # in the warm-up
    second.restarted()
    assert not second.is_due
    for _ in range(3):
        second.trained(half, under_weights=True)
        assert (second.is_due, second.is_last) == (True, False)
    second.trained(half, under_weights=True)
    assert (second.passes, second.is_due, second.is_last) == (2.0, True, True)
    assert torch.equal(second.trained_on, half)
    second.done(torch.tensor([True, True, True, False]))
    assert (second.is_due, second.is_last, second.left_out) == (False, False, 0.25)
    never = SecondJudgement(4, wanted=False)
    never.trained(half, under_weights=True)
    assert not never.is_due


@pytest.mark.parametrize(
    ("kept", "waits", "due"), [(2, True, 12), (1, True, 8), (4, True, 6), (2, False, 4)]
)
def test_a_repair_waits_for_six_passes_where_enough_samples_are_trained_on(kept, waits, due):
    second, rows = SecondJudgement(4, wanted=True, waits=waits), torch.arange(4) < kept
    for done in range(1, due + 1):
        second.trained(rows, under_weights=True)
        assert second.is_last == (done == due)
    loaded = SecondJudgement(4, wanted=True, waits=waits)
    loaded.load_state_dict(second.state_dict())
    assert loaded.is_last
    before = {k: v for k, v in second.state_dict().items() if k != "last_share"}
    loaded.load_state_dict(before)  # of before it was kept
    assert loaded.last_share == 1.0


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_after_a_blurred_warm_up_the_second_rate_and_weights_are_nearly_right(share):
    embeddings, true, given = noisy(share)
    weights, curriculum = warmed_up(given, embeddings)
    records, before, wrong = [], [], given != true
    for _ in range(3 if share == 0 else 5):
        before.append(weights.weights.clone())
        assert curriculum.needs_embeddings or records[-1].phase != "half B"
        records += rounds(curriculum, embeddings, 1)
    # Rounds of about 1 - share of a pass each: the one that fills two judges for the last time.
    filled = torch.stack(before).double().mean(1).cumsum(0) >= 2
    place = int(filled.int().argmax())
    second = records[place]
    assert {r.phase for r in records} == {"weights"}
    assert second.total_rate == pytest.approx(float(wrong.double().mean()), abs=0.04)
    errors = (weights.weights > 0) == wrong
    assert int(errors.sum()) <= min(0.05 * N, int(((before[0] > 0) == wrong).sum()))
    # The label model of an audit, fitted to all, referred to what was kept; later rounds hold it.
    for record, reference in zip(records[: place + 1], before, strict=False):
        audit = judge_labels(embeddings, given, reference.double(), rows=torch.ones(N).bool())
        assert record.total_rate == pytest.approx(audit.rate, abs=0.01)
    assert {r.total_rate for r in records[place:]} == {second.total_rate}


def test_the_second_judgement_keeps_the_share_with_the_smallest_odds():
    embeddings, _, given = noisy(0.4)
    weights, curriculum = warmed_up(given, embeddings)
    while not curriculum._update.second.is_done:
        before = weights.weights.clone().double()
        (record,) = rounds(curriculum, embeddings, 1)
    held, kept = curriculum._update.rates.noise_rate, weights.weights > 0
    every = torch.ones(N, dtype=torch.bool)
    taken = Samples(embeddings, given, before, every).in_content_order(weights)
    labels = taken.labels(weights)
    audit = judge_labels(taken.embeddings, labels, taken.reference, rows=every, random_rate=held)
    odds = taken.spread(torch.from_numpy(audit.odds))
    assert int(kept.sum()) == round((1 - audit.rate) * N)
    assert odds[kept].max() <= odds[~kept].min()
    assert (record.total_rate, record.total_interval) == (audit.rate, audit.interval)


@pytest.mark.parametrize(
    ("doubts", "share", "kept"),
    [
        ([0.0, 0.05, 0.2, 0.4, 0.9], 0.6, 0.6),  # most are right: the rate alone
        ([0.0, 0.9, 0.9, 0.9, 0.9], 0.5, 0.5),
        ([0.0, 0.15, 0.2, 0.4, 0.9], 0.3, 0.2),  # a tenth more at most, half of .7 - .5
        ([0.3, 0.15, 0.2, 0.4, 0.9], 0.3, 0.2),
        ([0.0, 0.05, 0.2, 0.4, 0.9], 0.44, 0.41),
        ([0.09, 0.09, 0.1, 0.4, 0.9], 0.42, 0.4),  # two that are surely right
        ([0.0, float("nan"), 0.2, 0.4, 0.9], 0.42, 0.4),
        ([0.0, 0.0, 0.0, 0.0, 0.9], 0.3, 0.3),  # never more than the rate keeps
        ([0.9, 0.9, 0.9, 0.9, 0.9], 0.1, 0.0),
    ],
)
def test_where_most_labels_are_wrong_those_in_doubt_are_left_out(doubts, share, kept):
    assert surely_right(torch.tensor(doubts), share) == pytest.approx(kept, abs=1e-12)


def test_a_rate_above_a_half_leaves_out_what_is_in_doubt_and_holds_that_share():
    embeddings, _, given = noisy(0.65, seed=2)
    weights, curriculum = cross_fitted(given)
    rounds(curriculum, embeddings, 8)
    update, left_out = curriculum._update, weights.weights == 0
    rate, share = update.rates.held, float(left_out.double().mean())
    assert update.second.is_done
    assert 0.5 < rate < share <= rate + 0.5 * (rate - 0.5) + 0.5 / N
    assert update.held_rate == pytest.approx(share)
    rounds(curriculum, embeddings, 3)
    assert int((weights.weights == 0).sum()) == int(left_out.sum())


def test_a_class_that_lost_all_its_labels_is_judged_by_them():
    embeddings, true, given = noisy(0.3)
    weights, curriculum = warmed_up(given, embeddings)
    lost, person = given == 3, torch.arange(N) == int((given == 3).nonzero()[0])
    weights.update(torch.where(lost, 0.0, weights.weights.double()))
    weights.fix(person.nonzero()[:, 0], torch.zeros(1))
    expected = torch.where(lost & ~person, 1.0, weights.weights.double())
    assert torch.equal(with_lost_classes(weights.weights.double(), weights), expected)
    curriculum._update.second.passes = 2.0
    rounds(curriculum, embeddings, 1)
    kept, right = weights.weights > 0, given == true
    assert (kept & lost & right).sum() >= 0.9 * (lost & right).sum()
    assert (kept & lost & ~right).sum() <= 0.1 * (lost & ~right).sum()
    assert not kept[person].any()


def test_a_network_that_learned_its_labels_by_heart_lets_right_suspects_come_back():
    """What was kept looks perfect; the suspects, which it never saw, look as they are."""
    embeddings, true, given = noisy(0.4)
    weights, curriculum = warmed_up(given, embeddings)
    wrong, fifth = given != true, torch.arange(N) % 5 == 0
    kept = wrong == fifth  # a fifth of the right ones is left out, and of the wrong ones kept
    weights.update(kept.double())
    curriculum._update.second.passes = 2.0
    centres = torch.stack([embeddings[true == c].mean(0) for c in range(CLASSES)])
    by_heart = torch.where(kept[:, None], 0.3 * embeddings + 0.7 * centres[given], embeddings)
    rounds(curriculum, by_heart, 1)
    after = weights.weights > 0
    assert (after & kept).sum() > 0.95 * kept.sum()
    back = after & ~kept
    assert (back & ~wrong).sum() > 0.5 * (~kept & ~wrong).sum()
    assert (back & wrong).sum() <= 0.05 * (~kept & wrong).sum()


def test_features_are_judged_once_and_a_blind_second_network_changes_nothing():
    embeddings, _, given = noisy()
    weights = SampleWeights(given)
    curriculum = SelfPacedCurriculum(weights)
    curriculum.update(embeddings)
    curriculum._update.second.trained(torch.ones(N).bool(), under_weights=True)
    assert not curriculum._update.second.is_due
    _, curriculum = warmed_up(given, embeddings, repair="confident")
    curriculum._update.second.passes = 6.0
    rates = curriculum._update.rates
    noise = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(5))
    (record,) = rounds(curriculum, noise, 1)
    assert (record.phase, record.num_repaired) == ("repair", 0)
    assert curriculum._update.rates == rates
    assert curriculum._update.second.is_done


def test_copies_of_what_a_person_decided_to_be_wrong_are_not_repaired():
    embeddings, true, given = noisy(0.4)
    twice = (given != true).nonzero()[:20, 0]
    all_rows, labels = torch.cat([embeddings, embeddings[twice]]), torch.cat([given, given[twice]])
    groups = torch.cat([torch.arange(N), twice])
    for decided in (False, True):
        weights, curriculum = cross_fitted(labels, groups=groups, repair="confident")
        if decided:
            weights.fix(torch.arange(N, N + 20), torch.zeros(20))
        rounds(curriculum, [blurred(all_rows, 1), blurred(all_rows, 2)], 2)
        curriculum._update.second.passes = 6.0
        (record,) = rounds(curriculum, all_rows, 1)
        assert record.phase == "repair"
        repaired = (weights.current_codes != weights.codes)[twice]
        assert int(repaired.sum()) == 0 if decided else int(repaired.sum()) >= 10


def test_with_copies_under_several_labels_one_label_of_a_picture_is_kept():
    embeddings, true, given = noisy(0.4)
    twice = torch.arange(20)  # copies of the first rows, under another label
    all_rows = torch.cat([embeddings, embeddings[twice]])
    labels = torch.cat([given, (true[twice] + 3) % CLASSES])
    groups = torch.cat([torch.arange(N), twice])
    weights, curriculum = warmed_up(labels, all_rows, groups=groups, repair="confident")
    curriculum._update.second.passes = 6.0
    rounds(curriculum, all_rows, 1)
    differ = given[twice] != labels[N:]
    both = (weights.weights[twice] > 0) & (weights.weights[N:] > 0) & differ
    same = weights.current_codes[twice] == weights.current_codes[N:]
    assert both.any()
    assert same[both].all()  # both only where one of them was repaired


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_pictures_under_two_labels_move_no_rate_and_take_no_right_label_with_them(share):
    """They do not tell how many labels of the others are wrong, nor are theirs left out twice."""
    classes = torch.arange(40).repeat_interleave(25)
    embeddings = around_centres(classes, 32, spread=0.6, seed=0)
    twice = torch.randperm(1000, generator=torch.Generator().manual_seed(0))[:50]
    given = bspml.noise.symmetric(classes, share, seed=0).labels
    second_labels, none = (given[twice] + 1 + torch.arange(50) % 39) % 40, torch.full((40,), -1)
    labels = torch.cat([given, second_labels, torch.arange(40)])  # the last of a placeholder
    rows = torch.cat([torch.arange(1000), twice, torch.full((40,), 1000)])
    weights, true = SampleWeights(labels), torch.cat([classes, classes[twice], none])
    embeddings = torch.cat([embeddings, -embeddings[:1]])
    curriculum = SelfPacedCurriculum(weights, repair="confident")
    records, left_out = rounds(curriculum, embeddings[rows], 8), weights.weights == 0
    (second,) = (r for r in records if r.phase == "repair")
    assert second.total_rate == pytest.approx(records[0].total_rate, abs=0.005)
    assert second.total_rate == pytest.approx(float((labels != true).double().mean()), abs=0.01)
    assert int((left_out & (labels == true)).sum()) <= 2  # of 800 and more, 30 were
    assert int((~left_out & (weights.current_codes != true)).sum()) <= 2


def test_where_most_errors_are_confusions_only_the_last_judgement_counts():
    embeddings, _, given = noisy(0.3)
    _, curriculum = warmed_up(given, embeddings)
    update = curriculum._update
    update.rates = replace(update.rates, noise_rate=0.05, total_rate=0.2, total_interval=(0.1, 0.3))
    while not update.second.is_done:
        before, waits = update.rates, update.second.passes < 1.0
        rounds(curriculum, embeddings, 1)
        assert (update.rates == before) == waits


# --------------------------------------------------------------------------------------- repair


def known(share=0.4):
    """Weights that know the wrong labels, and a judgement due after training on the others."""
    embeddings, true, given = noisy(share)
    weights, second = SampleWeights(given), SecondJudgement(N, wanted=True)
    weights.update((given == true).double())
    while not second.is_last:
        second.trained(weights.weights > 0, under_weights=True)
    return second, weights, embeddings, true


def repair(second, weights, embeddings):
    """How many labels are repaired."""
    every = torch.ones(len(weights), dtype=torch.bool)
    samples = Samples(embeddings, weights.codes, weights.weights.double(), every)
    errors = judge_labels(embeddings, weights.codes, samples.reference, rows=every)
    second.repair(weights, errors, samples)
    return int(weights.repaired.sum())


def test_suspects_are_trained_under_the_class_that_they_show():
    second, weights, embeddings, true = known()
    wrong = weights.codes != true
    assert repair(second, weights, embeddings) > 0.8 * int(wrong.sum())
    kept = weights.weights > 0
    assert torch.equal(kept, ~wrong | weights.repaired)
    assert (weights.current_codes == true)[kept].float().mean() > 0.95
    second.done(kept)
    assert second.left_out == pytest.approx(1 - float(kept.float().mean()))


def test_what_the_network_saw_and_what_a_person_decided_stays():
    second, weights, embeddings, true = known()
    wrong = (weights.codes != true).nonzero()[:, 0]
    seen, decided = wrong[:5], wrong[5:10]
    second.trained_on[seen] = True
    weights.fix(decided, [0.0] * 5)
    assert repair(second, weights, embeddings) > 0
    assert not weights.repaired[torch.cat([seen, decided])].any()
    assert (weights.weights[torch.cat([seen, decided])] == 0).all()


def test_order_of_the_samples_and_names_of_the_classes_do_not_matter():
    second, weights, embeddings, _ = known()
    order = torch.randperm(N, generator=torch.Generator().manual_seed(2))
    names = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(3))
    other, again = SampleWeights(names[weights.codes[order]]), SecondJudgement(N, wanted=True)
    other.update(weights.weights[order].double())
    again.trained_on = second.trained_on[order]
    count = repair(second, weights, embeddings)
    assert repair(again, other, embeddings[order]) == pytest.approx(count, abs=2)
    same = names[weights.current_codes[order]] == other.current_codes
    assert same.float().mean() > 0.99  # a probability at the very bar may fall on either side


def test_a_judgement_of_another_data_set_is_refused():
    second, *_ = known()
    with pytest.raises(CheckpointError, match="another data set"):
        SecondJudgement(2, wanted=True).load_state_dict(second.state_dict())


@pytest.mark.parametrize("warmup", ["features", "cross-fit"])
def test_the_curriculum_repairs_after_some_rounds(warmup):
    embeddings, true, given = noisy()
    weights = SampleWeights(given)
    curriculum = SelfPacedCurriculum(
        weights, warmup=warmup, repair="confident", is_noisy=given != true
    )
    records = rounds(curriculum, embeddings, 15)
    phases = [r.phase for r in records]
    place = phases.index("repair")
    assert phases.count("repair") == 1
    assert {r.num_repaired for r in records[:place]} == {0}
    assert records[place].num_repaired > 35
    # The given labels are still told apart, and what was repaired goes on being trained on.
    assert records[-1].detection_recall > 0.8
    assert (weights.weights[weights.repaired] > 0).float().mean() > 0.9
    assert records[-1].maw == pytest.approx(records[place].maw, abs=0.05)


def test_a_curriculum_without_repair_changes_no_label():
    embeddings, _, given = noisy()
    weights, curriculum = cross_fitted(given)
    records = rounds(curriculum, embeddings, 8)
    assert curriculum._update.second.is_done
    assert not weights.repaired.any()
    assert {r.num_repaired for r in records} == {None}


@pytest.mark.parametrize(("options", "count"), [({}, 7), ({"repair": "confident"}, 14)])
def test_a_curriculum_resumed_at_any_round_judges_the_same(options, count):
    embeddings, _, given = noisy()
    weights, whole = cross_fitted(given, seed=2, **options)
    saved = {}
    for done in range(count):
        saved[done] = copy.deepcopy((weights.state_dict(), whole.state_dict()))
        rounds(whole, embeddings, 1)
    assert whole._update.second.is_done
    for stop in (2, 5, count - 3):
        again, resumed = cross_fitted(given, seed=2, **options)
        again.load_state_dict(saved[stop][0])
        resumed.load_state_dict(saved[stop][1])
        assert stop > 5 or not resumed._update.second.is_done
        rounds(resumed, embeddings, count - stop)
        assert torch.equal(again.current_codes, weights.current_codes)
        assert torch.equal(again.weights, weights.weights)
        assert resumed.state_dict()["update"]["total_rate"] == whole._update.rates.total_rate


def test_training_on_all_rows_unasked_is_refused():
    embeddings, _, given = noisy()
    curriculum = SelfPacedCurriculum(SampleWeights(given), repair="confident")
    curriculum.update(embeddings)
    with pytest.raises(InputError, match=r"train only on the rows of `curriculum\.training_mask"):
        curriculum.update(embeddings)


def test_the_paper_s_preset_repairs_nothing():
    with pytest.raises(InputError, match='`repair` belongs to preset="auto"'):
        SelfPacedCurriculum(SampleWeights([0, 1]), preset="paper", age=1.0, repair="confident")
