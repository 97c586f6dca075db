"""Copies count once in a curriculum: groups by hand, and laws on copied rows."""

import numpy as np
import pytest
import torch

import bspml
from bspml.errors import CheckpointError, InputError
from bspml.trainers.curriculum.samples import Samples, find_copies
from helpers.draws import around_centres

TRUE = torch.arange(20).repeat_interleave(10)
X = around_centres(TRUE, 32, spread=0.35, seed=0)
GIVEN = bspml.noise.symmetric(TRUE, 0.2, seed=0).labels


def updated(x, labels, times=1, **options):
    """The curriculum, its weights and records after some updates by the same embeddings."""
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(weights, **options)
    records = []
    for _ in range(times):
        curriculum.training_mask()
        records.append(curriculum.update(x))
    return curriculum, weights.weights, records


@pytest.fixture
def by_hand():
    """Rows 0 to 2 a picture under 0, 0 and 1; 3 and 4 one under 2; 5 to 7 a placeholder."""
    group = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3, 4])
    codes = torch.tensor([0, 0, 1, 2, 2, 0, 1, 2, 1, 0])
    everyone = torch.ones(10, dtype=torch.bool)
    samples = Samples(torch.arange(10.0)[:, None], codes, torch.ones(10).double(), everyone)
    return samples.without_copies(group)


def test_samples_by_hand(by_hand):
    assert by_hand.embeddings[:, 0].tolist() == [0, 2, 3, 8, 9]
    assert by_hand.codes.tolist() == [0, 1, 2, 1, 0]
    assert by_hand.telling.tolist() == [True, False, True, True, True]
    assert by_hand.reference.tolist() == [1, 0, 1, 1, 1]
    # Six labels have a copy under another one; of these 1 + 2 are wrong at least.
    table = bspml.SampleWeights([0, 0, 1, 2, 2, 0, 1, 2, 1, 0])
    assert by_hand.apart(table) == (0.6, pytest.approx(0.3))
    table.fix([2, 4, 9], [0.0, 0.0, 1.0])  # the first is the one that its copies outvote
    assert by_hand.apart(table) == (0.9, pytest.approx(0.5))
    weights = by_hand.spread(torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5]))
    assert weights == pytest.approx([0.1, 0.1, 0.2, 0.3, 0.3, 0, 0, 0, 0.4, 0.5])
    assert by_hand.spread(torch.zeros(5), 7.0)[5:8].tolist() == [7, 7, 7]
    assert by_hand.taken(torch.arange(10.0)).tolist() == [0, 2, 3, 8, 9]
    suspicion = torch.tensor([0.9, 0.3, 0.0, 0.5, 0.6])
    all_five = torch.ones(5, dtype=torch.bool)
    assert by_hand.outdone(suspicion, all_five).tolist() == [True, False, False, False, False]
    assert not by_hand.outdone(suspicion, torch.tensor([False, True, True, True, True])).any()


def test_a_persons_word_on_one_copy_is_one_on_all_under_its_label(by_hand):
    weights = bspml.SampleWeights([0, 0, 1, 2, 2, 0, 1, 2, 1, 0])
    weights.fix([1, 3, 9], [1.0, 0.0, 0.0])
    ranked = by_hand.decided_first(torch.full((5,), 0.5).double(), weights)
    assert ranked.tolist() == [-np.inf, 0.5, np.inf, 0.5, np.inf]
    assert by_hand.as_decided(ranked * 0 + 0.5, weights).tolist() == [1, 0.5, 0, 0.5, 0]
    assert by_hand.decided(weights).nonzero()[:, 0].tolist() == [0, 1, 3, 4, 9]


