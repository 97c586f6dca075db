from bspml.files.run import EpochRecord
from bspml.report.tables import final_results, format_table

RESULTS = {"plain": {"Recall@1 %": 61.5, "MAW": None}, "b|x\n": {"Recall@1 %": 80.62, "AUROC": 0.5}}


def test_results_take_the_last_evaluation_the_last_weights_and_all_seconds():
    records = [
        EpochRecord("a", 0, recall_at_k={1: 0.1, 8: 0.2}, nmi=0.1),
        EpochRecord("a", 1, seconds=2.0, recall_at_k={1: 0.5, 8: None}, nmi=0.4, maw=1.0),
        EpochRecord("b", 1),
        EpochRecord("a", 2, seconds=3.0, maw=0.7, sdaw=0.1, detection_auroc=0.9, noise_rate=0.3),
    ]
    results = final_results(records)
    assert list(results) == ["a", "b"]
    assert results["a"] == {
        "Recall@1 %": 50.0,
        "Recall@8 %": None,
        "NMI": 0.4,
        "AMI": None,
        "MAP@R": None,
        "MAW": 0.7,
        "SDAW": 0.1,
        "AUROC": 0.9,
        "noise rate": 0.3,
        "seconds": 5.0,
    }
    assert results["b"]["seconds"] is None


def test_false_alarms_are_a_column_where_the_truth_is_known():
    records = [EpochRecord("plain", 1), EpochRecord("bspml", 1, false_alarm_rate=0.0321)]
    results = final_results(records)
    assert results["plain"]["false alarms"] is None
    assert results["bspml"]["false alarms"] == 0.0321
    head, _, plain, weighted = format_table(results, markdown=False, width=200).splitlines()
    assert head.split("  ")[-4:-2] == ["AUROC", "false alarms"]
    assert "0.032" in weighted
    assert "0.0" not in plain


def test_nothing_is_said_of_the_detection_where_nobody_knows_the_truth():
    row = final_results([EpochRecord("plain", 1), EpochRecord("bspml", 1, maw=0.7)])["bspml"]
    assert row["MAW"] == 0.7
    assert not {"AUROC", "false alarms"} & row.keys()


def test_text_is_aligned_and_what_is_missing_shows_a_dash():
    assert format_table(RESULTS).splitlines() == [
        "method  Recall@1 %  MAW  AUROC",
        "------  ----------  ---  -----",
        "plain         61.5    -      -",
        "b|x           80.6    -  0.500",
    ]


def test_a_table_too_wide_for_the_terminal_is_turned():
    assert format_table(RESULTS, width=29).splitlines() == [
        "method      plain   b|x",
        "----------  -----  -----",
        "Recall@1 %   61.5   80.6",
        "MAW             -      -",
        "AUROC           -  0.500",
    ]
    assert format_table(RESULTS, width=30).splitlines()[0] == "method  Recall@1 %  MAW  AUROC"


def test_markdown_escapes_the_bar():
    assert format_table(RESULTS, markdown=True).splitlines() == [
        "| method | Recall@1 % | MAW | AUROC |",
        "| :-- | --: | --: | --: |",
        "| plain | 61.5 | - | - |",
        r"| b\|x  | 80.6 | - | 0.500 |",
    ]


def test_nan_shows_a_dash_and_no_results_give_no_table():
    assert "nan" not in format_table({"a": {"NMI": float("nan")}})
    assert format_table({}) == ""


def test_columns_of_any_method_appear_once_in_order():
    head = format_table({"a": {"x": 1.0}, "b": {"y": 1.0, "x": 2.0}}).splitlines()[0]
    assert head.split() == ["method", "x", "y"]


def test_an_interval_stands_behind_its_number_and_its_ends_are_kept():
    ends = {"recall_at_1_low": 0.571, "recall_at_1_high": 0.602}
    ends |= {"map_at_r_low": 0.3, "map_at_r_high": 0.32}
    records = [
        EpochRecord("a", 1, recall_at_k={1: 0.586, 2: 0.7}, map_at_r=0.31, **ends),
        EpochRecord("b", 1, recall_at_k={1: 0.5, 2: 0.6}, map_at_r=0.2),
    ]
    results = final_results(records)
    assert results["a"]["Recall@1 % low"] == 100 * 0.571
    assert results["a"]["MAP@R high"] == 0.32
    assert "MAP@R low" not in results["b"]
    text = format_table(results, width=200)
    head, _, a, b = text.splitlines()
    assert "low" not in head
    assert "58.6 (57.1–60.2)" in a
    assert "0.310 (0.300–0.320)" in a
    assert "–" not in b
    assert "58.6 (57.1–60.2)" in format_table(results, markdown=True)


def test_the_row_is_of_the_network_that_is_kept():
    records = [EpochRecord("a", e, recall_at_k={1: r}) for e, r in ((0, 0.5), (1, 0.7), (2, 0.6))]
    assert final_results(records, {"a": 1})["a"]["Recall@1 %"] == 70.0
    assert final_results(records, {"a": None})["a"]["Recall@1 %"] == 60.0
    assert final_results(records, {"a": 0})["a"]["Recall@1 %"] == 50.0
