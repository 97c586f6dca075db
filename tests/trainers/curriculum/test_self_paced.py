"""The keywords of the curriculum: defaults, what is refused, and that a refusal changes nothing."""

import inspect
import math
import warnings

import numpy as np
import pytest
import torch

import bspml
from bspml.errors import CheckpointError, InputError
from bspml.trainers.settings import AutoSettings, PaperSettings
from helpers.draws import around_centres


def clusters(classes=6, per_class=8, flips=8, seed=0, spread=0.15):
    """Tight clusters on the sphere, with the first `flips` samples under the next label."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, 16, generator=g)
    true = torch.arange(classes).repeat_interleave(per_class)
    E = centres[true] + spread * torch.randn(len(true), 16, generator=g)
    labels = true.clone()
    noisy = torch.zeros(len(true), dtype=torch.bool)
    noisy[torch.randperm(len(true), generator=g)[:flips]] = True
    labels[noisy] = (true[noisy] + 1) % classes
    return E, labels, noisy


def test_state_goes_back_into_a_fresh_curriculum():
    E, labels, _ = clusters()
    weights = bspml.SampleWeights(labels)
    first = bspml.SelfPacedCurriculum(weights, preset="paper", age=1.0, age_growth=1.3)
    first.update(E)
    other = bspml.SelfPacedCurriculum(weights, preset="paper", age=1.0, age_growth=1.3)
    other.load_state_dict(first.state_dict())
    record = other.update(E)
    assert (record.round, record.age) == (2, 1.3)
    auto = bspml.SelfPacedCurriculum(weights)
    with pytest.raises(CheckpointError, match=r"preset='paper'.*preset='auto'"):
        auto.load_state_dict(first.state_dict())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "paper"}, "exactly one of `age` and `target_maw`"),
        ({"preset": "paper", "age": 1.0, "target_maw": 0.5}, "exactly one of"),
        ({"preset": "paper", "target_maw": 1.5}, r"`target_maw` must be in \[0, 1\]"),
        ({"preset": "paper", "age": 1.0, "balance": -1}, r"`balance` must be in \[0, 1e.09\]"),
        ({"preset": "best"}, "`preset` must be one of auto, paper; got 'best'"),
        ({"age": 1.0}, '`age` belongs to preset="paper"'),
        ({"statistics": "weighted"}, '`statistics` belongs to preset="paper"'),
        ({"solver_options": {"gamma": 1.0}}, '`solver_options` belongs to preset="paper"'),
        ({"age_growth": 2.0}, '`age_growth` belongs to preset="paper"'),
        ({"preset": "paper", "age": 1.0, "rule": "threshold"}, '`rule` belongs to preset="auto"'),
        ({"preset": "paper", "age": 1.0, "reset": False}, '`reset` belongs to preset="auto"'),
        ({"preset": "paper", "age": 1.0, "alpha": -1}, "`alpha` must be in"),
        ({"preset": "paper", "age": 1.0, "solver": "newton"}, "`solver` must be one of"),
        (
            {"preset": "paper", "age": 1.0, "solver_options": {"gama": 1}},
            "does not know `gama`",
        ),
        ({"rule": "best"}, "`rule` must be one of"),
        ({"is_noisy": [True]}, r"`is_noisy` must be \(N,\) = \(48,\)"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    _, labels, _ = clusters()
    with pytest.raises(InputError, match=message):
        bspml.SelfPacedCurriculum(bspml.SampleWeights(labels), **options)


def test_refused_embeddings_leave_the_weights_alone():
    E, labels, _ = clusters()
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(weights, preset="paper", age=0.1)
    with pytest.raises(InputError, match=r"one row per weight, \(48, D\); got \(47, 16\)"):
        curriculum.update(E[:47])
    E[5, 2] = float("nan")
    with pytest.raises(InputError, match="rows 5 hold NaN"):
        curriculum.update(E)
    assert weights.maw() == 1.0
    assert curriculum.rounds == 0


@pytest.mark.parametrize("options", [{}, {"warmup": "cross-fit", "warmup_rounds": 1}])
@pytest.mark.parametrize("struck", ["update", "maw"])  # between two writes, after the last
def test_an_interrupted_judgement_is_as_if_it_had_not_begun(options, struck, monkeypatch):
    E, labels, _ = clusters()
    plain, interrupted = (
        bspml.SelfPacedCurriculum(bspml.SampleWeights(labels), **options) for _ in range(2)
    )
    write = getattr(bspml.SampleWeights, struck)

    def strike(self, *args):
        monkeypatch.setattr(bspml.SampleWeights, struck, write)  # once
        write(self, *args)
        raise KeyboardInterrupt

    for _ in range(4):
        for curriculum in (plain, interrupted):
            curriculum.training_mask()
        expected = plain.update(E)
        monkeypatch.setattr(bspml.SampleWeights, struck, strike)
        with pytest.raises(KeyboardInterrupt):
            interrupted.update(E)
        record = interrupted.update(E)
        assert (record.round, record.phase) == (expected.round, expected.phase)
        assert record.changed == expected.changed
        assert torch.equal(interrupted.weights.weights, plain.weights.weights)
        assert interrupted.weights.restarts == plain.weights.restarts


def test_every_key_of_a_preset_is_a_keyword_and_none_has_a_second_default():
    keywords = inspect.signature(bspml.SelfPacedCurriculum).parameters
    for key in {**AutoSettings.model_fields, **PaperSettings.model_fields}:
        assert keywords[key].default is None, key


def test_the_keywords_make_the_section_and_no_ceiling_is_infinity():
    weights = bspml.SampleWeights([0, 0, 1, 1])
    curriculum = bspml.SelfPacedCurriculum(weights, "paper", age=2.0, balance=0.5, age_max=math.inf)
    assert curriculum._update.settings == PaperSettings(age=2.0, balance=0.5, age_max=math.inf)
    automatic = bspml.SelfPacedCurriculum(weights, warmup_rounds=3, reset=False)
    assert automatic._update.settings == AutoSettings(warmup_rounds=3, reset=False)
    with pytest.raises(InputError, match="`warmup_rounds` must be a whole number from 1 to"):
        bspml.SelfPacedCurriculum(weights, warmup_rounds=0)
    with pytest.raises(InputError, match=r"`age_max` must be in \(0, inf\); got nan"):
        bspml.SelfPacedCurriculum(weights, "paper", age=1.0, age_max=math.nan)


def test_outliers_without_the_truth_are_refused():
    with pytest.raises(InputError, match="got it without `is_noisy`"):
        bspml.SelfPacedCurriculum(bspml.SampleWeights([0, 1]), is_outlier=[True, False])


@pytest.mark.parametrize("options", [{}, {"preset": "paper", "age": 1.0}])
def test_the_state_of_other_labels_or_another_order_is_refused(options):
    y = np.repeat(np.arange(10), 4)
    x = np.eye(10)[y] + 0.2 * np.random.default_rng(0).normal(size=(40, 10))
    saved = bspml.SelfPacedCurriculum(bspml.SampleWeights(y), **options)
    saved.update(x)
    state = saved.state_dict()
    bspml.SelfPacedCurriculum(bspml.SampleWeights(y), **options).load_state_dict(state)
    older = {key: value for key, value in state.items() if key != "labels"}
    bspml.SelfPacedCurriculum(bspml.SampleWeights(y), **options).load_state_dict(older)
    for labels in (
        y[::-1].copy(),
        np.roll(y, 1),
        y + 1,
        y[:36],
        y.astype(str).astype(object) + "x",
    ):
        other = bspml.SelfPacedCurriculum(bspml.SampleWeights(labels), **options)
        before = other.state_dict()
        with pytest.raises(CheckpointError, match=r"other labels, or for these in another order"):
            other.load_state_dict(state)
        assert str(other.state_dict()) == str(before)
    # What a label is called as text or number is one name.
    bspml.SelfPacedCurriculum(bspml.SampleWeights(y.astype(str)), **options).load_state_dict(state)


def test_collapsed_embeddings_are_told_by_either_preset_as_the_audit_tells_them():
    y = np.repeat(np.arange(8), 5)
    x = np.random.default_rng(0).normal(size=(40, 6)) + (97 + y)[:, None] * np.arange(6)
    words = "the embeddings fit all labels alike, as if they were all in one place"
    assert words in bspml.audit(x, y).sentence
    with pytest.raises(InputError, match=words):
        bspml.SelfPacedCurriculum(bspml.SampleWeights(y)).update(x)
    with pytest.warns(UserWarning, match=words):
        bspml.SelfPacedCurriculum(bspml.SampleWeights(y), preset="paper", age=1.0).update(x)


@pytest.mark.parametrize(
    ("options", "remedied", "said"),
    [
        ({"reset": False}, {"warmup": "cross-fit"}, "`reset` is false, .* `warmup` is features"),
        ({"warmup_rounds": 3}, {"warmup": "cross-fit"}, "`warmup_rounds` is 3, but nothing reads"),
        ({"balance": 2.0}, {"rule": "quadratic"}, "`balance` is 2.0, .* set `rule` to quadratic"),
        (
            {"search": "exact", "statistics_error": 0.1},
            {"search": "auto"},
            "`statistics_error` is 0.1, .* set `search` to auto or neighbours",
        ),
        (
            {"preset": "paper", "target_maw": 0.5, "age_max": 2.0},
            {"target_maw": None, "age": 1.0},
            "`age_max` is 2.0, .* give `age` in place of `target_maw`",
        ),
    ],
)
def test_a_value_that_nothing_reads_is_told_of(options, remedied, said):
    weights = bspml.SampleWeights([0, 0, 1, 1])
    with pytest.warns(UserWarning, match=said):
        bspml.SelfPacedCurriculum(weights, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bspml.SelfPacedCurriculum(weights, **options | remedied)
        bspml.SelfPacedCurriculum(weights, reset=True, warmup_rounds=2)


def noisy_features():
    """(120, 12) around ten centres, and labels of which a fifth is wrong."""
    true = torch.arange(10).repeat_interleave(12)
    x = around_centres(true, 12, spread=0.5, seed=0)
    return x, bspml.noise.symmetric(true, 0.2, seed=0).labels


@pytest.mark.parametrize("options", [{}, {"warmup": "cross-fit"}, {"repair": "confident"}], ids=str)
def test_rounds_may_come_with_and_without_inference_mode(options):
    x, given = noisy_features()

    def weighed(modes):
        curriculum = bspml.SelfPacedCurriculum(bspml.SampleWeights(given), **options)
        for mode in modes:
            curriculum.training_mask()
            with mode():
                curriculum.update(x * 1)
        return curriculum.weights.weights, curriculum.scores()

    plain, modes = [torch.no_grad] * 5, [torch.inference_mode, torch.no_grad] * 2
    for found, expected in zip(weighed([*modes, torch.no_grad]), weighed(plain), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "options",
    [{}, {"rule": "quadratic"}, {"search": "neighbours"}, {"warmup": "cross-fit"}],
    ids=str,
)
def test_a_round_under_autocast_is_the_same(options):
    x, given = noisy_features()

    def weighed(half):
        curriculum = bspml.SelfPacedCurriculum(bspml.SampleWeights(given), **options)
        for _ in range(2):
            curriculum.training_mask()
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                curriculum.update(x)
        return curriculum.weights.weights

    assert torch.equal(weighed(half=True), weighed(half=False))


def test_what_is_handed_out_is_the_caller_s():
    x, given = noisy_features()
    curriculum = bspml.SelfPacedCurriculum(bspml.SampleWeights(given))
    curriculum.update(x)
    first, state = curriculum.scores(), curriculum.state_dict()["update"]["p_values"]
    kept = first.clone()
    curriculum.update(x[:, :6])
    assert torch.equal(first, kept)  # not those of the second round
    assert not torch.equal(curriculum.scores(), kept)
    curriculum.scores().zero_()
    curriculum.state_dict()["update"]["p_values"].zero_()
    assert float(curriculum.scores().sum()) > 0
    assert torch.equal(state, kept)
    halves = bspml.SelfPacedCurriculum(bspml.SampleWeights(given), warmup="cross-fit")
    halves.allowed_mask().fill_(True)
    assert int(halves.allowed_mask().sum()) == 60
