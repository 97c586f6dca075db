"""Last, best and validation-selected epochs."""

import math

import pytest

from bspml.errors import InputError
from bspml.evaluation import select_epochs, selection_columns
from bspml.files.run import EpochRecord
from bspml.report.tables import format_table

CURVE = {1: 0.50, 2: 0.62, 3: 0.60, 4: 0.62, 5: 0.58}


def records(curve=CURVE, method="bspml", **fields):
    return [EpochRecord(method, e, recall_at_k={1: r}, **fields) for e, r in curve.items()]


def epochs(found):
    return {name: None if s is None else s.epoch for name, s in found.items()}


def test_the_three_are_told_apart():
    held_out = {1: 0.3, 2: 0.35, 3: 0.41, 4: 0.40, 5: 0.39}
    found = select_epochs(records(), validation=held_out)
    assert epochs(found) == {"last": 5, "best": 2, "selected": 3}
    assert [s.value for s in found.values()] == [0.58, 0.62, 0.60]
    assert found["selected"].validation == 0.41
    assert found["last"].validation is None
    assert "oracle" in found["best"].chosen_by
    assert found["best"].record.recall_at_k == {1: 0.62}


def test_the_best_is_never_below_the_others_and_ties_go_to_the_earliest():
    found = select_epochs(records(), validation=dict.fromkeys(CURVE, 0.4))
    assert found["best"].value >= max(found["last"].value, found["selected"].value)
    assert epochs(found) == {"last": 5, "best": 2, "selected": 1}


def test_validation_may_be_records_or_stand_in_the_records():
    expected = select_epochs(records(), validation={2: 0.1, 4: 0.9})
    held_out = [EpochRecord("v", e, recall_at_k={1: r}) for e, r in {2: 0.1, 4: 0.9}.items()]
    assert epochs(select_epochs(records(), validation=held_out)) == epochs(expected)
    inside = [
        EpochRecord("m", e, recall_at_k={1: r}, extra={"validation": {"recall_at_1": e == 4}})
        for e, r in CURVE.items()
    ]
    assert select_epochs(inside)["selected"].epoch == 4


def test_without_validation_nothing_is_selected():
    found = select_epochs(records())
    assert found["selected"] is None
    assert len(selection_columns(found)) == 2


def test_rounds_without_the_metric_do_not_count():
    curve = {1: 0.4, 2: math.nan, 3: 0.7, 4: None}
    found = select_epochs(records(curve), validation={1: 0.9, 2: 1.0, 3: None, 9: 2.0})
    assert epochs(found) == {"last": 3, "best": 3, "selected": 1}


@pytest.mark.parametrize("metric", ["map_at_r", "nmi"])
def test_other_metrics_are_read_from_their_fields(metric):
    rows = [EpochRecord("m", e, **{metric: v}) for e, v in {1: 0.2, 2: 0.1}.items()]
    found = select_epochs(rows, metric)
    assert epochs(found) == {"last": 2, "best": 1, "selected": None}


def test_the_table_says_how_each_epoch_was_chosen():
    found = select_epochs(records(), validation={3: 1.0})
    table = format_table({"bspml": selection_columns(found)}, markdown=True)
    assert "last epoch: Recall@1 %" in table
    assert "chosen on the test classes (an oracle): Recall@1 %" in table
    assert "selected on validation classes: Recall@1 %" in table
    assert "58.0" in table
    assert "MAP@R %" in next(iter(selection_columns(found, "map_at_r")))


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (records(), {"metric": "recall_at_0"}, "did you mean `recall_at_1`"),
        (records(), {"metric": "loss"}, r"`metric` must be recall_at_K, map_at_r"),
        (records(), {"metric": "recall_at_4"}, r"none of 5 holds `recall_at_4`"),
        ([], {}, "none of 0 holds"),
        (records() + records(method="ms"), {}, "must be of one method; got bspml, ms"),
        (records(), {"validation": {9: 0.5}}, "at none of the epochs of `records`"),
        (records(), {"validation": []}, "at none of the epochs of `records`"),
    ],
)
def test_what_cannot_be_selected_is_refused(rows, options, message):
    with pytest.raises(InputError, match=message):
        select_epochs(rows, **options)


def test_a_network_that_is_thrown_away_is_no_candidate_but_the_untrained_one_is():
    curve = {0: 0.45, 1: 0.9, 2: 0.4}
    rounds = [
        EpochRecord("m", e, recall_at_k={1: r}, extra={"validation": {"recall_at_1": r}})
        for e, r in curve.items()
    ]
    rounds[1].extra["temporary"] = True
    assert epochs(select_epochs(rounds)) == {"last": 2, "best": 0, "selected": 0}
    # Of a run that ended inside the warm-up there is nothing else.
    assert select_epochs(rounds[1:2])["best"].epoch == 1


def test_an_epoch_below_the_untrained_map_at_r_on_validation_is_not_selected():
    measured = {0: (0.5, 0.4), 1: (0.9, 0.39), 2: (0.6, 0.5), 3: (0.6, 0.4)}
    rounds = [
        EpochRecord("m", e, recall_at_k={1: r}, map_at_r=m,
                    extra={"validation": {"recall_at_1": r, "map_at_r": m}})
        for e, (r, m) in measured.items()
    ]  # fmt: skip
    found = select_epochs(rounds)
    assert epochs(found) == {"last": 3, "best": 1, "selected": 2}
    columns = selection_columns(found)
    assert columns["epoch selected on validation classes: MAP@R"] == 0.5
    assert select_epochs(rounds[1:])["selected"].epoch == 1  # an older run knows no better


def test_validation_decides_between_equal_epochs_by_map_at_r():
    held_out = [(1.0, 0.5), (1.0, 0.7), (1.0, 0.6), (0.99, 0.9)]
    extras = [{"validation": {"recall_at_1": recall, "map_at_r": m}} for recall, m in held_out]
    records = [
        EpochRecord("m", e, recall_at_k={1: 0.1 * e}, extra=found) for e, found in enumerate(extras)
    ]
    selected = select_epochs(records)["selected"]
    assert (selected.epoch, selected.validation) == (1, 1.0)


@pytest.mark.parametrize(
    ("held_out", "selected"),
    [
        # (Recall@1, MAP@R): below the untrained MAP@R, then of two equal ones the larger MAP@R.
        ([(0.5, 0.6), (0.8, 0.5), (0.7, 0.65)], 2),
        ([(0.5, 0.2), (0.8, 0.5), (0.8, 0.65)], 2),
        ([(0.5, 0.6), (0.8, 0.5), (0.7, 0.4)], 0),
    ],
)
def test_validation_given_as_records_selects_as_what_stands_in_the_records(held_out, selected):
    given = [
        EpochRecord("v", e, recall_at_k={1: r}, map_at_r=m) for e, (r, m) in enumerate(held_out)
    ]
    inside = [
        EpochRecord(
            "m", v.epoch, recall_at_k={1: 0.5},
            extra={"validation": {"recall_at_1": v.recall_at_k[1], "map_at_r": v.map_at_r}},
        )
        for v in given
    ]  # fmt: skip
    assert select_epochs(inside)["selected"].epoch == selected
    assert select_epochs(inside, validation=given)["selected"].epoch == selected
