"""Labels that data sets say they have, against those of their items."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, random_split

import bspml
from bspml.data.dataset_labels import labels_of
from bspml.errors import InputError

LABELS = [3, 1, 3, 2, 1, 2]


class Photos(Dataset):
    """As torchvision's: labels are an attribute, and an item costs a photo."""

    def __init__(self, name, labels=LABELS):
        setattr(self, name, labels)

    def __len__(self):
        return len(LABELS)

    def __getitem__(self, row):
        raise AssertionError("no photo is opened")


class Columns:
    """As a data set of Hugging Face: a column is an item by its name."""

    column_names = ("image", "kind", "label")

    def __len__(self):
        return len(LABELS)

    def __getitem__(self, name):
        return {"label": iter(LABELS), "kind": [0] * 6}[name]


PHOTOS = Photos("targets", torch.tensor(LABELS))


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (PHOTOS, LABELS),
        (Photos("labels", np.array(LABELS)), LABELS),
        (Photos("get_labels", lambda: LABELS), LABELS),
        (TensorDataset(torch.zeros(6, 2), torch.tensor(LABELS)), LABELS),
        ([("a.jpg", label) for label in LABELS], LABELS),
        (Columns(), LABELS),
        (bspml.IndexedDataset(PHOTOS), LABELS),
        (bspml.IndexedDataset(PHOTOS, labels=[0, 0, 0, 1, 1, 1]), [0, 0, 0, 1, 1, 1]),
        (bspml.IndexedDataset(Columns(), x="image", y="kind"), [0] * 6),
        (Subset(PHOTOS, [4, 0]), [1, 3]),
        (Subset(Subset(PHOTOS, [4, 0, 3]), torch.tensor([2])), [2]),
        (ConcatDataset([PHOTOS, Subset(PHOTOS, [3])]), [*LABELS, 2]),
    ],
)
def test_labels_are_read_without_an_item(dataset, expected):
    assert labels_of(dataset, "dataset", "").tolist() == expected


def test_the_parts_of_a_split_have_their_own():
    whole = TensorDataset(torch.zeros(6, 2), torch.tensor(LABELS))
    for part in random_split(whole, [4, 2]):
        found = labels_of(part, "dataset", "")
        assert found.tolist() == [int(part[row][1]) for row in range(len(part))]


@pytest.mark.parametrize(
    "dataset",
    [
        Photos("other"),
        TensorDataset(torch.zeros(6, 2)),
        [{"label": 1}],
        Subset(Photos("other"), [0]),
        ConcatDataset([PHOTOS, Photos("other")]),
        SimpleNamespace(),
    ],
)
def test_a_data_set_that_does_not_say_them_is_refused(dataset):
    with pytest.raises(InputError, match=r"`loader.dataset` must say its labels.*Pass them\."):
        labels_of(dataset, "loader.dataset", "Pass them.")


@pytest.mark.parametrize(
    "dataset",
    [
        [("a.jpg", 0), ("b.jpg", "0"), ("c.jpg", "1")],
        Photos("targets", ["cat", float("nan"), "dog"]),
        ConcatDataset([Photos("targets", [0, 1]), Photos("targets", ["0", "1"])]),
    ],
)
def test_text_beside_what_is_none_stays_two_kinds_and_is_refused(dataset):
    labels = labels_of(dataset, "dataset", "")
    assert {isinstance(label, str) for label in labels} == {True, False}
    with pytest.raises(InputError, match="all strings or all integers"):
        bspml.SampleWeights(labels)


def test_labels_of_joined_parts_are_those_of_each_whatever_their_kind():
    kinds = ([3, 1], torch.tensor([2, 9]), np.array([7, 3], np.uint8))
    joined = ConcatDataset([Photos("targets", labels) for labels in kinds])
    assert bspml.SampleWeights(labels_of(joined, "dataset", "")).classes.tolist() == [1, 2, 3, 7, 9]
    joined = ConcatDataset([Photos("targets", ["a", "long"]), Photos("targets", np.array(["b"]))])
    assert labels_of(joined, "dataset", "").tolist() == ["a", "long", "b"]


def test_rows_that_each_part_counts_from_0_are_refused():
    parts = [TensorDataset(torch.arange(6), torch.tensor(LABELS))] * 2
    whole = bspml.IndexedDataset(ConcatDataset(parts))
    assert labels_of(whole, "dataset", "").tolist() == LABELS * 2
    assert whole[7][-1] == 7
    counted_alone = ConcatDataset([bspml.IndexedDataset(part) for part in parts])
    assert counted_alone[7][-1] == 1  # the label is the same, the sample another
    with pytest.raises(InputError, match=r"IndexedDataset\(ConcatDataset\(\[...\]\)\)"):
        labels_of(Subset(counted_alone, [0, 7]), "dataset", "")
