"""`bspml.audit` end to end on small data, its laws, and what it refuses."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import bspml
from bspml.auditing import AuditReport
from bspml.auditing.columns import ARRAYS
from bspml.auditing.picture_hashes import PictureHashes
from bspml.errors import InputError, MissingDependencyError
from bspml.report.models import load_page
from bspml.statistics.confusions import plausible_confusions
from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.label_errors import judge_labels
from bspml.statistics.noise_rate import estimate_noise
from bspml.tensors.copies import content_order
from bspml.tensors.unit_rows import grid_unit_rows
from bspml.weights.problem import by_first_appearance
from helpers.draws import clouds as clouds_of


def clouds(classes=20, each=15, dim=16, spread=0.2, seed=0):
    return clouds_of(np.random.default_rng(seed), classes, each, dim, spread)


def noisy(codes, rate, seed=1):
    rng = np.random.default_rng(seed)
    wrong = rng.random(len(codes)) < rate
    classes = codes.max() + 1
    return np.where(wrong, (codes + rng.integers(1, classes, len(codes))) % classes, codes), wrong


def hashes(n):
    return PictureHashes(np.zeros((n, 8, 4), np.uint64), np.ones(n, bool))


@pytest.fixture(scope="module")
def noisy_case():
    x, codes = clouds()
    given, wrong = noisy(codes, 0.3)
    return x, codes, given, wrong, bspml.audit(x, given)


def test_planted_wrong_labels_are_found_and_the_right_ones_suggested(noisy_case):
    _, codes, _, wrong, report = noisy_case
    assert report.interval[0] <= wrong.mean() <= report.upper_bound
    assert report.total_interval[0] <= wrong.mean() <= report.total_interval[1]
    assert report.lower_bound == report.interval[0]
    assert wrong[report.flagged].mean() > 0.95
    assert report.flagged[wrong].mean() > 0.95
    assert (report.suggested_labels == codes)[wrong].mean() > 0.95
    assert (report.suggested_labels == codes)[~wrong].mean() > 0.97
    top = report.table().head(wrong.sum())["index"]
    assert wrong[top].mean() > 0.97
    assert "The best estimate is that" in report.sentence


def test_the_numbers_are_those_of_the_parts(noisy_case):
    x, _, given, _, report = noisy_case
    x = grid_unit_rows(torch.as_tensor(x))  # which serve the search and the statistics
    # Samples and classes in the order of their content, in which every sum is taken.
    order = content_order(x, given)
    x, given = x[order], given[order]
    named = given[np.sort(np.unique(given, return_index=True)[1])]
    given = by_first_appearance(given)
    stats = contrastive_statistics(x, given)
    estimate = estimate_noise(stats, plausible_confusions(x, stats).upper_bound)
    errors = judge_labels(x, given, random_rate=estimate.noise_rate)
    assert report.noise_rate == pytest.approx(estimate.noise_rate)
    assert report.interval == pytest.approx(estimate.interval)
    assert report.total_rate == pytest.approx(errors.rate)
    assert report.total_interval == pytest.approx(errors.interval)
    assert (report.p_values[order] == estimate.p_values.numpy()).all()
    assert report.margins[order] == pytest.approx(stats.margin.numpy(), abs=1e-12)
    # The soft means are of another pass, whose rounding moves where the fit stops.
    assert report.wrong_probability[order] == pytest.approx(errors.wrong_probability, abs=1e-5)
    assert (report.flagged[order] == (errors.wrong_probability > 0.5)).all()
    assert (report.other_labels[order] == named[errors.other_class]).all()
    # q by hand: the mean probability of all that are at least as probably right
    wrong = report.wrong_probability
    for i in (0, 7, int(wrong.argmax())):
        assert report.q_values[i] == pytest.approx(wrong[wrong <= wrong[i] + 1e-3].mean())


def test_q_values_count_every_label_that_is_kept_copies_included():
    rng = np.random.default_rng(35)
    true = np.repeat(np.arange(5), 10)
    x = rng.standard_normal((5, 6))[true] + 0.7 * rng.standard_normal((50, 6))
    labels = np.where(rng.random(50) < 0.2, rng.integers(0, 5, 50), true)
    middle = np.argsort(bspml.audit(x, labels).wrong_probability)[30]
    copied = np.repeat(np.arange(50), np.where(np.arange(50) == middle, 30, 1))
    report = bspml.audit(x[copied], labels[copied])
    wrong = report.wrong_probability
    beside = [wrong[wrong <= w + 1e-3].mean() for w in wrong]
    assert np.allclose(report.q_values, beside)
    assert wrong[copied == middle].min() > 0.002  # beyond what ranks beside 0


def test_neighbours_have_the_labels_they_stand_for(noisy_case):
    _, _, given, _, report = noisy_case
    own, other = report.neighbours
    assert own.shape == other.shape == (len(given), 3)
    assert (given[own] == given[:, None]).all()
    assert (given[other] == report.other_labels[:, None]).all()
    assert (own != np.arange(len(given))[:, None]).all()


def test_clean_labels_are_left_alone():
    x, codes = clouds(spread=0.1)
    report = bspml.audit(x, codes)
    assert report.noise_rate < 0.01
    assert report.flagged.sum() <= 2
    assert not report.classes["looks_like_two"].any()
    assert (report.classes["looks_like"] == "").all()
    assert (report.verdicts() == "fits").mean() > 0.99


def weak_case(copies):
    """Overlapping classes, of which several models are all but equally likely; some copied."""
    rng = np.random.default_rng(6)
    codes = np.repeat(np.arange(6), 20)
    x = 0.5 * rng.standard_normal((6, 16))[codes] + rng.standard_normal((120, 16))
    given, _ = noisy(codes, 0.3, seed=6)
    again = rng.integers(0, 120, copies)
    near = x[again] + 0.002 * rng.standard_normal((copies, 16)) * (np.arange(copies) % 2)[:, None]
    relabelled = np.where(np.arange(copies) % 3 == 0, (given[again] + 1) % 6, given[again])
    return np.concatenate([x, near]).astype("f4"), np.concatenate([given, relabelled])


def assert_same_audit(again, report, order, names):
    for name in ("noise_rate", "total_rate", "total_interval", "upper_bound", "sentence"):
        assert getattr(again, name) == getattr(report, name), name
    for name in ("wrong_probability", "margins", "p_values", "q_values", "outlier_p"):
        expected = getattr(report, name)[order]
        assert getattr(again, name) == pytest.approx(expected, abs=0, nan_ok=True), name
    assert (again.suggested_labels == names[report.suggested_labels[order]]).all()


def test_columns_of_zeros_do_not_decide_between_models():
    x, given = weak_case(20)
    report = bspml.audit(x, given)
    for before, after in ((1, 0), (0, 3), (5, 44)):
        wider = np.pad(x, ((0, 0), (before, after)))
        assert_same_audit(bspml.audit(wider, given), report, slice(None), np.arange(6))


@pytest.mark.parametrize("seed", [7, 82])
def test_where_two_kinds_of_errors_are_as_likely_rounding_does_not_decide_between_them(seed):
    # Classes as far from each other: labels drawn at random, or confused with any other class.
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, 200)
    x = rng.normal(size=(3, 20))[true] + 1.5 * rng.normal(size=(200, 20))
    given, drawn = true.copy(), rng.random(200) < 0.5
    given[drawn] = rng.integers(0, 3, drawn.sum())
    report = bspml.audit(x, given)
    for again in (x.astype(np.float32), x * (1 + 1e-6 * rng.normal(size=x.shape))):
        found = bspml.audit(again, given)
        assert (found.flagged == report.flagged).all()
        assert found.total_rate == pytest.approx(report.total_rate, abs=1e-3)


@pytest.mark.parametrize("copies", [0, 40])
def test_neither_the_order_of_samples_nor_names_of_classes_decide_between_models(copies):
    x, given = weak_case(copies)
    report = bspml.audit(x, given)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        order, names = rng.permutation(len(given)), rng.permutation(6)
        again = bspml.audit(x[order], names[given[order]])
        assert_same_audit(again, report, order, names)
        renamed = again.classes.set_index("label").loc[names]
        for name in ("two_score", "same_p", "same_distance", "looks_like_two"):
            expected = pytest.approx(report.classes[name].to_numpy(), rel=1e-12, nan_ok=True)
            assert renamed[name].to_numpy() == expected, name
        # Of a group under several labels one sample stands for it: the pairs are those with it.
        same = "duplicates_with_different_labels"
        assert again.summary()[same] == report.summary()[same]


def test_order_of_samples_does_not_matter(noisy_case):
    x, _, given, _, report = noisy_case
    order = np.random.default_rng(5).permutation(len(given))
    shuffled = bspml.audit(x[order], given[order])
    assert shuffled.noise_rate == report.noise_rate
    assert (shuffled.suggested_labels == report.suggested_labels[order]).all()
    assert (order[shuffled.own_neighbours] == report.own_neighbours[order]).all()
    assert shuffled.classes["two_score"].to_numpy() == pytest.approx(
        report.classes["two_score"].to_numpy(), rel=1e-6, nan_ok=True
    )


def test_names_of_classes_do_not_matter(noisy_case):
    x, _, given, _, report = noisy_case
    words = np.array([f"class {chr(122 - c)}" for c in range(20)])  # reversed order
    renamed = bspml.audit(x, words[given])
    assert renamed.noise_rate == report.noise_rate
    assert renamed.margins == pytest.approx(report.margins, abs=1e-12)
    assert renamed.total_rate == pytest.approx(report.total_rate, abs=1e-4)
    assert renamed.wrong_probability == pytest.approx(report.wrong_probability, abs=1e-3)
    assert (renamed.suggested_labels == words[report.suggested_labels]).all()
    assert (renamed.own_neighbours == report.own_neighbours).all()
    by_name = renamed.classes.set_index("label").loc[words]
    for column in ("support", "mean_weight", "two_score", "same_p", "looks_like_two"):
        assert by_name[column].to_numpy() == pytest.approx(
            report.classes[column].to_numpy(), nan_ok=True
        )


def test_lengths_of_embeddings_and_repeated_calls_do_not_matter(noisy_case):
    x, _, given, _, report = noisy_case
    scale = np.random.default_rng(2).uniform(0.5, 20, (len(x), 1))
    again = bspml.audit(torch.from_numpy(x * scale), given.tolist())
    assert (again.weights == report.weights).all()
    assert again.margins == pytest.approx(report.margins, abs=1e-9)
    pd.testing.assert_frame_equal(again.duplicates, report.duplicates)


def test_class_table_worked_by_hand():
    # Four tight classes of eight, and one label of "a" in the midst of "b".
    codes = np.repeat(np.arange(4), 8)
    x = np.eye(4)[codes] + 0.2 * np.random.default_rng(0).standard_normal((32, 4))
    labels = np.array(list("abcd"))[codes]
    labels[8] = "a"
    report = bspml.audit(x, labels)
    table = report.classes.set_index("label")
    assert table["support"].to_dict() == {"a": 9, "b": 7, "c": 8, "d": 8}
    assert report.order()[0] == 8
    assert report.suggested_labels[8] == "b"
    similar = (x @ x[8]) / np.linalg.norm(x, axis=1)
    assert report.own_neighbours[8].tolist() == np.argsort(-similar[:8])[:3].tolist()
    assert report.other_neighbours[8].tolist() == (9 + np.argsort(-similar[9:16])[:3]).tolist()
    for label, row in table.iterrows():
        members = report.labels == label
        assert row["mean_weight"] == pytest.approx(report.weights[members].mean())
        assert row["share_flagged"] == pytest.approx(report.flagged[members].mean())


def test_a_row_of_norm_0_cannot_be_judged_and_keeps_weight_1():
    x, codes = clouds(classes=4)
    x[0] = 0
    report = bspml.audit(x, codes)
    assert not report.testable[0]
    assert report.weights[0] == 1
    assert np.isnan([report.p_values[0], report.wrong_probability[0], report.q_values[0]]).all()
    assert report.verdicts()[0] == "cannot be judged"
    assert report.suggested_labels[0] == codes[0]
    assert report.order()[-1] == 0
    assert (report.own_neighbours[0] == -1).all()


def test_a_class_of_one_is_scored_against_the_others():
    x, codes = clouds(classes=8)
    given, _ = noisy(codes, 0.3)
    labels = given.astype(str).astype(object)
    labels[0], labels[1] = "alone", "stray"
    x[1] = -x[codes == codes[1]].mean(0)  # far from every class
    report = bspml.audit(x, list(labels))
    assert not report.testable[:2].any()
    assert np.isnan(report.p_values[:2]).all()
    member, stray = report.wrong_probability[:2]
    assert 0 <= stray < member / 2 < 0.5
    assert report.other_labels[0] == str(codes[0])
    # It fits there; but what speaks against its own label is cut, and so is that for another one.
    assert member == 0.5 == report.suggestion_probability[0]
    assert report.suggested_labels[0] == "alone"
    assert report.verdicts()[0] == "alone in its class (low support)"
    assert report.verdicts()[1] in ("alone in its class", "fits no class")
    assert any("alone in their class" in note for note in report.notes)
    assert np.isnan(report.classes.set_index("label").loc["alone"]["share_flagged"])


@pytest.mark.parametrize("labels", [list("aabb") * 10, [0, 1] * 20, list("abcd") * 10])
def test_embeddings_in_one_place_give_no_answer_and_no_suspects(labels):
    report = bspml.audit(np.ones((40, 3)), labels)
    assert "No label could be judged: the embeddings fit all labels alike" in report.sentence
    assert (report.interval, report.upper_bound) == ((0, 1), 1)
    assert not report.testable.any()
    assert not report.flagged.any()
    assert np.isnan(report.margins).all()
    assert (report.suggested_labels == np.array(labels)).all()
    assert set(report.verdicts()) == {"cannot be judged"}
    assert not any("counted as wrong" in note for note in report.notes)


def test_features_that_know_nothing_of_the_classes_accuse_nobody():
    x = np.random.default_rng(0).standard_normal((1000, 64))
    report = bspml.audit(x, np.repeat(np.arange(50), 20))
    assert "these embeddings do not tell the classes apart" in report.sentence
    assert (report.total_interval, report.lower_bound, report.upper_bound) == ((0, 1), 0, 1)
    assert not report.flagged.any()
    assert not report.suspects.any()


def test_clean_classes_that_overlap_have_no_flags_and_a_note():
    codes = np.repeat(np.arange(20), 30)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 16))[codes] + 2.5 * rng.standard_normal((600, 16))
    report = bspml.audit(x, codes)
    assert report.total_interval[0] == 0
    assert report.lower_bound == 0
    assert report.flagged.mean() < 0.01
    assert any("too weak to tell" in note for note in report.notes)
    assert report.summary()["interval"] == list(report.interval)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (np.array([True, False] * 10), "i"),
        (np.array([3, 200] * 10, dtype=np.uint8), "i"),
        (np.array([3, -2] * 10, dtype=">i2"), "i"),
        (np.array([3, 2**63] * 10, dtype=np.uint64), "u"),
        (np.array(["b", "a"] * 10, dtype=">U3"), "U"),
    ],
)
def test_labels_of_every_width_and_byte_order_come_back_in_the_machines_own(labels, kind):
    scatter = 0.01 * np.random.default_rng(0).standard_normal((20, 2))
    report = bspml.audit(np.eye(2)[np.arange(20) % 2] + scatter, labels)
    assert report.labels.dtype.kind == kind
    assert report.labels.dtype.isnative
    assert report.labels.dtype.itemsize == 8 or kind == "U"
    assert report.labels.tolist() == labels.tolist()


def test_only_singletons_give_no_answer_but_a_report():
    report = bspml.audit(np.eye(5), list("abcde"))
    assert not report.testable.any()
    assert report.weights.tolist() == [1] * 5
    assert report.noise_rate == 0
    assert report.upper_bound == 1
    assert "No label could be judged" in report.sentence
    assert len(report.table()) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": ["a"] * 6}, "at least two classes"),
        ({"labels": ["a", "b"]}, r"`labels` must have one entry per embedding, \(6,\)"),
        ({"labels": [1.5, 0, 0, 1, 1, 1]}, "integers or strings"),
        ({"labels": ["a", "b", None, "a", "b", "a"]}, "mix of NoneType, str"),
        ({"embeddings": np.ones(6)}, r"must be \(N, D\)"),
        ({"embeddings": np.full((6, 2), np.nan)}, "hold NaN or infinity"),
        ({"labels": ["a", "", "b", "a", "b", "a"]}, "must not be empty; rows 1 are"),
        ({"names": ["x"]}, "one text per sample, 6; got 1"),
        ({"names": "abcdef"}, "got a single text"),
        ({"names": [*"abcde", None]}, "`names` must be one text per sample; got none at row 5. Gi"),
        ({"names": pd.Series([*"abcd", math.nan, "e"])}, "`names` .* got none at row 4"),
        ({"texts": pd.array([pd.NA, *"bcdef"], "string")}, "`texts` .* got none at row 0"),
        ({"a": 0}, "`a` must be in"),
        ({"neighbours": 0}, "`neighbours` must be a whole number of at least 1"),
        ({"seed": -1}, "`seed` must be a whole number"),
        ({"backend": "annoy"}, "`backend` must be one of auto, faiss, torch"),
        ({"pictures": hashes(5)}, "`pictures` must be hashes of all 6 samples.*got 5"),
        ({"pictures": hashes(7)}, "`pictures` must be hashes of all 6 samples.*got 7"),
    ],
)
def test_bad_arguments_are_refused_by_name(change, message):
    arguments = {"embeddings": np.eye(6), "labels": list("aabbab")} | change
    with pytest.raises(InputError, match=message):
        bspml.audit(arguments.pop("embeddings"), arguments.pop("labels"), **arguments)


def test_names_of_several_samples_are_said():
    x, labels, names = np.eye(6), list("aabbab"), ["x", "y", "x", "", "", "y"]
    (note,) = [n for n in bspml.audit(x, labels, names).notes if "stand for several" in n]
    assert note.startswith("2 names stand for several samples each, the first is 'x': decisions")
    apart = bspml.audit(x, labels, [1, 2, 3, 4, "", ""])
    assert apart.names.tolist() == ["1", "2", "3", "4", "", ""]
    assert not any("several" in note for note in apart.notes)


def test_texts_are_read_on_the_page_among_the_copies_too_and_must_fit(tmp_path):
    rng = np.random.default_rng(0)
    x = np.repeat(np.eye(4), 8, 0) + 0.2 * rng.normal(size=(32, 4))
    x[31] = x[30]
    texts = [f"text {i}" for i in range(32)]
    labels = np.repeat(list("abcd"), 8)
    bspml.audit(x, labels, texts=texts).save(tmp_path)
    (copies,) = load_page(tmp_path / "page.json").duplicates
    assert {copies.text_a, copies.text_b} == {"text 30", "text 31"}
    assert AuditReport.load(tmp_path).texts.tolist() == texts
    for wrong, got in ((texts[:5], "5"), ("text", "a single text")):
        with pytest.raises(InputError, match=f"`texts` must be one text per sample, 32; got {got}"):
            bspml.audit(x, labels, texts=wrong)


def test_an_approximate_audit_says_so_and_finds_the_same(noisy_case, monkeypatch):
    x, codes, given, wrong, exact = noisy_case
    x, given = np.concatenate([x, x[:3] + 1e-6]), np.concatenate([given, given[:3]])
    found = bspml.audit(x, given, search="neighbours")
    assert found.notes[0].startswith("This audit is approximate: ")
    assert "judged exactly" in " ".join(found.notes)
    assert len(found.duplicates) == 3
    assert (found.flagged[:300] == exact.flagged).mean() > 0.98
    assert (found.suggested_labels[:300] == codes)[wrong].mean() > 0.95
    assert abs(found.noise_rate - exact.noise_rate) < 0.03
    assert abs(found.total_rate - exact.total_rate) < 0.03
    np.testing.assert_allclose(found.p_values[:300], exact.p_values, atol=0.1)
    monkeypatch.setattr("bspml.auditing.judging.NEIGHBOURS_FROM", 303)
    assert bspml.audit(x, given).notes == found.notes
    monkeypatch.setattr("bspml.auditing.judging.find_faiss", lambda: None)
    assert "approximate" not in " ".join(bspml.audit(x, given).notes)
    with pytest.raises(MissingDependencyError, match=r"bspml\[cpu\].*search='exact'"):
        bspml.audit(x, given, search="neighbours")


def test_an_index_that_does_not_tell_samples_apart_is_told():
    x = pd.DataFrame(np.repeat(np.eye(4), 5, 0), index=[*range(10)] * 2)
    labels = pd.Series(np.arange(20) // 5, index=x.index)
    with pytest.warns(UserWarning, match="says 0 of several samples.*cannot be joined"):
        bspml.audit(x, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bspml.audit(x.reset_index(drop=True), labels.to_numpy())


def test_texts_under_another_index_are_refused():
    x = pd.DataFrame(np.repeat(np.eye(4), 5, 0))
    texts = pd.Series([f"text {i}" for i in range(20)])
    with pytest.raises(InputError, match="`texts`"):
        bspml.audit(x, np.arange(20) // 5, texts=texts[::-1])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (dict.fromkeys(range(20), "a"), "got dict"),
        ([b"a"] * 20, "bytes at row 0"),
        (b"a" * 20, "got bytes"),
        (np.array("a"), "got ndarray"),
        (np.array([("a",)] * 20, [("name", "U1")]), "got ndarray"),
    ],
)
def test_texts_that_are_no_list_of_texts_are_refused(given, said):
    x, y = np.repeat(np.eye(2), 10, 0), np.repeat([0, 1], 10)
    for name in ("names", "texts"):
        with pytest.raises(InputError, match=f"`{name}` must be one text per sample.*{said}"):
            bspml.audit(x, y, **{name: given})


def test_one_sample_is_refused_alike_by_either_search():
    pytest.importorskip("faiss")
    for search in ("exact", "neighbours"):
        with pytest.raises(InputError, match="at least two classes; got 1"):
            bspml.audit(np.ones((1, 3)), [0], search=search)


def numbers(report):
    """Every number of an audit by name, tables included."""
    found = {name: getattr(report, name) for name in ARRAYS}
    found["embedding_map"] = np.abs(report.embedding_map)  # whose axes may point either way
    found |= {k: v for k, v in report.summary().items() if isinstance(v, float | int | list)}
    for name in ("classes", "duplicates", "groups"):
        table = getattr(report, name)
        found |= {f"{name}.{column}": table[column].to_numpy() for column in table}
    del found["notes"]
    return {k: np.asarray(v) for k, v in found.items()}


@pytest.fixture(scope="module")
def small_case():
    x, codes = clouds(8, 12, 10, 0.3)
    given, _ = noisy(codes, 0.2)
    x[5], x[17], x[30] = x[4], x[16] + 1e-4, 0  # copies, exact and near, and no direction
    return x, given, numbers(bspml.audit(x, given))


@pytest.mark.parametrize("change", ["zeros", "rotated", "scaled", "all"])
def test_zero_columns_rotations_and_a_common_scale_change_no_number(small_case, change):
    x, given, plain = small_case
    q = np.linalg.qr(np.random.default_rng(7).normal(size=(10, 10)))[0]
    other = x @ q if change in ("rotated", "all") else x
    if change in ("zeros", "all"):
        other = np.insert(other, [0, 3, 10, 10, 10], 0.0, axis=1)
    other = other * {"scaled": 37.5, "all": 2.0**-70}.get(change, 1.0)
    found = numbers(bspml.audit(other, given))
    assert found.keys() == plain.keys()
    for name, expected in plain.items():
        if expected.dtype.kind != "f":
            np.testing.assert_array_equal(found[name], expected, err_msg=name)
        elif name != "outlier_p":
            np.testing.assert_allclose(found[name], expected, 1e-3, 1e-4, err_msg=name)
    # Ranks: two samples whose scores rounding cannot tell apart may change places.
    scores, p = plain["outlier_score"], plain["outlier_p"]
    alone = np.array([np.sum(np.abs(scores - s) < 3e-4) == 1 for s in scores])
    np.testing.assert_allclose(found["outlier_p"][alone], p[alone], 1e-3, 1e-4)
    assert alone.mean() > 0.8
    assert 0.1 < plain["total_rate"] < 0.3
    assert np.nanmin(plain["outlier_p"]) < 0.1


def test_no_samples_at_all_are_refused_in_words():
    with pytest.raises(InputError, match="at least two classes"):
        bspml.audit(np.zeros((0, 3), "f4"), [])


def test_an_audit_under_autocast_is_the_same():
    x, codes = clouds(spread=1.0)
    labels = noisy(codes, 0.2)[0]
    plain = bspml.audit(x, labels)
    with torch.autocast("cpu", torch.bfloat16):
        found = bspml.audit(x, labels)
        assert torch.is_autocast_enabled("cpu")
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(found, name), getattr(plain, name))
    assert found.sentence == plain.sentence
