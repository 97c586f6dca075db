"""The automatic preset: an honest estimate, the phases of the warm-up, both rules."""

import numpy as np
import pytest
import torch

import bspml
import bspml.data.noise
from bspml.errors import CheckpointError, InputError
from bspml.statistics.margins import label_margins
from helpers.draws import around_centres


def noisy_clusters(rate=0.3, classes=40, per_class=25, seed=0, spread=0.35, d=32):
    """Well separated classes; the embedding never saw the labels, so judging by it is honest."""
    true = torch.arange(classes).repeat_interleave(per_class)
    E = around_centres(true, d, spread=spread, seed=seed)
    noisy = bspml.noise.symmetric(true, rate, seed=seed)
    return E, noisy.labels, noisy.is_noisy


def similar_pairs(rate=0.3, pairs=20, per_class=25, seed=0, d=32):
    """Classes in pairs that lie close together, a share of whose labels are the other one's."""
    g = torch.Generator().manual_seed(seed)
    true = torch.arange(2 * pairs).repeat_interleave(per_class)
    centres = torch.randn(pairs, d, generator=g).repeat_interleave(2, 0)
    centres = centres + 0.5 * torch.randn(2 * pairs, d, generator=g)
    E = centres[true] + 0.35 * torch.randn(len(true), d, generator=g)
    is_noisy = torch.zeros(len(true), dtype=torch.bool)
    is_noisy[torch.randperm(len(true), generator=g)[: round(rate * len(true))]] = True
    return E, torch.where(is_noisy, true ^ 1, true), is_noisy


@pytest.mark.parametrize("rule", ["threshold", "quadratic"])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 0.5])
def test_features_give_the_noise_rate_and_the_right_weights(rule, rate):
    E, labels, is_noisy = noisy_clusters(rate)
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(weights, rule=rule, is_noisy=is_noisy)
    assert curriculum.starts_with_update
    record = curriculum.update(E)
    # A quarter of 1,000 labels is counted: the estimate spreads by up to
    # sqrt(.5 * 1000 * .25 * .75) / 250 = .039, and by .024 at 20 %.
    assert record.noise_rate == pytest.approx(rate, abs=0.08)
    assert record.noise_interval[0] <= rate <= record.noise_interval[1]
    assert record.total_rate == pytest.approx(rate, abs=0.04)
    assert record.total_interval[0] <= rate <= record.total_interval[1]
    assert record.maw == pytest.approx(1 - record.total_rate, abs=0.02)
    if rate:
        # The count that is excluded follows the estimate; who is excluded must be right.
        assert record.detection_precision > 0.9 * min(1, rate / record.total_rate)
        assert record.detection_recall > 0.9 * min(1, record.total_rate / rate)
        assert record.score_auroc > 0.97


def test_threshold_keeps_exactly_the_share_with_the_smallest_p_values():
    E, labels, _ = noisy_clusters(0.3)
    weights, curriculum = cross_fitted(labels, warmup_rounds=1)
    half_a = curriculum.training_mask()
    for judged in (~half_a, half_a):
        curriculum.training_mask()
        record = curriculum.update(E)
        kept = weights.weights > 0.5
        count = round((1 - record.noise_rate) * int(judged.sum()))
        assert int((kept & judged).sum()) == count
        p = curriculum.scores()
        assert p[kept & judged].max() <= p[~kept & judged].min()


def test_the_first_estimate_is_held_when_later_embeddings_fit_the_wrong_labels():
    E, labels, _ = noisy_clusters(0.3)
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(weights)
    first = curriculum.update(E)
    memorised = torch.nn.functional.one_hot(labels).float()  # as if trained on every wrong label
    second = curriculum.update(memorised)
    assert (second.noise_rate, second.total_rate) == (first.noise_rate, first.total_rate)


def test_features_see_labels_confused_with_a_similar_class():
    E, labels, is_noisy = similar_pairs()
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(weights, is_noisy=is_noisy)
    record = curriculum.update(E)
    assert record.noise_rate < 0.1  # the random null is blind to them
    assert record.total_rate == pytest.approx(0.3, abs=0.05)
    assert record.total_interval[0] < 0.3 < record.total_interval[1]
    assert record.maw == pytest.approx(1 - record.total_rate, abs=0.02)
    assert record.detection_precision > 0.85
    assert record.detection_recall > 0.85
    # Later rounds leave out as many, by the margins under the weights before.
    blurred = E + torch.randn(E.shape, generator=torch.Generator().manual_seed(1))
    margins = label_margins(blurred, labels, weights.weights.cpu().double())
    assert curriculum.update(blurred).total_rate == record.total_rate
    kept = weights.weights > 0.5
    assert int(kept.sum()) == round((1 - record.total_rate) * len(labels))
    assert margins[kept].max() <= margins[~kept].min()