@pytest.mark.parametrize("rule", ["threshold", "quadratic"])
@pytest.mark.parametrize("rate", [0.05, 0.25])
def test_copies_of_what_a_person_decided_share_its_weight_at_every_rate(rule, rate):
    """Decided samples vouch for nothing, so that without them the rate that is read may be 0."""
    given = bspml.noise.symmetric(TRUE, rate, seed=1).labels
    wrong, kept = (given != TRUE).nonzero()[:, 0], (given == TRUE).nonzero()[::10, 0]
    decided = torch.cat([wrong, kept])
    weights = bspml.SampleWeights(torch.cat([given, given[decided]]))
    words = torch.cat([torch.zeros(len(wrong)), torch.ones(len(kept))])
    weights.fix(decided, words)
    curriculum = bspml.SelfPacedCurriculum(weights, rule=rule)
    for _ in range(2):
        curriculum.update(torch.cat([X, X[decided]]))
        assert torch.equal(weights.weights[200:], words)


def test_whichever_copy_a_person_decided_on_the_judgement_is_the_same():
    """A photo decided wrong vouches for its class by none of its copies."""
    wrong, first = GIVEN != TRUE, torch.arange(0, 200, 5)
    x, given = torch.cat([X, X[first]]), torch.cat([GIVEN, GIVEN[first]])

    def judged(order):
        weights = bspml.SampleWeights(given[order])
        weights.fix(torch.argsort(order)[first], (~wrong[first]).double())
        record = bspml.SelfPacedCurriculum(weights).update(x[order])
        return record.total_rate, weights.weights[torch.argsort(order)]

    rate, weights = judged(torch.arange(240))
    again, backwards = judged(torch.arange(239, -1, -1))
    assert again == rate
    assert torch.equal(backwards, weights)
    assert torch.equal(weights[200:], weights[first])


@pytest.mark.parametrize("rule", ["threshold", "quadratic"])
@pytest.mark.parametrize("scatter", [0.0, 0.01])
def test_copied_rows_change_neither_rates_nor_weights(rule, scatter):
    noise = scatter * torch.randn(X.shape, generator=torch.Generator().manual_seed(1))
    twice = torch.cat([X, X + noise])
    one, weights, once = updated(X, GIVEN, 2, rule=rule)
    two, both, again = updated(twice, GIVEN.repeat(2), 2, rule=rule)
    for a, b in zip(once, again, strict=True):
        assert (a.noise_rate, a.total_rate) == (b.noise_rate, b.total_rate)
    assert torch.equal(both, weights.repeat(2))
    assert torch.equal(two.scores(), one.scores().repeat(2))
    assert 0 < int((weights < 0.5).sum()) < 60


def test_bursts_do_not_vouch_for_a_wrong_label():
    rows = torch.arange(200).repeat_interleave(6)
    noise = 0.01 * torch.randn(1200, 32, generator=torch.Generator().manual_seed(1))
    _, weights, (record,) = updated(X[rows] + noise, GIVEN[rows])
    wrong = (GIVEN != TRUE)[rows]
    assert record.total_rate == pytest.approx(0.2, abs=0.03)
    assert ((weights == 0) == wrong).double().mean() > 0.98


@pytest.mark.parametrize("rule", ["threshold", "quadratic"])
def test_of_a_pictures_labels_one_at_most_is_kept(rule):
    rows = torch.randperm(200, generator=torch.Generator().manual_seed(0))[:40]
    other = (TRUE[rows] + 1 + torch.arange(40) % 18) % 20
    _, weights, records = updated(torch.cat([X, X[rows]]), torch.cat([TRUE, other]), 3, rule=rule)
    assert (weights[200:] == 0).all()
    assert (weights[:200] > 0.5).all()
    for record in records:
        assert record.total_rate == pytest.approx(40 / 240, abs=0.01)
        assert record.total_interval[0] >= 40 / 240


def test_a_placeholder_is_left_out_and_moves_no_other():
    x = X.clone()
    x[::10] = X[0]
    _, weights, (record,) = updated(x, TRUE)
    assert (weights == 0).nonzero()[:, 0].tolist() == list(range(0, 200, 10))
    assert record.total_rate == pytest.approx(19 / 200, abs=0.01)


