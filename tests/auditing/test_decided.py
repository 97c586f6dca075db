"""An audit of which some labels are decided: equal to one without the dropped, row by row."""

import numpy as np
import pytest

import bspml
from bspml.auditing.decided import audit_decided
from bspml.auditing.page_data import page_data
from bspml.auditing.report import AuditReport
from bspml.data.labels.carried import CarriedDecisions
from bspml.errors import InputError

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def case():
    rng = np.random.default_rng(0)
    x = np.repeat(np.eye(3), 12, 0) + 0.1 * rng.standard_normal((36, 3))
    labels = np.repeat(list("abc"), 12)
    labels[[0, 13, 30, 31]] = ["b", "a", "b", "a"]
    x[20] = x[21]
    decided = np.full(36, "", dtype="<U6")
    decided[[0, 2, 13, 30]] = ["right", "right", "wrong", "wrong"]  # 0 against what it looks like
    labels[13] = "b"  # relabelled; 30 is dropped
    is_dropped = np.arange(36) == 30
    return x, CarriedDecisions(labels, decided, is_dropped, "3 of 3 carried over.")


@pytest.fixture(scope="module")
def report(case):
    return audit_decided(case[0], case[1], [f"{i}.jpg" for i in range(36)])


def test_it_is_the_audit_without_the_dropped_at_the_samples_own_rows(case, report):
    x, carried = case
    kept = np.flatnonzero(~carried.is_dropped)
    plain = bspml.audit(x[kept], carried.labels[kept], [f"{i}.jpg" for i in kept])
    assert len(report) == 36
    sure = np.nansum(plain.wrong_probability[carried.decided[kept] != ""]) / 35
    assert report.total_rate == max(plain.total_rate - sure, 0)
    for name in ("labels", "names", "p_values", "margins", "suggested_labels", "other_labels"):
        np.testing.assert_array_equal(getattr(report, name)[kept], getattr(plain, name))
    back = {old: new for new, old in enumerate(kept.tolist())}
    for full, short in ((report.own_neighbours, plain.own_neighbours),
                        (report.other_neighbours, plain.other_neighbours)):  # fmt: skip
        assert 30 not in full
        moved = [[back.get(i, -1) for i in row] for row in full[kept].tolist()]
        assert moved == short.tolist()
    pairs = kept[plain.duplicates[["first", "second"]].to_numpy()]
    assert report.duplicates[["first", "second"]].to_numpy().tolist() == pairs.tolist()
    assert [20, 21] in pairs.tolist()
    assert pairs.max() > 30  # beyond the dropped one, where indices differ
    assert report.notes[0] == "3 of 3 carried over."


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_what_a_person_called_right_is_in_no_rate(share):
    true = np.repeat(np.arange(20), 12)
    x = np.random.default_rng(0).standard_normal((20, 16))[true]
    x += 0.4 * np.random.default_rng(1).standard_normal(x.shape)
    given = bspml.noise.symmetric(true, 0.2, seed=0).labels
    wrong = np.flatnonzero(given != true)
    decided = np.full(240, "", dtype="<U6")
    decided[wrong[: round(share * len(wrong))]] = "right"
    nothing = np.zeros(240, bool)
    names = [f"{i}.jpg" for i in range(240)]
    report = audit_decided(x, CarriedDecisions(given, decided, nothing, ""), names)
    plain = bspml.audit(x, given, names)
    assert plain.total_rate == pytest.approx(0.2, abs=0.01)
    assert plain.lower_bound > 0.02
    gone = 0.2 * share
    assert report.total_rate == pytest.approx(plain.total_rate - gone, abs=0.005)
    assert report.total_interval == pytest.approx(
        [max(0, end - gone) for end in plain.total_interval], abs=0.005
    )
    assert report.lower_bound == pytest.approx(max(0, plain.lower_bound - gone), abs=0.005)
    assert report.upper_bound == pytest.approx(plain.upper_bound - gone, abs=0.005)
    said = {0.5: "10", 1.0: "0.0"}[share]
    assert report.sentence.startswith(f"The best estimate is that {said} % of the labels are wrong")


def test_what_was_decided_is_no_suspect_and_comes_last(report):
    assert report.is_decided.nonzero()[0].tolist() == [0, 2, 13, 30]
    assert report.margins[0] > 0
    assert not report.suspects[[0, 2, 13, 30]].any()
    assert report.suspects[31]
    assert set(report.order()[-4:].tolist()) == {0, 2, 13, 30}
    assert report.weights[[0, 2, 13, 30]].tolist() == [1, 1, 1, 0]
    assert set(report.verdicts()[[0, 2, 13, 30]]) == {"decided"}
    assert not report.flagged[30]
    assert not report.testable[30]
    assert report.summary()["decided"] == 4
    assert report.labels[30] == report.suggested_labels[30] == "b"