def test_halves_leave_out_half_of_the_confusions_and_few_right_labels():
    E, labels, is_noisy = similar_pairs(per_class=40)
    _weights, curriculum = cross_fitted(labels, warmup_rounds=1, is_noisy=is_noisy)
    for _ in range(2):
        curriculum.training_mask()
        record = curriculum.update(E)
        assert record.noise_rate < 0.1
        assert 0.1 < record.total_rate < 0.25
        assert record.total_interval[0] < 0.3 < record.total_interval[1] + 0.05
    assert record.false_alarm_rate < 0.03
    assert record.detection_recall > 0.4


@pytest.mark.parametrize("warmup", ["features", "cross-fit"])
@pytest.mark.parametrize("make", [noisy_clusters, similar_pairs])
def test_names_of_the_classes_change_no_weight(make, warmup):
    """Not even where labels come in no order and the halves of a class are drawn at random."""
    E, labels, _ = make()
    generator = torch.Generator().manual_seed(0)
    order, names = (torch.randperm(n, generator=generator) for n in (len(E), 40))
    E, labels, runs = E[order] + 0.2 * torch.randn(E.shape, generator=generator), labels[order], []
    for given in (labels, names[labels]):
        weights = bspml.SampleWeights(given)
        curriculum = bspml.SelfPacedCurriculum(weights, warmup=warmup, warmup_rounds=1)
        records = []
        for _ in range(4):
            curriculum.training_mask()
            records.append(curriculum.update(E))
        runs.append((weights.weights, [(r.noise_rate, r.total_rate or 0) for r in records]))
    (first, rates), (again, others) = runs
    assert torch.equal(first, again)
    assert torch.tensor(others) == pytest.approx(torch.tensor(rates), abs=1e-4)


@pytest.mark.parametrize("rate", [0.3, 0.5])
def test_halves_with_random_errors_are_judged_by_the_null_alone(rate):
    E, labels, _ = noisy_clusters(rate)
    _weights, curriculum = cross_fitted(labels, warmup_rounds=1)
    for _ in range(2):
        curriculum.training_mask()
        record = curriculum.update(E)
        assert record.total_rate is None
    curriculum.training_mask()
    record = curriculum.update(E)  # of the network that stays
    assert record.total_rate == pytest.approx(rate, abs=0.02)
    assert record.maw == pytest.approx(1 - record.total_rate, abs=0.02)


@pytest.mark.parametrize("options", [{}, {"warmup": "cross-fit", "warmup_rounds": 1}])
def test_right_labels_keep_their_weight(options):
    E, labels, is_noisy = similar_pairs(rate=0.0)
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(weights, is_noisy=is_noisy, **options)
    for _ in range(3):
        curriculum.training_mask()
        assert curriculum.update(E).false_alarm_rate <= 0.01


def test_a_state_without_the_label_models_fields_still_loads():
    E, labels, _ = similar_pairs()
    weights, curriculum = cross_fitted(labels, warmup_rounds=1)
    curriculum.training_mask()
    curriculum.update(E)
    state, kept = curriculum.state_dict(), weights.state_dict()
    for key in ("total_rate", "total_interval", "second"):
        del state["update"][key]
    weights2, old = cross_fitted(labels, warmup_rounds=1)
    weights2.load_state_dict(kept)
    old.load_state_dict(state)
    old.training_mask()
    record = old.update(E)
    assert (record.total_rate, record.maw) == (None, pytest.approx(1, abs=0.2))
    state["update"]["total_rate"] = 1.5
    with pytest.raises(CheckpointError, match="numbers that no curriculum has"):
        old.load_state_dict(state)


def cross_fitted(labels, **options):
    weights = bspml.SampleWeights(labels)
    return weights, bspml.SelfPacedCurriculum(weights, warmup="cross-fit", **options)


