import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from bspml.data.indexed import IndexedDataset, drop_sample_index, sample_index_getter
from bspml.errors import InputError
from bspml.weights.state import SampleWeights


@pytest.fixture
def base():
    return TensorDataset(torch.arange(6.0)[:, None], torch.tensor([5, 5, 9, 9, 2, 2]))


def test_returns_the_sample_and_its_row(base):
    x, y, i = IndexedDataset(base)[3]
    assert (float(x), int(y), i) == (3.0, 9, 3)
    assert isinstance(i, int)


def test_counts_from_the_end_like_a_list(base):
    data = IndexedDataset(base)
    assert data[-1][2] == 5
    for outside in (6, -7):
        with pytest.raises(IndexError, match="6 samples"):
            data[outside]


def test_can_be_iterated_to_its_end(base):
    assert [i for _, _, i in IndexedDataset(base)] == list(range(6))


def test_a_subset_keeps_the_rows_of_the_whole(base):
    part = Subset(IndexedDataset(base), [4, 1])
    assert [part[k][2] for k in range(2)] == [4, 1]


@pytest.mark.parametrize("labels", [[1, 1, 1, 0, 0, 0], np.array([1, 1, 1, 0, 0, 0])])
def test_other_labels_replace_those_of_the_data_set(base, labels):
    data = IndexedDataset(base, labels=labels)
    assert [data[k][1] for k in range(6)] == [1, 1, 1, 0, 0, 0]
    assert int(base[0][1]) == 5


@pytest.mark.parametrize("labels", [[1, 2], [[1]] * 6, [0.5] * 6, list("abcdef")])
def test_labels_that_do_not_fit_are_refused(base, labels):
    with pytest.raises(InputError, match=r"`labels` must be one integer per sample, \(6,\)"):
        IndexedDataset(base, labels=labels)


class Columns(list):
    """Rows that say what columns they have, as Hugging Face's do."""

    column_names = ("image", "label")


ROWS = [{"image": f"{i}.jpg", "label": i % 2} for i in range(4)]


@pytest.mark.parametrize("rows", [ROWS, Columns(ROWS)], ids=["dictionaries", "named columns"])
def test_columns_of_a_data_set_of_dictionaries_are_named(rows):
    assert IndexedDataset(rows, x="image", y="label")[-1] == ("3.jpg", 1, 3)
    assert IndexedDataset(rows, labels=[5, 6, 7, 8], x="image")[1] == ("1.jpg", 6, 1)
    for wrong, message in (
        ({}, "columns, and x= and y= must name two; its columns are 'image', 'label'"),
        ({"x": "image"}, "x= and y= must name two"),
        ({"x": "picture", "y": "label"}, "no column 'picture'; its columns are 'image', 'label'"),
        ({"x": "image", "y": "class"}, "no column 'class'"),
    ):
        with pytest.raises(InputError, match=message):
            IndexedDataset(rows, **wrong)[0]


def test_columns_of_a_data_set_without_any_are_refused(base):
    with pytest.raises(InputError, match=r"`x` names a column.*got 2 values at index 0"):
        IndexedDataset(base, x="image", y="label")[0]
    for arguments, got in (
        ({"y": "label"}, "without `x`"),
        ({"x": "image", "y": "label", "labels": [0] * 6}, "and `labels`"),
    ):
        with pytest.raises(InputError, match=f"`y` names the column .*got it {got}"):
            IndexedDataset(base, **arguments)


def test_a_stream_is_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            yield 0, 0

    with pytest.raises(InputError, match="must have a length and an index; got Stream"):
        IndexedDataset(Stream())


@pytest.mark.parametrize(
    ("item", "got"), [((1, 2, 3), "3 values"), (1.5, "float"), (torch.ones(2), "Tensor")]
)
def test_items_that_are_no_pair_are_named(item, got):
    with pytest.raises(InputError, match=rf"must return \(x, y\); got {got} at index 0"):
        IndexedDataset([item])[0]


def test_survives_pickling(base):
    assert pickle.loads(pickle.dumps(IndexedDataset(base)))[2][2] == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_the_getter_announces_each_batch(base, workers):
    weights = SampleWeights([5, 5, 9, 9, 2, 2])
    getter = sample_index_getter(weights)
    loader = DataLoader(IndexedDataset(base), batch_size=4, num_workers=workers)
    announced = []
    for batch in loader:
        x, _ = getter(batch)
        assert weights.batch_index.tolist() == x[:, 0].long().tolist()
        announced += weights.batch_index.tolist()
    assert announced == list(range(6))


def test_dropping_the_index_leaves_the_batch_announced_before(base):
    weights = SampleWeights([5, 5, 9, 9, 2, 2])
    weights.set_batch([1])
    x, y = drop_sample_index(next(iter(DataLoader(IndexedDataset(base), batch_size=6))))
    assert (len(x), y.tolist()) == (6, [5, 5, 9, 9, 2, 2])
    assert weights.batch_index.tolist() == [1]


@pytest.mark.parametrize("getter", [drop_sample_index, sample_index_getter(SampleWeights([0]))])
def test_a_batch_without_index_is_refused(getter):
    with pytest.raises(InputError, match=r"must be \(x, y, i\); got 2 values.*IndexedDataset"):
        getter((torch.zeros(1), torch.zeros(1)))


def test_pandas_objects_are_refused_since_their_items_go_by_label():
    pairs = pd.Series([("a", 0), ("b", 1)], index=[1, 0])
    for dataset in (pairs, pd.DataFrame({"x": [1, 2], "y": [0, 1]}, index=[5, 6])):
        with pytest.raises(InputError, match="whose index is no row number"):
            IndexedDataset(dataset)


def test_labels_of_text_are_refused_before_the_trainer_meets_them():
    weights = SampleWeights(["a", "a", "b", "b"])
    rows = [(torch.zeros(2), label) for label in ["a", "a", "b", "b"]]
    getter = sample_index_getter(weights)
    with pytest.raises(InputError, match=r"labels are text.*labels=weights.codes"):
        getter(next(iter(DataLoader(IndexedDataset(rows), batch_size=4))))
    batch = next(iter(DataLoader(IndexedDataset(rows, labels=weights.codes), batch_size=4)))
    assert getter(batch)[1].tolist() == [0, 0, 1, 1]


def test_labels_of_odd_tensors_are_integers_or_refused(base):
    big = torch.tensor([1, 2, 3, 4, 5, 6], dtype=torch.uint16)
    assert IndexedDataset(base, labels=big)[2][1] == 3
    for wrong in (torch.ones(6).to_sparse(), torch.ones(6, requires_grad=True), torch.ones(6) > 0):
        with pytest.raises(InputError, match="`labels` must be"):
            IndexedDataset(base, labels=wrong)