def test_groups_that_are_given_count_once_and_lie_in_one_half():
    pairs = torch.arange(200).repeat(2)
    x = torch.cat([X, around_centres(TRUE, 32, spread=0.35, seed=3)])  # nothing to see of it
    names = [f"picture {row}" for row in pairs.tolist()]
    options = {"warmup": "cross-fit", "warmup_rounds": 1, "groups": names}
    curriculum, weights, records = updated(x, GIVEN.repeat(2), 3, **options)
    half = curriculum._update.in_half_a
    assert torch.equal(half[:200], half[200:])
    assert int(half.sum()) == 200
    assert records[0].noise_interval[0] <= 0.2 <= records[0].noise_interval[1]
    assert torch.equal(weights[:200], weights[200:])
    with pytest.raises(InputError, match="`groups` must"):
        bspml.SelfPacedCurriculum(bspml.SampleWeights(GIVEN), groups=names)
    with pytest.raises(InputError, match="`groups` belong to"):
        bspml.SelfPacedCurriculum(bspml.SampleWeights(GIVEN), "paper", age=1.0, groups=names[:200])


def test_copies_are_found_once_and_saved():
    twice = torch.cat([X, X])
    curriculum, weights, _ = updated(twice, GIVEN.repeat(2))
    state, table = curriculum.state_dict(), bspml.SampleWeights(GIVEN.repeat(2))
    table.update(weights)
    again = bspml.SelfPacedCurriculum(table)
    again.load_state_dict(state)
    trained = around_centres(GIVEN.repeat(2), 32, spread=0.35, seed=5)  # sets copies apart
    curriculum.update(trained)
    again.update(trained)
    assert torch.equal(weights[:200], weights[200:])
    assert torch.equal(weights, table.weights)
    state["update"]["group"] = state["update"]["group"] + 400
    with pytest.raises(CheckpointError, match="no curriculum has"):
        again.load_state_dict(state)


def test_nothing_is_a_copy_among_other_samples_or_in_one_place():
    assert find_copies(X, TRUE) is None
    assert find_copies(torch.ones(200, 4), TRUE) is None
    assert find_copies(torch.cat([X, X[:3]]), TRUE.repeat(2)[:203])[200:].tolist() == [0, 1, 2]


def test_without_faiss_large_data_are_searched_for_exact_copies_alone(monkeypatch):
    monkeypatch.setattr("bspml.trainers.curriculum.samples.NEIGHBOURS_FROM", 100)
    monkeypatch.setattr("bspml.trainers.curriculum.samples.find_faiss", lambda: None)
    zeros = torch.zeros(2, 32)  # say nothing, not even that they are equal
    x = torch.cat([X, X[:2], X[2:4] + 1e-4, zeros])
    assert find_copies(x, torch.arange(206) % 5)[200:].tolist() == [0, 1, 200, 201, 202, 203]
    assert find_copies(X, TRUE) is None


def test_too_few_samples_beside_copies_that_disagree_are_refused():
    with pytest.raises(InputError, match="Decide the copies first"):
        updated(torch.cat([X, X]), torch.cat([TRUE, (TRUE + 1) % 20]))


def test_too_few_samples_that_a_person_kept_are_not_put_down_to_copies():
    weights = bspml.SampleWeights(TRUE.repeat(2))
    weights.fix(torch.arange(400), torch.zeros(400))
    with pytest.raises(InputError, match=r"got 0 \(samples of weight 0"):
        bspml.SelfPacedCurriculum(weights).update(torch.cat([X, X]))


def test_a_class_that_a_person_left_out_pays_for_no_wrong_label():
    weights = bspml.SampleWeights(GIVEN)
    decided = (torch.as_tensor(GIVEN) < 3).nonzero()[:, 0]
    weights.fix(decided, torch.zeros(len(decided)))
    curriculum = bspml.SelfPacedCurriculum(weights)
    for _ in range(2):
        curriculum.training_mask()
        curriculum.update(X)
    others = torch.as_tensor(GIVEN) >= 3
    wrong = others & (torch.as_tensor(GIVEN) != TRUE)
    assert (weights.weights[wrong] == 0).double().mean() > 0.8
    assert not weights.weights[decided].any()