@pytest.mark.parametrize("n", [None, 1, 2, 35])
def test_the_shares_of_a_class_are_those_of_its_flags(report, tmp_path, n):
    report = report if n is None else report.flagging(n)
    assert report.flagged.sum() == {None: 1, 1: 1, 2: 2, 35: 32}[n]
    table = report.classes.set_index("label")
    for label in "abc":
        rows = (report.labels == label) & (np.arange(36) != 30)  # which was dropped
        assert table.support[label] == rows.sum()
        assert table.share_flagged[label] == report.flagged[rows].mean()
        assert table.mean_weight[label] == report.weights[rows].mean()
    report.save(tmp_path)
    shares = {c.label: c.share_flagged for c in page_data(report, tmp_path, None, None, "").classes}
    assert shares == table.share_flagged.to_dict()


def test_decisions_are_saved_and_loaded_with_the_audit(report, tmp_path):
    report.save(tmp_path)
    again = AuditReport.load(tmp_path)
    assert again.decided.tolist() == report.decided.tolist()
    assert again.summary() == report.summary()
    page = (tmp_path / "page.json").read_text("utf-8")
    assert "3 of 3 carried over." in page


def test_an_audit_without_decisions_has_none(two, tmp_path):
    two[0].save(tmp_path)
    assert AuditReport.load(tmp_path).decided is None
    assert not two[0].is_decided.any()


@pytest.mark.parametrize(("dropped", "left"), [(24, "12 samples of 1 class"), (36, "0 samples of")])
def test_decisions_that_leave_fewer_than_two_classes_are_refused(case, dropped, left):
    is_dropped = np.arange(36) >= 36 - dropped
    carried = CarriedDecisions(np.repeat(list("abc"), 12), case[1].decided, is_dropped, "")
    with pytest.raises(InputError, match=f"earlier decisions leave {left}.*needs two classes"):
        audit_decided(case[0], carried, [""] * 36)


def test_a_word_on_one_copy_is_one_on_all_of_the_picture():
    true = np.repeat(np.arange(8), 20)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 16))[true] + 0.25 * rng.standard_normal((160, 16))
    rows = rng.choice(160, 16, replace=False)
    copies = np.concatenate([rows, rows[:2]])  # under another label, two of them twice
    x, other = np.concatenate([x, x[copies]]), (true[copies] + 1) % 8
    given, n = np.concatenate([true, other]), 178
    twins, decided = np.array([176, 177]), np.full(n, "", dtype="<U6")
    decided[160:176] = "right"  # so that those under the true class are wrong, and the twins right
    carried = CarriedDecisions(given, decided, np.zeros(n, bool), "")
    report = audit_decided(x, carried, [f"{i}.jpg" for i in range(n)])
    plain = bspml.audit(x, given)  # to which all 18 looked wrong: now 16 others are
    assert report.total_rate == pytest.approx(plain.total_rate - 2 / n, abs=1e-4)
    assert report.total_interval[0] <= 16 / n <= report.total_interval[1]
    assert np.flatnonzero(report.flagged).tolist() == sorted(rows.tolist())
    assert report.wrong_probability[rows].tolist() == [1.0] * 16
    assert (report.suggested_labels[rows] == other[:16]).all()
    assert report.other_neighbours[rows, 0].tolist() == list(range(160, 176))
    assert not report.wrong_probability[twins].any()
    assert not report.suspects[twins].any()
    assert report.classes["share_flagged"].sum() == pytest.approx(
        sum(1 / (given == k).sum() for k in true[rows])
    )


@pytest.mark.parametrize("collapsed", [False, True])
def test_an_exact_copy_of_what_was_dropped_is_wrong_under_its_label_too(collapsed):
    true = np.repeat(np.arange(8), 20)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 16))[true] + 0.25 * rng.standard_normal((160, 16))
    x, given = np.concatenate([x, x[[5, 5, 45]]]), np.concatenate([true, [0, 1, 2]])
    x = np.ones_like(x) if collapsed else x
    decided, is_dropped = np.full(163, "", dtype="<U6"), np.zeros(163, bool)
    decided[[5, 7, 45]], is_dropped[[5, 45]] = ["wrong", "right", "wrong"], True
    decided[162] = "right"  # the copy of 45: a word of its own
    report = audit_decided(
        x, CarriedDecisions(given, decided, is_dropped, ""), [f"{i}.jpg" for i in range(163)]
    )
    told = set(np.flatnonzero(report.wrong_probability == 1).tolist())
    if collapsed:
        assert 160 not in told
        return
    plain = bspml.audit(np.delete(x, [5, 45], 0), np.delete(given, [5, 45]))
    assert 160 in told  # which fits its class as well as 5 did
    assert 160 in np.flatnonzero(report.flagged)
    assert plain.wrong_probability[158] < 0.5
    assert report.wrong_probability[161] == plain.wrong_probability[159]  # under another label
    assert report.weights[[162, 7, 5, 45]].tolist() == [1, 1, 0, 0]
    sure = plain.wrong_probability[[6, 160]].sum() - (1 - plain.wrong_probability[158])
    assert report.total_rate == pytest.approx(max(plain.total_rate - sure / 161, 0), abs=1e-9)