def test_cross_fit_walks_through_its_phases_and_asks_for_fresh_networks():
    E, labels, is_noisy = noisy_clusters(0.3)
    weights, curriculum = cross_fitted(labels, warmup_rounds=2, is_noisy=is_noisy)
    assert not curriculum.starts_with_update
    rows, records = [], []
    for _ in range(6):
        rows.append(curriculum.training_mask())
        records.append(curriculum.update(E))
    half = rows[0]
    assert torch.equal(rows[1], half)
    assert abs(int(half.sum()) - len(labels) / 2) <= 0.5
    # Half B trains on the rows that half A's network kept, and on nothing of half A.
    assert not (rows[2] & half).any()
    assert int(rows[2].sum()) == round((1 - records[1].noise_rate) * int((~half).sum()))
    assert torch.equal(rows[4], weights.weights > 0) or records[4].changed
    assert [r.phase for r in records] == [
        "half A, waiting",
        "half A",
        "half B, waiting",
        "half B",
        "weights",
        "weights",
    ]
    assert [r.reset_model for r in records] == [False, True, False, True, False, False]
    assert records[0].noise_rate is None
    assert len({r.noise_rate for r in records[1:]}) == 1
    low, high = records[-1].noise_interval
    assert low <= 0.3 <= high
    assert records[-1].detection_recall > 0.85


def test_embeddings_are_asked_for_only_where_labels_are_judged():
    E, labels, _ = noisy_clusters(0.3)
    weights, curriculum = cross_fitted(labels, judge_every=3, seed=1)
    phases = []
    for _ in range(10):
        curriculum.training_mask()
        wanted = curriculum.needs_embeddings
        if wanted:
            with pytest.raises(InputError, match="`embeddings` are needed where labels are judged"):
                curriculum.update(None)
        before = weights.weights.clone()
        record = curriculum.update(E if wanted else None)
        phases.append(record.phase)
        assert wanted or torch.equal(weights.weights, before)
        assert wanted or record.maw == weights.maw()
    judged = [phase for phase in phases if not phase.endswith("waiting")]
    assert judged == ["half A", "half B", *["weights"] * 4]
    waited = ["weights, waiting"] * 2  # after the second judgement, due while weights rest
    assert phases[4:] == ["weights", "weights", "weights", *waited, "weights"]
    assert not curriculum.needs_embeddings
    with pytest.raises(InputError, match="one row per weight"):
        curriculum.update(E[1:])
    assert curriculum.update(E).phase == "weights"  # what is given is looked at


def test_without_reset_only_the_first_half_asks_for_a_fresh_network():
    E, labels, _ = noisy_clusters(0.3)
    _, curriculum = cross_fitted(labels, warmup_rounds=1, reset=False)
    flags = []
    for _ in range(3):
        curriculum.training_mask()
        flags.append(curriculum.update(E).reset_model)
    assert flags == [True, False, False]


def test_half_b_is_judged_without_looking_at_the_labels_of_half_b():
    E, labels, _ = noisy_clusters(0.3)
    _, curriculum = cross_fitted(labels, warmup_rounds=1)
    half = curriculum.training_mask()
    curriculum.update(E)
    p = curriculum.scores()
    assert p[half].isnan().all()
    # Only half A is a reference: relabelling one row of B moves its own p-value and, through the
    # shared null, others by at most one count; never a soft mean.
    row = int((~half).nonzero()[0, 0])
    changed = labels.clone()
    changed[row] = (labels[row] + 1) % 40
    _other, again = cross_fitted(changed, warmup_rounds=1)
    again._update.in_half_a = half
    again.training_mask()
    again.update(E)
    rest = ~half
    rest[row] = False
    null_size = int((~half).sum()) * 39
    assert (again.scores()[rest] - p[rest]).abs().max() <= 3 / null_size


def test_update_without_asking_for_the_rows_is_refused():
    E, labels, _ = noisy_clusters(0.3)
    weights, curriculum = cross_fitted(labels)
    with pytest.raises(InputError, match="train only on the rows"):
        curriculum.update(E)
    assert weights.maw() == 1.0


def test_untestable_samples_keep_weight_one_and_are_counted():
    E, labels, _ = noisy_clusters(0.3)
    labels[0] = 99  # a class of its own
    weights = bspml.SampleWeights(labels)
    record = bspml.SelfPacedCurriculum(weights).update(E)
    assert float(weights.weights[0]) == 1.0
    assert record.num_untestable >= 1


@pytest.mark.parametrize(
    "options", [{}, {"warmup": "cross-fit", "warmup_rounds": 1}, {"search": "neighbours"}]
)
def test_a_class_that_lost_all_its_weight_stays_out_and_costs_no_other_label(options):
    labels = torch.arange(10).repeat_interleave(20)
    E = around_centres(labels, 16, spread=0.3, seed=0)
    strays = torch.tensor([5, 45, 85, 125])
    labels[strays] = 10  # no two of one class, so that each is nothing like the others
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(weights, judge_every=1, **options)
    for number in range(6):
        curriculum.training_mask()
        again = curriculum._update.second.wanted and not curriculum._update.second.is_done
        record = curriculum.update(E)
        if number > 2:
            assert not weights.weights[strays].any()
            # A second judgement compares them with each other.
            assert record.num_untestable == (0 if again else 4)
            # They are four of the labels that are left out, not four beside these.
            assert int((weights.weights == 0).sum()) == round(record.held[0] * 204)


