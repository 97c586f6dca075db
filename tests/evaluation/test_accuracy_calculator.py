"""The calculator inside pml's testers, beside pml's own, and hand-worked cases."""

import math

import pytest
import torch
from pytorch_metric_learning.testers import GlobalEmbeddingSpaceTester, WithSameParentLabelTester
from pytorch_metric_learning.utils import accuracy_calculator as pml
from torch.utils.data import TensorDataset

from bspml.errors import InputError
from bspml.evaluation import AccuracyCalculator, evaluate
from helpers.draws import randn

SHARED = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
CPU = torch.device("cpu")
LABELS = torch.arange(8).repeat_interleave(5)
POINTS = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
TOLERANCE = 1e-12  # means of forty float64 numbers


def drawn(n=40, d=6):
    return torch.nn.functional.normalize(randn(n, d))


@pytest.mark.parametrize("side", ["alone", "first rows", "apart"])
def test_the_neighbours_metrics_are_pmls_where_pml_is_right(side):
    rows = drawn()
    even, odd = rows[::2].contiguous(), rows[1::2].contiguous()  # as pml's search needs them
    args = {
        "alone": (rows, LABELS),
        "first rows": (rows[:15], LABELS[:15], rows, LABELS, True),
        "apart": (even, LABELS[::2], odd, LABELS[1::2]),
    }[side]
    ours = AccuracyCalculator(include=SHARED).get_accuracy(*args)
    theirs = pml.AccuracyCalculator(include=SHARED, device=CPU).get_accuracy(*args)
    assert list(ours) == list(SHARED)
    assert ours == pytest.approx(theirs, abs=TOLERANCE)


def test_all_metrics_are_those_of_evaluate():
    calculator = AccuracyCalculator(ks=(4, 2), seed=3)
    found = calculator.get_accuracy(drawn(), LABELS)
    expected = evaluate(drawn(), LABELS, ks=(1, 2, 4), seed=3)
    assert found == {
        "precision_at_1": expected.recall_at_k[1],
        "recall_at_2": expected.recall_at_k[2],
        "recall_at_4": expected.recall_at_k[4],
        "r_precision": expected.r_precision,
        "mean_average_precision_at_r": expected.map_at_r,
        "NMI": expected.nmi,
        "AMI": expected.ami,
    }
    assert calculator.get_curr_metrics() == list(found)
    assert calculator.latest == expected
    assert calculator.requires_clustering() == ["NMI", "AMI"]
    assert calculator.requires_knn() == list(found)[:-2]
    assert calculator.description() == ""


def test_labels_are_whole_numbers_and_lengths_of_vectors_do_not_count():
    # As float32 the two labels would be one, and every neighbour right.
    labels = torch.tensor([2**24, 2**24 + 1, 2**24 + 1, 2**24])
    metrics = ("precision_at_1", "mean_average_precision_at_r")
    scaled = POINTS * torch.tensor([[100.0], [1.0], [0.01], [1.0]])
    found = AccuracyCalculator(include=metrics).get_accuracy(scaled, labels)
    assert found == dict.fromkeys(metrics, 0.0)


def test_queries_without_a_match_are_left_out_and_counted():
    # Row 4 has no other of its class; it is the nearest of none.
    rows = torch.cat([POINTS, torch.tensor([[-1.0, -1.0]])])
    calculator = AccuracyCalculator(include=("precision_at_1",))
    assert calculator.get_accuracy(rows, torch.tensor([0, 0, 1, 1, 2])) == {"precision_at_1": 1.0}
    assert (calculator.latest.num_queries, calculator.latest.num_excluded) == (4, 1)
    with pytest.raises(InputError, match="none of the 2 queries has a match"):
        calculator.get_accuracy(
            POINTS[:2], torch.tensor([5, 6]), POINTS, torch.tensor([0, 0, 1, 1])
        )


def test_a_small_reference_invents_no_neighbours():
    with pytest.warns(UserWarning, match="of the usual `ks`, 4, 8, 16, 32 are left out"):
        found = AccuracyCalculator(exclude=("NMI", "AMI")).get_accuracy(
            POINTS, torch.tensor([0, 0, 1, 1])
        )
    assert found["recall_at_2"] == found["mean_average_precision_at_r"] == 1
    assert all(math.isnan(found[f"recall_at_{k}"]) for k in (4, 8, 16, 32))


