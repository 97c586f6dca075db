"""Algorithm 1 around pml's own trainer: who trains on what, and resuming bit for bit."""

import copy
import dataclasses
import logging
from itertools import pairwise

import pytest
import torch
from pytorch_metric_learning.trainers import MetricLossOnly

import bspml
from bspml.errors import CheckpointError, InputError
from bspml.networks import embed
from bspml.trainers.alternating import AlternatingTrainer
from bspml.trainers.averaging import average_weights
from bspml.trainers.curriculum import FixedCurriculum
from bspml.trainers.loss_reading import LossReader
from bspml.trainers.patience import Patience
from bspml.trainers.schedules import lr_schedule
from helpers.comparisons import same
from helpers.draws import around_centres

CLASSES, PER_CLASS = 12, 12


def make_data(seed=0, rate=0.25):
    true = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    X = around_centres(true, 10, spread=0.5, seed=seed)
    return X, bspml.noise.symmetric(true, rate, seed=seed)


class Net(torch.nn.Module):
    """With batch norm and dropout, whose buffers and random state must survive a resume."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(10, 32),
            torch.nn.BatchNorm1d(32),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.3),
            torch.nn.Linear(32, 8),
        )

    def forward(self, x):
        return self.layers(x)


class Watch:
    """Keeps the losses, and a checkpoint after one chosen step."""

    def __init__(self, save_at=None):
        self.losses, self.records, self.saved, self.save_at = [], [], None, save_at

    def on_step(self, trainer, step, steps, loss):
        self.losses.append(loss)
        if trainer.steps == self.save_at:
            self.saved = copy.deepcopy(trainer.state_dict())

    def on_round(self, trainer, record):
        self.records.append(record)


def make_trainer(preset="paper", observer=None, seed=0, workers=0, **options):
    X, noisy = make_data()
    logging.getLogger("PML").setLevel(logging.ERROR)
    torch.manual_seed(seed)
    net = Net()
    weights = bspml.SampleWeights(noisy.labels)
    sampler = bspml.PKSampler(noisy.labels, 6, 4, seed=seed)
    trainer = MetricLossOnly(
        models={"trunk": net, "embedder": torch.nn.Identity()},
        optimizers={"trunk_optimizer": torch.optim.Adam(net.parameters(), 3e-3)},
        batch_size=24,
        loss_funcs={"metric_loss": bspml.BSPMLLoss(weights)},
        mining_funcs={"tuple_miner": bspml.BSPMLMiner(weights)},
        dataset=bspml.IndexedDataset(torch.utils.data.TensorDataset(X, noisy.labels)),
        data_device=torch.device("cpu"),
        sampler=sampler,
        dataloader_num_workers=workers,
        data_and_label_getter=bspml.data.indexed.sample_index_getter(weights),
    )
    settings = {
        "paper": {"preset": "paper", "target_maw": 0.75},
        "auto": {"preset": "auto", "warmup": "cross-fit", "warmup_rounds": 1, "judge_every": 1},
        "features": {"preset": "auto", "judge_every": 1},
        "at rest": {"preset": "auto", "judge_every": 3},
    }[preset]
    curriculum = bspml.SelfPacedCurriculum(weights, is_noisy=noisy.is_noisy, **settings)
    if options.get("averaged") is not None:
        options["averaged"] = average_weights(net, options["averaged"])
    return AlternatingTrainer(
        trainer, sampler, curriculum, lambda: embed(net, X), observer=observer, **options
    )


def test_a_round_trains_then_updates_the_weights_and_records_both():
    watch = Watch()
    trainer = make_trainer(observer=watch, evaluate=lambda last: {"last": last})
    records = trainer.train(3)
    steps = len(trainer.sampler)
    assert [r.steps for r in records] == [steps, 2 * steps, 3 * steps]
    assert [r.epochs for r in records] == [1, 2, 3]
    assert [r.metrics["last"] for r in records] == [False, False, True]
    assert records == watch.records
    assert records[-1].maw == pytest.approx(0.75, abs=0.01)
    for k, record in enumerate(records):
        own = watch.losses[k * steps : (k + 1) * steps]
        assert record.loss == pytest.approx(sum(own) / steps)


# Inside the first round, at a round's end, inside a later one; in and after the warm-up.
@pytest.mark.parametrize(
    ("preset", "embeddings", "save_at"),
    [
        pytest.param("paper", "fresh", 3, marks=pytest.mark.slow),
        ("paper", "fresh", 6),
        pytest.param("paper", "collected", 9, marks=pytest.mark.slow),
        pytest.param("auto", "fresh", 2, marks=pytest.mark.slow),
        ("auto", "fresh", 3),
        ("auto", "collected", 5),
        pytest.param("auto", "fresh", 14, marks=pytest.mark.slow),
        pytest.param("features", "fresh", 9, marks=pytest.mark.slow),
        ("at rest", "collected", 13),
    ],
)
def test_a_run_resumed_anywhere_repeats_losses_and_weights_bit_for_bit(
    preset, embeddings, save_at, monkeypatch
):
    monkeypatch.setattr("bspml.trainers.curriculum.pace.RESTING", 1.0)  # after two rounds
    whole = Watch(save_at)
    uninterrupted = make_trainer(preset, whole, embeddings=embeddings)
    uninterrupted.train(6)
    rest = Watch()
    resumed = make_trainer(preset, rest, seed=99, embeddings=embeddings)  # another start
    resumed.sampler.seed = 0  # the order belongs to the run's configuration
    resumed.load_state_dict(whole.saved)
    torch.manual_seed(12345)  # whatever happened in the new process
    resumed.train(6)
    assert rest.losses == whole.losses[save_at:]
    assert len(rest.losses) >= 20
    one, two = (t.curriculum.weights.weights for t in (uninterrupted, resumed))
    assert torch.equal(one, two)
    phases = [record.curriculum.phase for record in whole.records]
    assert phases.count("weights, waiting") >= (3 if preset == "at rest" else 0)
    for a, b in zip(
        uninterrupted.trainer.models["trunk"].state_dict().values(),
        resumed.trainer.models["trunk"].state_dict().values(),
        strict=True,
    ):
        assert torch.equal(a, b)


def states_of(save_from, where, epochs):
    """Train the automatic preset under a schedule; its states saved there, records and network."""
    saved, watch = [], Watch(save_from)
    trainer = make_trainer("auto", watch, schedule=lr_schedule("cosine"), evaluate=lambda last: {})

    def keep(*_):
        if trainer.steps >= save_from:
            saved.append(copy.deepcopy(trainer.state_dict()))
        return {}

    if where == "hook":
        trainer.trainer.end_of_iteration_hook = keep
    elif where == "evaluate":
        trainer.evaluate = keep
    records = trainer.train(epochs)
    return watch.saved if where == "on_step" else saved[0], records, trainer


# Behind the last step of all; in the hook of a step and of the last one; in the evaluation of a
# network that saw half A, and is to be thrown away.
@pytest.mark.parametrize(
    ("save_from", "where"), [(28, "on_step"), (27, "hook"), (28, "hook"), (3, "evaluate")]
)
def test_a_state_saved_in_any_callback_goes_on_exactly_there(save_from, where):
    state, records, whole = states_of(save_from, where, epochs=3)
    assert whole.steps == 28  # 4 on half A, 3 on half B
    resumed = make_trainer("auto", schedule=lr_schedule("cosine"), evaluate=lambda last: {})
    resumed.load_state_dict(state)
    rest = resumed.train(3)
    assert len(rest) == (len(records) - 1 if where == "evaluate" else 1)
    for one, other in zip(records[-len(rest) :], rest, strict=True):
        assert (one.round, one.steps, one.loss, one.lr) == (
            *(other.round, other.steps),
            *(other.loss, other.lr),
        )
    for part in ("network", "sample_weights", "position"):
        assert_same(whole.state_dict()[part], resumed.state_dict()[part])


def test_a_training_that_an_error_left_behind_its_last_step_is_finished_by_the_next_call():
    last = make_trainer("features").train(1)[-1]
    trainer = make_trainer("features")
    trainer.trainer.end_of_iteration_hook = lambda t: {}[t] if trainer.steps == 7 else None
    with pytest.raises(KeyError):
        trainer.train(1)
    trainer.trainer.end_of_iteration_hook = lambda t: None
    (record,) = trainer.train(1)
    assert (record.steps, record.loss, record.maw) == (7, last.loss, last.maw)
    assert trainer.train(1) == []


def test_what_was_trained_to_its_end_leaves_the_generators_as_it_did_then():
    done, again = make_trainer("paper"), make_trainer("paper")
    done.train(1)
    after = torch.get_rng_state()
    again.load_state_dict(done.state_dict())
    torch.manual_seed(12345)
    assert again.train(1) == []
    assert torch.equal(torch.get_rng_state(), after)  # what trains next starts alike


def test_a_sampler_of_another_seed_or_order_is_refused(in_warmup):
    trainer = make_trainer("auto", seed=5)
    with pytest.raises(CheckpointError, match="saved with seed=0, this sampler has seed=5"):
        trainer.load_state_dict(in_warmup)
    older = {key: value for key, value in in_warmup.items() if key != "drawn_from"}
    with pytest.raises(CheckpointError, match="draws its batches in another order"):
        trainer.load_state_dict(older)
    assert trainer.steps == 0


def test_cross_fit_trains_each_half_on_its_own_rows_and_resets_the_network():
    seen = []
    trainer = make_trainer("auto")
    start = {k: v.clone() for k, v in trainer.trainer.models["trunk"].state_dict().items()}
    weights = trainer.curriculum.weights
    original = weights.set_batch
    weights.set_batch = lambda index, *a: (seen.append(index.clone()), original(index, *a))[1]
    half = trainer.curriculum.training_mask()
    trainer.trainer.end_of_epoch_hook = lambda t: False  # a round at a time
    trainer.train(1)
    assert half[torch.cat(seen)].all()
    after = trainer.trainer.models["trunk"].state_dict()
    assert all(torch.equal(after[k], start[k]) for k in start)
    seen.clear()
    trainer.train(1)
    assert not half[torch.cat(seen)].any()


def test_the_steps_of_networks_that_are_thrown_away_come_on_top():
    trainer = make_trainer("auto", evaluate=lambda last: {"last": last})
    records = trainer.train(2)
    temporary = [record for record in records if record.temporary]
    assert [record.curriculum.phase for record in temporary] == ["half A", "half B"]
    assert trainer.total_steps(2) == 14
    assert trainer.steps == records[-1].steps == temporary[-1].steps + 14
    assert [record.metrics["last"] for record in records].index(True) == len(records) - 1
    assert trainer.train(2) == []
    again = make_trainer("auto")
    again.load_state_dict(trainer.state_dict())
    assert again.train(2) == []
    assert again.train(3)[-1].steps == temporary[-1].steps + 21


def test_a_state_of_when_the_warm_up_was_part_of_the_epochs_ends_where_it_would_have():
    trainer = make_trainer("auto")
    trainer.train(1)
    state = trainer.state_dict()
    assert state["position"].pop("discarded_steps") == 7
    resumed = make_trainer("auto")
    resumed.load_state_dict(state)
    assert resumed.train(2) == []  # 14 steps in all
    assert resumed.train(3)[-1].steps == 21


def test_no_epochs_are_no_steps_of_a_warm_up_either():
    assert make_trainer("auto").train(0) == []


def test_an_evaluation_that_fails_does_not_keep_a_network_that_is_to_be_thrown_away():
    def interrupted(last):
        raise KeyboardInterrupt

    trainer = make_trainer("auto", evaluate=interrupted)
    network = trainer.trainer.models["trunk"]
    before = copy.deepcopy(network.state_dict())
    with pytest.raises(KeyboardInterrupt):
        trainer.train(6)
    assert trainer.curriculum.weights.restarts == 1
    assert_same(network.state_dict(), before)


def test_rows_of_weight_zero_are_not_sampled_by_the_automatic_curriculum():
    trainer = make_trainer("features")
    trainer.train(1)
    gone = trainer.curriculum.weights.weights == 0
    assert gone.any()
    rows = trainer.curriculum.training_mask()
    assert not rows[gone].any()


def test_the_update_before_the_first_step_judges_the_embeddings_given_for_it():
    features, noisy = make_data()
    trainer = make_trainer("features", initial_embeddings=features)
    calls, embed_all = [], trainer.embed
    trainer.embed = lambda: (calls.append(1), embed_all())[1]
    trainer.train(0.5)  # one round
    expected = bspml.SelfPacedCurriculum(bspml.SampleWeights(noisy.labels)).update(features)
    found = trainer.initial_record
    assert (found.noise_rate, found.changed) == (expected.noise_rate, expected.changed)
    assert len(calls) == 1  # the update after the round looks at the network again


def test_collected_embeddings_are_those_of_the_steps_and_fresh_elsewhere():
    given = []
    trainer = make_trainer("paper", embeddings="collected")
    update = trainer.curriculum.update
    trainer.curriculum.update = lambda E: (given.append(E.clone()), update(E))[1]
    seen = {}
    model = trainer.trainer.models["trunk"]
    weights = trainer.curriculum.weights
    model.register_forward_hook(
        lambda m, i, o: (
            seen.update(zip(weights.batch_index.tolist(), o.detach().clone(), strict=True))
            if m.training
            else None
        )
    )
    trainer.train(0.5)
    fresh = trainer.embed()
    assert 0 < len(seen) < CLASSES * PER_CLASS
    assert len(given[0]) == CLASSES * PER_CLASS
    for row, vector in enumerate(given[0]):
        assert torch.equal(vector, seen[row]) if row in seen else torch.allclose(vector, fresh[row])


def test_only_rows_that_no_step_visited_are_embedded_again():
    asked, given = [], []
    trainer = make_trainer("paper", embeddings="collected")
    whole = trainer.embed
    trainer.embed = lambda: pytest.fail("all rows were embedded")
    trainer.embed_rows = lambda rows: (asked.append(rows), whole()[rows])[1]
    update = trainer.curriculum.update
    trainer.curriculum.update = lambda E: (given.append(E.clone()), update(E))[1]
    trainer.train(0.5)
    assert 0 < len(asked[0]) < CLASSES * PER_CLASS
    assert torch.equal(given[0][asked[0]], whole()[asked[0]])
    assert not given[0].isnan().any()


def test_collected_embeddings_are_refused_where_batches_lose_rows():
    made = make_trainer()
    made.trainer.mining_funcs["subset_batch_miner"] = lambda embeddings, labels: [0, 1]
    parts = made.trainer, made.sampler, made.curriculum, made.embed
    AlternatingTrainer(*parts)
    with pytest.raises(InputError, match=r"`subset_batch_miner` drops rows.*embeddings=\"fresh\""):
        AlternatingTrainer(*parts, embeddings="collected")


def test_nothing_is_embedded_or_collected_in_a_round_whose_labels_are_not_judged(monkeypatch):
    monkeypatch.setattr("bspml.trainers.curriculum.pace.RESTING", 1.0)
    trainer, judged = make_trainer("at rest", embeddings="collected"), []
    take = trainer.collected.take

    def taken(*arguments):
        judged.append(trainer.round)
        return take(*arguments)

    trainer.collected.take = taken
    records = trainer.train(7)
    assert judged == [1, 2, 5, 8][: len(judged)]
    assert len(judged) >= 3
    for record in records:
        waits = record.round not in judged
        assert record.curriculum.phase == ("weights, waiting" if waits else "weights")
        if waits:
            assert (record.curriculum.changed, record.curriculum.seconds_statistics) == (0, 0)
    fixed = FixedCurriculum(trainer.curriculum.weights)
    trainer = make_trainer()
    trainer.curriculum, trainer.embed = fixed, lambda: pytest.fail("nothing looks at them")
    assert trainer.train(1)[0].curriculum.phase == "fixed"


def test_halves_are_judged_by_one_network_even_when_vectors_are_collected():
    given = []
    trainer = make_trainer("auto", embeddings="collected")
    update = trainer.curriculum.update
    trainer.curriculum.update = lambda E: (given.append((E.clone(), trainer.embed())), update(E))[1]
    trainer.train(1.0)
    assert len(given) >= 2
    for used, fresh in given[:2]:
        assert torch.equal(used, fresh)


def test_plain_training_needs_no_curriculum():
    trainer = make_trainer()
    plain = AlternatingTrainer(trainer.trainer, trainer.sampler, None, trainer.embed)
    record = plain.train(1)[0]
    assert (record.maw, record.curriculum) == (1.0, None)


def test_the_trainers_own_hooks_still_work():
    trainer = make_trainer()
    counts = []
    trainer.trainer.end_of_iteration_hook = lambda t: counts.append(t.iteration)
    trainer.trainer.end_of_epoch_hook = lambda t: False
    assert len(trainer.train(5)) == 1
    assert counts == list(range(len(trainer.sampler)))


def test_batches_of_worker_processes_give_the_same_losses():
    runs = []
    for workers in (0, 2):
        watch = Watch()
        make_trainer(observer=watch, workers=workers).train(1)
        runs.append(watch.losses)
    assert runs[0] == runs[1]


def test_a_diverged_loss_stops_with_a_sentence():
    trainer = make_trainer()
    with torch.no_grad():
        trainer.trainer.models["trunk"].layers[0].weight.fill_(float("nan"))
    with pytest.raises(InputError, match=r"NaN|nan"):
        trainer.train(1)


def test_a_foreign_sampler_is_refused():
    trainer = make_trainer()
    other = bspml.PKSampler([0, 0, 1, 1], 2, 2)
    with pytest.raises(InputError, match="very `sampler`"):
        AlternatingTrainer(trainer.trainer, other, None, trainer.embed)


def test_a_round_of_losses_of_exactly_zero_is_told():
    trainer = make_trainer("paper")
    trainer.trainer.loss_funcs["metric_loss"].forward = lambda e, *_, **__: (e * 0).sum()
    (record,) = trainer.train(1)
    assert record.loss == 0
    assert record.notes[0].startswith("the loss was exactly 0 in 7 steps: nothing was learned.")


def test_a_record_tells_the_noise_rate_of_its_weight_step():
    trainer = make_trainer("features")
    record = trainer.train(1)[0]
    assert record.noise_rate == record.curriculum.noise_rate > 0
    assert record.noise_interval == record.curriculum.noise_interval
    plain = dataclasses.replace(record, curriculum=None)
    assert plain.noise_rate is None
    assert plain.noise_interval is None


def test_impossible_parts_are_refused_at_once():
    made = make_trainer()
    given = {"trainer": made.trainer, "sampler": made.sampler, "curriculum": made.curriculum}
    given |= {"embed": made.embed, "evaluate": None}
    given.pop("evaluate")
    with pytest.raises(InputError, match="`evaluate_every` must be a whole number"):
        AlternatingTrainer(**given, evaluate_every=0)
    with pytest.raises(InputError, match="`trainer` must be"):
        AlternatingTrainer(**(given | {"trainer": None}))
    with pytest.raises(InputError, match="`initial_embeddings` are for an update before the first"):
        AlternatingTrainer(**given, initial_embeddings=torch.ones(2, 2))
    for epochs in (float("inf"), float("nan"), -1.0):
        with pytest.raises(InputError, match="`epochs`"):
            made.train(epochs)


@pytest.fixture(scope="module")
def in_warmup():
    """A state inside the second round of the warm-up, with everything in it."""
    watch = Watch(4)
    make_trainer("auto", watch).train(2)
    return watch.saved


def damage_position(key, value):
    return lambda state: state["position"].update({key: value})


DAMAGES = {
    "no network": lambda s: s.pop("network"),
    "no initial": lambda s: s.update(initial=None),
    "text as round": damage_position("round", "1"),
    "negative step": damage_position("step", -1),
    "far step": damage_position("step", 10**9),
    "far round": damage_position("round", 10**9),
    "nan loss": damage_position("loss_sum", float("nan")),
    "other round": damage_position("full_round", 6),
    "other network": lambda s: s["network"]["models"]["trunk"].popitem(),
    "other initial": lambda s: s["initial"]["models"]["trunk"].popitem(),
    "text rate": lambda s: s["network"]["optimizers"]["trunk_optimizer"]["param_groups"][0].update(
        lr="fast"
    ),
    "small moment": lambda s: s["network"]["optimizers"]["trunk_optimizer"]["state"][0].update(
        exp_avg=torch.ones(1)
    ),
    "no losses": lambda s: s.update(loss_funcs={}),
    "nan weights": lambda s: s["sample_weights"]["weights"].fill_(float("nan")),
    "other method": lambda s: s.update(curriculum=None, sample_weights=None),
    "other phase": lambda s: s["curriculum"]["update"].update(phase="x"),
    "other preset": lambda s: s["curriculum"].update(preset="paper"),
    "other seed": lambda s: s["drawn_from"].update(seed=1),
    "text as drawn from": lambda s: s.update(drawn_from="0"),
    "short generator": lambda s: s["generators"].update(torch=torch.zeros(3, dtype=torch.uint8)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_state_of_wrong_content_is_refused_in_one_line_and_changes_nothing(in_warmup, damage):
    state = copy.deepcopy(in_warmup)
    damage(state)
    trainer = make_trainer("auto", seed=5)
    trainer.sampler.seed = 0
    before = copy.deepcopy(trainer.state_dict())
    with pytest.raises(CheckpointError) as err:
        trainer.load_state_dict(state)
    assert "\n" not in str(err.value)
    after = trainer.state_dict()
    for part in ("network", "initial", "loss_funcs", "sample_weights", "generators"):
        assert_same(after[part], before[part])
    assert after["position"] == before["position"]
    assert after["curriculum"]["update"]["phase"] == "half A"
    assert trainer._resume_generators is None
    trainer.load_state_dict(in_warmup)  # the whole one still fits


def assert_same(a, b):
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_same(a[key], b[key])
    else:
        assert repr(a) == repr(b)


def test_a_round_goes_on_where_the_weights_keep_too_few_classes_for_a_batch():
    trainer = make_trainer("features")
    curriculum, weights = trainer.curriculum, trainer.curriculum.weights
    update = curriculum.update

    def keep_three_classes(embeddings):
        record = update(embeddings)
        weights.update(weights.weights * (weights.codes < 3))
        return record

    curriculum.update = keep_three_classes
    visited = []
    trainer.trainer.end_of_iteration_hook = lambda _: visited.append(weights.batch_index)
    records = trainer.train(2)
    assert len(records) == 2
    assert "of 3 classes, fewer than the 6 classes of a batch" in records[0].notes[0]
    assert len(weights.codes[torch.cat(visited)].unique()) == CLASSES
    assert weights.batch_index is None  # the last step's rows have had their day


def test_too_few_classes_in_a_half_never_lets_the_other_half_in():
    trainer = make_trainer("auto")
    trainer.trainer.end_of_epoch_hook = lambda t: False  # a round at a time
    trainer.train(1)  # half A is done
    weights, half = trainer.curriculum.weights, trainer.curriculum.allowed_mask()
    assert 0 < half.sum() < len(half)
    weights.update(weights.weights * (weights.codes < 3))
    visited = []
    trainer.trainer.end_of_iteration_hook = lambda _: visited.append(weights.batch_index)
    record = trainer.train(1)[0]
    assert record.notes
    assert half[torch.cat(visited)].all()


# ------------------------------------------------------------------------- the recipe


def watched_rates(trainer, epochs):
    """The learning rate of each step, and the records."""
    rates = []
    optimizer = trainer.trainer.optimizers["trunk_optimizer"]
    trainer.trainer.end_of_iteration_hook = lambda _: rates.append(optimizer.param_groups[0]["lr"])
    return rates, trainer.train(epochs)


def test_a_schedule_spans_all_steps_where_one_network_is_trained():
    trainer = make_trainer("paper", schedule=lr_schedule("linear", warmup_steps=1))
    total = trainer.total_steps(2)
    rates, records = watched_rates(trainer, 2)
    # Half of the rate, then all of it, falling by equal parts to nothing after the last step.
    falling = [1 - k / (total - 1) for k in range(total - 1)]
    assert len(rates) == total == 14
    assert rates == pytest.approx([3e-3 * share for share in (0.5, *falling)], rel=1e-12)
    assert [record.lr for record in records] == [rates[6], rates[13]]


def test_each_network_of_a_cross_fit_has_a_whole_schedule():
    schedule = lr_schedule("cosine", warmup_steps=2)
    trainer = make_trainer("auto", schedule=schedule)  # a round on each half
    rates, records = watched_rates(trainer, 3)
    ends = [0, records[0].steps, records[1].steps, records[1].steps + 21]
    lengths = [b - a for a, b in pairwise(ends)]
    assert lengths[0] == 4  # half the rows
    expected = [schedule.over(n)(k) * 3e-3 for n in lengths for k in range(n)]
    assert rates == pytest.approx(expected, rel=1e-12)
    assert rates[ends[2]] == pytest.approx(1e-3)  # the third network warms up like the first


def test_without_a_last_reset_half_b_and_the_rest_are_one_network():
    trainer = make_trainer("auto", schedule=lr_schedule("cosine"))
    trainer.curriculum._update.settings = trainer.curriculum._update.settings.model_copy(
        update={"reset": False}
    )
    rates, records = watched_rates(trainer, 3)
    first = records[0].steps
    stays = lr_schedule("cosine").over(21)
    assert rates[first:] == pytest.approx([3e-3 * stays(k) for k in range(21)], rel=1e-12)


def test_a_training_made_longer_keeps_a_constant_schedule_and_refuses_another():
    trainer = make_trainer("paper", schedule=lr_schedule("constant", warmup_steps=3))
    trainer.train(1)
    assert [record.lr for record in trainer.train(3)] == [3e-3, 3e-3]
    stretched = make_trainer("paper", schedule=lr_schedule("linear"))
    stretched.train(1)
    with pytest.raises(InputError, match="0 steps are left of the 7 that the linear schedule was"):
        stretched.train(2)
    with pytest.raises(InputError, match="`warmup_steps` is 4, but the training has 7 steps"):
        make_trainer("paper", schedule=lr_schedule("cosine", warmup_steps=4)).train(1)


def test_two_schedules_are_refused():
    trainer = make_trainer("paper", schedule=lr_schedule("linear"))
    with pytest.raises(InputError, match="has `lr_schedulers` trunk_scheduler_by_iteration alread"):
        AlternatingTrainer(
            trainer.trainer, trainer.sampler, None, trainer.embed, schedule=lr_schedule("cosine")
        )


def test_the_average_takes_in_every_step_and_starts_afresh_with_the_network():
    trainer = make_trainer("auto", averaged=0.9)
    net, average = trainer.trainer.models["trunk"], trainer.averaged
    start = {k: v.clone() for k, v in net.state_dict().items()}
    seen = []
    trainer.trainer.end_of_iteration_hook = lambda _: seen.append(int(average.n_averaged))
    trainer.trainer.end_of_epoch_hook = lambda t: trainer.round > 1
    trainer.train(3)
    assert seen == [1, 2, 3, 4]
    assert average.n_averaged == 0  # half B starts
    assert same(dict(average.module.state_dict()), start)
    steps_on_b = trainer.train(3)[0].steps - 4
    assert seen == [1, 2, 3, 4, *range(1, steps_on_b + 1), *range(1, 21 + 1)]
    assert not same(average.module.layers[0].weight, net.layers[0].weight)


def recall(metrics):
    return metrics["recall"]


def evaluations(values):
    """Evaluations that give these values one after the other; and what they were told."""
    told, left = [], list(values)

    def evaluate(last):
        told.append(last)
        return {"recall": left[0] if last and len(left) == 1 else left.pop(0), "last": last}

    return evaluate, told


def test_a_training_stops_where_its_patience_ends_and_evaluates_as_for_the_last_time():
    evaluate, told = evaluations([0.5, 0.6, 0.6, float("nan"), 0.6])
    trainer = make_trainer("paper", evaluate=evaluate, patience=Patience(2, recall))
    records = trainer.train(9)
    assert told == [False, False, False, False, True]
    assert len(records) == 4
    assert records[-1].metrics["last"]
    assert records[-1].notes == ("stopped early: no better than 0.6 in 2 evaluations since",)
    assert trainer.train(9) == []


def test_networks_that_are_thrown_away_are_no_reason_to_stop():
    evaluate, told = evaluations([0.9, 0.8, 0.1, 0.2, 0.1, 0.0, 0.0])
    trainer = make_trainer("auto", evaluate=evaluate, patience=Patience(2, recall))
    assert len(trainer.train(9)) == 6  # best in the fourth, which is the second of the last network
    assert trainer.patience.best == 0.2
    assert told[-1]


def test_patience_without_an_evaluation_is_refused():
    with pytest.raises(InputError, match="there is no `evaluate`"):
        make_trainer("paper", patience=Patience(2, recall))


@pytest.mark.parametrize(
    ("preset", "save_at"),
    [
        ("paper", 6),
        ("auto", 3),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [("paper", 3), ("auto", 2), ("auto", 14)]
        ),
    ],
)
def test_schedule_average_and_patience_go_on_bit_for_bit(preset, save_at):
    def make(observer, seed=0):
        return make_trainer(
            preset,
            observer,
            seed,
            schedule=lr_schedule("cosine", warmup_steps=2),
            averaged=0.9,
            evaluate=lambda last: {"recall": 1 / (1 + len(observer.records))},
            patience=Patience(3, recall),
        )

    whole, rest = Watch(save_at), Watch()
    uninterrupted = make(whole)
    records = uninterrupted.train(5)
    resumed = make(rest, seed=99)
    resumed.sampler.seed = 0
    resumed.load_state_dict(whole.saved)
    rest.records += whole.records[: resumed.round]  # the evaluation reads how many there are
    again = resumed.train(5)
    assert rest.losses == whole.losses[save_at:]
    assert [r.lr for r in again] == [r.lr for r in records][-len(again) :]
    assert uninterrupted.patience.exhausted
    assert same(resumed.state_dict()["network"], uninterrupted.state_dict()["network"])
    assert resumed.patience.state_dict() == uninterrupted.patience.state_dict()


def test_a_state_from_before_there_were_recipes_is_taken(in_warmup):
    older = copy.deepcopy(in_warmup)
    del older["patience"], older["position"]["lr"], older["curriculum"]["update"]["pace"]
    trainer = make_trainer("auto", evaluate=lambda _: {"recall": 0.5}, patience=Patience(9, recall))
    trainer.load_state_dict(older)
    assert trainer.steps == 4
    assert trainer.train(1)[-1].lr == 3e-3
    averaging = make_trainer("auto", averaged=0.9)
    with pytest.raises(CheckpointError, match="KeyError: 'averaged'"):
        averaging.load_state_dict(older)


# ------------------------------------------------------------------------- losses read late


def late_reader():
    """Reads as from a device: not what was just queued, but the loss before."""

    def start(loss):
        value = float(torch.as_tensor(loss).detach())
        return lambda: value

    return LossReader(start)


def run(late, epochs=2, save_at=None, **options):
    watch = Watch(save_at)
    trainer = make_trainer(observer=watch, **options)
    if late:
        trainer.loss_reader = late_reader()
    return trainer, watch, trainer.train(epochs)


def test_a_training_read_late_has_the_records_of_one_read_at_once():
    _, prompt, expected = run(late=False)
    _, late, found = run(late=True)
    assert [r.loss for r in found] == [r.loss for r in expected]
    assert [r.maw for r in found] == [r.maw for r in expected]
    steps = expected[0].steps
    assert late.losses[:steps] == [prompt.losses[0], *prompt.losses[: steps - 1]]
    assert late.losses[steps] == prompt.losses[steps - 1]  # the last known at a round's start


def test_a_checkpoint_knows_the_losses_of_all_its_steps():
    _, prompt, _ = run(late=False, save_at=3)
    _, late, _ = run(late=True, save_at=3)
    assert late.saved["position"] == prompt.saved["position"]
    assert late.saved["position"]["loss_sum"] == sum(prompt.losses[:3])
    resumed = make_trainer(seed=99)
    resumed.sampler.seed = 0
    resumed.loss_reader = late_reader()
    resumed.load_state_dict(late.saved)
    _, _, expected = run(late=False)
    assert [r.loss for r in resumed.train(2)] == [r.loss for r in expected]


class Poisoned(torch.nn.Module):
    """A loss that is NaN from one call on."""

    def __init__(self, loss, call):
        super().__init__()
        self.loss, self.call, self.calls = loss, call, 0

    def forward(self, *args):
        self.calls += 1
        return self.loss(*args) * (float("nan") if self.calls == self.call else 1)


def poisoned(late, call, save_at=None):
    watch = Watch(save_at)
    trainer = make_trainer(observer=watch)
    loss = Poisoned(trainer.trainer.loss_funcs["metric_loss"], call)
    trainer.trainer.loss_funcs["metric_loss"] = loss
    if late:
        trainer.loss_reader = late_reader()
    return trainer, watch, loss


@pytest.mark.parametrize(("late", "taken"), [(False, 3), (True, 4)])
def test_a_diverged_step_stops_the_training_at_once_or_one_step_later(late, taken):
    trainer, _, loss = poisoned(late, call=3)
    # The poisoned gradient poisons the network, whose next output the loss itself refuses.
    trainer.trainer.step_optimizers = lambda: None
    with pytest.raises(InputError, match=r"became nan in round 1, step 3\."):
        trainer.train(1)
    assert loss.calls == taken


def test_a_diverged_last_step_is_found_at_the_round_s_end():
    steps = len(make_trainer().sampler)
    trainer, watch, _ = poisoned(late=True, call=steps)
    with pytest.raises(InputError, match=f"round 1, step {steps}"):
        trainer.train(2)
    assert watch.records == []


def test_no_checkpoint_is_made_of_a_diverged_network():
    trainer, watch, loss = poisoned(late=True, call=3, save_at=3)
    with pytest.raises(InputError, match="round 1, step 3"):
        trainer.train(1)
    assert loss.calls == 3
    assert watch.saved is None


def test_a_state_is_taken_whatever_is_under_way():
    _, watch, _ = run(late=False, save_at=2)
    trainer = make_trainer()
    trainer.loss_reader = late_reader()
    trainer.loss_reader.add(0.5, 1, 1)
    trainer.loss_reader.add(float("nan"), 1, 2)
    trainer.load_state_dict(copy.deepcopy(watch.saved))
    assert trainer.loss_reader.total() == watch.saved["position"]["loss_sum"]


@pytest.mark.parametrize("embeddings", ["fresh", "collected"])
def test_embeddings_may_be_a_numpy_array(embeddings):
    expected = make_trainer("features", embeddings=embeddings).train(1)[-1]
    arrays = make_trainer("features", embeddings=embeddings)
    embed_all, calls = arrays.embed, []
    arrays.embed = lambda: (calls.append(1), embed_all().numpy())[1]
    record = arrays.train(1)[-1]
    assert (record.loss, record.maw, len(calls)) == (expected.loss, expected.maw, 3)


def test_an_embed_that_returns_nothing_is_refused_in_words():
    trainer = make_trainer("features")
    embed_all = trainer.embed
    trainer.embed = lambda: None if trainer.steps else embed_all()
    with pytest.raises(InputError, match="`embeddings` are needed where labels are judged"):
        trainer.train(1)


def test_a_state_in_memory_is_left_as_it_is_by_a_training_that_goes_on_from_it():
    watch = Watch(save_at=16)
    make_trainer("auto", watch, embeddings="collected").train(3)
    assert watch.saved["collected"] is not None
    before, ends = copy.deepcopy(watch.saved), []
    for _ in range(2):
        trainer = make_trainer("auto", embeddings="collected")
        trainer.load_state_dict(watch.saved)
        trainer.train(4)
        ends.append(trainer.trainer.models["trunk"].state_dict())
    assert same(watch.saved, before)
    assert same(*ends)


def test_a_state_from_before_the_first_step_goes_on_though_embedding_draws():
    ends = []
    for resumed in (False, True):
        trainer = make_trainer("features")
        whole, state = trainer.embed, copy.deepcopy(trainer.state_dict())
        trainer.embed = lambda whole=whole: whole() + 0.5 * torch.randn(144, 8)  # augmentation
        if resumed:
            torch.manual_seed(7)
            trainer.load_state_dict(state)
        records = trainer.train(2)
        ends.append([trainer.curriculum.weights.weights, [record.loss for record in records]])
    assert torch.equal(ends[0][0], ends[1][0])
    assert ends[0][1] == ends[1][1]