@pytest.mark.parametrize(("right", "named"), [((5, 65, 160, 161), "5, 160"), ((5, 65), None)])
def test_labels_of_one_picture_that_were_all_decided_to_be_right_are_named(right, named):
    """5 and its copy 160 are of two classes; 65 and its copy 161 of one."""
    true = np.repeat(np.arange(8), 20)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 16))[true] + 0.25 * rng.standard_normal((160, 16))
    x, given = np.concatenate([x, x[[5, 65]]]), np.concatenate([true, [1, 3]])
    decided = np.full(162, "", dtype="<U6")
    decided[list(right)] = "right"
    carried = CarriedDecisions(given, decided, np.zeros(162, bool), "")
    report = audit_decided(x, carried, [f"{i}.jpg" for i in range(162)])
    told = [note for note in report.notes if "One of a picture's is right at most" in note]
    assert len(told) == (named is not None)
    if named is not None:
        assert told[0].startswith(f"Rows {named} were decided to be right and are copies")


def test_a_stranger_that_a_person_kept_is_no_sample_that_fits_no_class():
    true = np.repeat(np.arange(8), 20)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 16))[true] + 0.25 * rng.standard_normal((160, 16))
    x[[5, 65]] = 3 * rng.standard_normal((2, 16))
    names = [f"{i}.jpg" for i in range(160)]
    assert bspml.audit(x, true).summary()["fit_no_class"] == 2
    decided = np.full(160, "", dtype="<U6")
    decided[5] = "right"
    carried = CarriedDecisions(true, decided, np.zeros(160, bool), "")
    report = audit_decided(x, carried, names)
    assert np.flatnonzero(report.fits_nothing).tolist() == [5, 65]
    assert report.summary()["fit_no_class"] == 1


def test_what_is_suggested_for_a_copy_of_what_was_dropped_is_another_label():
    """One copy fits its class, one fits class 3, one is of a photo that nobody dropped."""
    true = np.repeat(np.arange(8), 20)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 16))[true] + 0.25 * rng.standard_normal((160, 16))
    x, given = np.concatenate([x, x[[5, 65, 45]]]), np.concatenate([true, [0, 1, 2]])
    given[65] = 1
    decided, is_dropped = np.full(163, "", dtype="<U6"), np.zeros(163, bool)
    decided[[5, 65]], is_dropped[[5, 65]] = "wrong", True
    names = [f"{i}.jpg" for i in range(163)]
    report = audit_decided(x, CarriedDecisions(given, decided, is_dropped, ""), names)
    plain = bspml.audit(np.delete(x, [5, 65], 0), np.delete(given, [5, 65]))
    assert report.wrong_probability[[160, 161]].tolist() == [1, 1]
    assert plain.suggested_labels[158] == 0
    assert report.suggested_labels[160] == plain.other_labels[158] != 0
    assert np.isnan(report.suggestion_probability[160])
    assert report.suggested_labels[161] == plain.suggested_labels[159] == 3
    chance = plain.suggestion_probability[159] / plain.wrong_probability[159]
    assert report.suggestion_probability[161] == pytest.approx(chance)
    assert plain.suggestion_probability[159] < chance <= 1
    assert report.suggested_labels[162] == 2


@pytest.mark.parametrize("decided", ["all", "the right ones"])
@pytest.mark.parametrize("each", [12, 4])
def test_the_ends_count_what_a_person_decided(each, decided):
    rng, n = np.random.default_rng(1), 12 * each
    true, centres = np.repeat(np.arange(12), each), rng.standard_normal((12, 16))
    centres[1::2] = centres[::2] + 0.5 * rng.standard_normal((6, 16))
    x = centres[true] + 0.5 * rng.standard_normal((n, 16))
    is_wrong = rng.random(n) < 0.25
    labels = np.where(is_wrong, true ^ 1, true)
    words = np.where(is_wrong, "wrong" if decided == "all" else "", "right")
    corrected = true if decided == "all" else labels  # those decided to be wrong, relabelled
    carried = CarriedDecisions(corrected, words, np.zeros(n, bool), "")
    report = audit_decided(x, carried, [f"{i}.jpg" for i in range(n)])
    most = 0 if decided == "all" else is_wrong.mean() + 1e-12
    rates = report.noise_rate, report.total_rate, report.lower_bound
    ends = *report.interval, *report.total_interval, report.upper_bound
    assert max(rates) <= most
    fits = (report.q_values < 0.05) & ~report.suspects & (words == "")
    assert report.summary()["fit_their_label"] == fits.sum()
    if decided == "all":
        assert not fits.any()
        assert max(ends) == 0
        assert "maybe none" in report.sentence
    else:  # of 4 samples a class no upper end is known
        assert [end for end in ends if end > most] == [1] * (each == 4)