def test_small_classes_of_many_errors_do_not_come_and_go():
    E, labels, is_noisy = noisy_clusters(0.3, classes=60, per_class=5, spread=0.3, d=16)
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(weights, judge_every=1)
    changed = [curriculum.update(E).changed for _ in range(4)]
    assert changed[0] > 80
    assert max(changed[2:]) <= 1
    assert (weights.weights[~is_noisy] > 0).double().mean() > 0.95


def test_halves_are_random_balanced_in_every_class_and_seeded():
    labels = torch.arange(10).repeat_interleave(7)
    _, a = cross_fitted(labels, seed=1)
    _, b = cross_fitted(labels, seed=1)
    _, c = cross_fitted(labels, seed=2)
    half = a.training_mask()
    assert torch.equal(half, b.training_mask())
    assert not torch.equal(half, c.training_mask())
    per_class = half.view(10, 7).sum(1)
    assert set(per_class.tolist()) <= {3, 4}


@pytest.mark.parametrize("make", [noisy_clusters, similar_pairs])
def test_state_resumes_in_the_middle_of_the_warm_up(make):
    E, labels, _ = make()
    weights, whole = cross_fitted(labels, warmup_rounds=1)
    whole.training_mask()
    whole.update(E)
    state, kept = whole.state_dict(), weights.state_dict()
    weights2, resumed = cross_fitted(labels, warmup_rounds=1, seed=5)
    weights2.load_state_dict(kept)
    resumed.load_state_dict(state)
    for _ in range(2):
        assert torch.equal(whole.training_mask(), resumed.training_mask())
        one, two = whole.update(E).as_dict(), resumed.update(E).as_dict()
        for record in (one, two):
            record.pop("seconds_statistics"), record.pop("seconds_solve")
        assert one == two
    assert torch.equal(weights.weights, weights2.weights)


@pytest.mark.parametrize("rule", ["threshold", "quadratic"])
def test_a_refused_update_leaves_weights_and_curriculum_as_they_were(rule):
    E, labels, _ = noisy_clusters(0.2, classes=4, per_class=8)
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(weights, rule=rule)
    with pytest.raises(InputError, match="fit all labels alike"):
        curriculum.update(torch.ones(6, 4).repeat(6, 1)[: len(labels)])
    assert (weights.maw(), curriculum.rounds) == (1.0, 0)
    fresh = bspml.SampleWeights(labels)
    other = bspml.SelfPacedCurriculum(fresh, rule=rule)
    assert curriculum.update(E).maw == other.update(E).maw
    assert torch.equal(weights.weights, fresh.weights)


@pytest.mark.parametrize("rule", ["threshold", "quadratic"])
def test_labels_that_are_all_different_keep_their_weight(rule):
    E = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    weights = bspml.SampleWeights(range(12))
    record = bspml.SelfPacedCurriculum(weights, rule=rule).update(E)
    assert (record.maw, record.num_untestable) == (1.0, 12)


@pytest.mark.parametrize("rule", ["threshold", "quadratic"])
def test_a_persons_word_outweighs_the_p_values_in_every_phase(rule):
    E, labels, is_noisy = noisy_clusters(0.3)
    wrong, right = is_noisy.nonzero()[:4, 0], (~is_noisy).nonzero()[:4, 0]
    rows = torch.cat([wrong, right])
    for warmup in ("features", "cross-fit"):
        weights = bspml.SampleWeights(labels)
        weights.fix(rows, [1.0] * 4 + [0.0] * 4)  # against the evidence, so that it shows
        options = {} if warmup == "features" else {"warmup_rounds": 1}
        curriculum = bspml.SelfPacedCurriculum(weights, rule=rule, warmup=warmup, **options)
        for _ in range(3):
            trained = curriculum.training_mask()
            assert not trained[right].any()
            record = curriculum.update(E)
            assert weights.weights[rows].tolist() == [1.0] * 4 + [0.0] * 4
        assert trained[wrong].all()
        if rule == "threshold":  # they count in the share that is kept
            held = record.noise_rate if record.total_rate is None else record.total_rate
            kept = round((1 - held) * len(labels))
            assert int((weights.weights > 0).sum()) == pytest.approx(kept, abs=1)