@pytest.mark.filterwarnings("ignore:.*exact copies")
def test_each_query_is_left_out_by_its_row_and_its_copies_stay():
    # Rows 0 and 2 are one vector: each finds the other, which has another label, or row 1.
    rows = torch.tensor([[1.0, 0.0], [0.9, 0.1], [1.0, 0.0], [0.0, 1.0]])
    labels = torch.tensor([0, 0, 1, 1])
    calculator = AccuracyCalculator(include=("precision_at_1", "recall_at_2"), ks=2)
    # Query 0: row 2 (wrong), row 1 (right).  Query 1: rows 0 and 2 tie, and 0 is right.
    expected = {"precision_at_1": 0.5, "recall_at_2": 1.0}
    assert calculator.get_accuracy(rows[:2], labels[:2], rows, labels, True) == expected
    embedded_again = rows + 1e-8
    assert calculator.get_accuracy(rows[:2], labels[:2], embedded_again, labels, True) == expected


def test_other_first_rows_are_refused():
    calculator, labels = AccuracyCalculator(), torch.tensor([0, 0, 1, 1])
    with pytest.raises(InputError, match=r"first rows of `reference`.*rows 0, 1 are others"):
        calculator.get_accuracy(POINTS[:2], labels[:2], POINTS.flip(0), labels, True)
    with pytest.raises(InputError, match=r"rows 1 are others, or have other labels"):
        calculator.get_accuracy(POINTS[:2], torch.tensor([0, 1]), POINTS, labels, True)
    with pytest.raises(InputError, match=r"it has 2 rows, and there are 4 queries"):
        calculator.get_accuracy(POINTS, labels, POINTS[:2], labels[:2], True)


def test_metrics_are_chosen_twice():
    calculator = AccuracyCalculator(exclude=("NMI", "AMI"), ks=(1, 2))
    args = POINTS, torch.tensor([0, 0, 1, 1])
    assert list(calculator.get_accuracy(*args, exclude=["r_precision"])) == [
        "precision_at_1", "recall_at_1", "recall_at_2", "mean_average_precision_at_r",
    ]  # fmt: skip
    assert calculator.get_accuracy(*args, include=["recall_at_2"]) == {"recall_at_2": 1.0}
    for names in ("NMI", ["NMI"]):
        with pytest.raises(InputError, match="`include` must name some of precision_at_1, recall"):
            calculator.get_accuracy(*args, include=names)


def test_a_tester_with_a_gallery_gets_the_numbers_of_evaluate():
    rows, calculator = drawn(), AccuracyCalculator(ks=(1, 4), exclude=("NMI", "AMI"))
    splits = {
        "query": TensorDataset(rows[::2], LABELS[::2]),
        "gallery": TensorDataset(rows[1::2], LABELS[1::2]),
    }
    tester = GlobalEmbeddingSpaceTester(
        accuracy_calculator=calculator, dataloader_num_workers=0, data_device=CPU
    )
    trunk = torch.nn.Identity()
    to_eval = [("query", ["gallery"]), ("gallery", ["query", "gallery"])]
    found = tester.test(splits, 1, trunk, splits_to_eval=to_eval)
    apart = evaluate(rows[::2], LABELS[::2], (1, 4), rows[1::2], LABELS[1::2], clustering=False)
    assert found["query"]["recall_at_4_level0"] == apart.recall_at_k[4]
    assert found["query"]["mean_average_precision_at_r_level0"] == apart.map_at_r
    order = torch.cat([torch.arange(1, 40, 2), torch.arange(0, 40, 2)])
    both = evaluate(
        rows[1::2], LABELS[1::2], (1, 4), rows[order], LABELS[order],
        clustering=False, query_in_gallery=True,
    )  # fmt: skip
    assert found["gallery"]["r_precision_level0"] == both.r_precision


def test_a_tester_of_one_parent_at_a_time_means_over_the_parents():
    rows = drawn()
    labels = torch.stack([LABELS, LABELS // 4], 1)
    tester = WithSameParentLabelTester(
        accuracy_calculator=AccuracyCalculator(include=SHARED),
        dataloader_num_workers=0,
        data_device=CPU,
    )
    found = tester.test({"all": TensorDataset(rows, labels)}, 1, torch.nn.Identity())["all"]
    parts = [evaluate(rows[p], LABELS[p], 1, clustering=False) for p in (slice(20), slice(20, 40))]
    assert found["r_precision_level0"] == pytest.approx(
        (parts[0].r_precision + parts[1].r_precision) / 2, abs=TOLERANCE
    )


@pytest.mark.parametrize("choice", [{"exclude": ("recall_at_1",)}, {"include": ("recall_at_32",)}])
def test_of_the_default_ks_those_beyond_a_small_reference_are_nan_whichever_were_chosen(choice):
    points, labels = torch.eye(3).repeat(2, 1), torch.arange(3).repeat(2)
    with pytest.warns(UserWarning, match="8, 16, 32 are left out"):
        found = AccuracyCalculator(**choice).get_accuracy(points, labels)
    assert math.isnan(found["recall_at_32"])
    assert found.get("recall_at_2", 1.0) == 1.0