@pytest.mark.parametrize("classes", [2, 4, 8])
def test_collapsed_embeddings_are_refused_as_the_audit_refuses_them(classes):
    codes = torch.arange(40) % classes
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    x = x + (97 + codes)[:, None] * torch.arange(6)
    weights = bspml.SampleWeights(codes)
    with pytest.raises(InputError, match="fit all labels alike"):
        bspml.SelfPacedCurriculum(weights).update(x)
    assert (weights.weights == 1).all()
    assert "fit all labels alike" in bspml.audit(x, codes).sentence


@pytest.mark.parametrize("seed", [0, 1])
def test_where_most_labels_are_wrong_those_kept_are_mostly_right(seed):
    """There the label model may take wrong labels for its own doubt, and say far too little."""
    generator = torch.Generator().manual_seed(seed)
    centres, true = 4 * torch.randn(20, 16, generator=generator), torch.arange(20).repeat(20)
    E = centres[true] + torch.randn(400, 16, generator=generator)
    wrong = torch.rand(400, generator=generator) < 0.7
    labels = torch.where(wrong, torch.randint(20, (400,), generator=generator), true)
    weights = bspml.SampleWeights(labels)
    record = bspml.SelfPacedCurriculum(weights).update(E)
    rate = float((labels != true).double().mean())
    assert record.total_rate is None or record.total_rate == pytest.approx(rate, abs=0.05)
    kept = weights.weights > 0
    assert (labels == true)[kept].double().mean() > 0.8


@pytest.mark.parametrize("options", [{}, {"rule": "quadratic"}, {"repair": "confident"}])
def test_order_and_names_change_nothing_and_the_rate_is_that_of_an_audit(options):
    """40 samples, of which several models are as likely."""
    rng = np.random.default_rng(3)
    true = np.repeat(np.arange(4), 10)
    x = torch.from_numpy(0.8 * rng.standard_normal((4, 16))[true] + rng.standard_normal((40, 16)))
    given, wrong = true.copy(), rng.random(40) < 0.2
    given[wrong] = (true[wrong] + rng.integers(1, 4, wrong.sum())) % 4
    x = x.float()

    def judged(order, names):
        weights = bspml.SampleWeights(names[given[order]])
        record = bspml.SelfPacedCurriculum(weights, **options).update(x[order])
        return record.total_rate, weights.weights

    rate, weights = judged(np.arange(40), np.arange(4))
    assert rate == pytest.approx(bspml.audit(x, given).total_rate, abs=1e-9)
    for seed in range(1, 6):
        order = np.random.default_rng(seed).permutation(40)
        again, moved = judged(order, np.random.default_rng(seed).permutation(4))
        assert again == rate
        assert torch.equal(moved, weights[order])


@pytest.mark.parametrize(
    ("classes", "size", "dim", "rate", "seed"),
    [(20, 15, 12, 0.2, 3), (10, 20, 4, 0.2, 8), (6, 40, 5, 0.1, 13), (6, 40, 5, 0.1, 16)],
)
def test_a_rate_a_hair_below_a_wide_interval_is_not_thrown_away(classes, size, dim, rate, seed):
    """The label model says .1999999 where the null says .2000592 to .538."""
    torch.manual_seed(seed)
    true = torch.arange(classes).repeat_interleave(size)
    points = torch.randn(classes, dim)[true] + 0.3 * torch.randn(len(true), dim)
    given = bspml.noise.symmetric(true, rate, seed=seed).labels
    weights = bspml.SampleWeights(given)
    record = bspml.SelfPacedCurriculum(weights).update(points)
    audit = bspml.audit(points, given)
    assert record.total_rate == pytest.approx(audit.total_rate, abs=1e-9)
    assert record.total_interval == pytest.approx(audit.total_interval, abs=1e-9)
    assert record.total_rate < record.noise_interval[0]
    assert ((weights.weights == 0) & (given == true)).sum() <= 1


@pytest.mark.parametrize(("seed", "dim"), [(3, 24), (18, 64)])
def test_of_few_classes_the_interval_is_as_wide_as_an_audits(seed, dim):
    generator = torch.Generator().manual_seed(seed)
    true = torch.arange(2).repeat_interleave(150)
    points = torch.randn(2, dim, generator=generator)[true]
    points = points + 0.8 * torch.randn(300, dim, generator=generator)
    given = bspml.noise.symmetric(true, 0.2, seed=seed).labels
    record = bspml.SelfPacedCurriculum(bspml.SampleWeights(given)).update(points)
    audit = bspml.audit(points, given)
    assert record.total_interval == pytest.approx(audit.total_interval, abs=1e-9)
    assert record.noise_interval[1] <= record.total_interval[1]
    assert record.total_interval[0] <= 0.2 <= record.total_interval[1]
