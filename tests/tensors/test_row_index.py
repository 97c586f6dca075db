import numpy as np
import pandas as pd
import pytest

import bspml
from bspml.data.dataset_labels import labels_of
from bspml.data.labels.decisions import apply_decisions
from bspml.errors import InputError
from bspml.evaluation import noise_detection
from bspml.tensors.row_index import (
    as_array,
    check_class_order,
    check_in_order,
    check_same_columns,
    check_same_rows,
)

LABELS = pd.Series([0, 1, 0, 1], index=[5, 6, 7, 8])


def test_equal_indices_and_things_without_one_go_together():
    rows = pd.DataFrame(np.eye(4), index=[5, 6, 7, 8])
    assert check_same_rows(embeddings=rows, labels=LABELS).equals(LABELS.index)
    assert check_same_rows(embeddings=np.eye(4), labels=LABELS).equals(LABELS.index)
    assert check_same_rows(embeddings=rows, labels=LABELS.to_numpy(), names=None) is not None
    assert check_same_rows(embeddings=np.eye(4), labels=[0, 1, 0, 1]) is None
    # A list has a method of this name, and an Index of labels has no index of its own.
    assert (
        check_same_rows(embeddings=pd.DataFrame(np.eye(4)), labels=pd.Index(["a", "b", "c", "d"]))
        is not None
    )
    ranged = pd.Series([0, 1], index=pd.RangeIndex(2)), pd.Series([0, 1], index=[0, 1])
    check_same_rows(embeddings=ranged[0], labels=ranged[1])


def test_the_same_indices_in_another_order_are_refused_with_the_remedy():
    rows = pd.DataFrame(np.eye(4), index=[5, 7, 6, 8])
    with pytest.raises(InputError, match=r"indices differ at 2 of 4 rows, first at position 1 \(7 and 6\)") as err:  # fmt: skip  # noqa: E501
        check_same_rows(embeddings=rows, labels=LABELS)
    assert ".loc[embeddings.index]" in str(err.value)
    assert ".reset_index(drop=True)" in str(err.value)


def test_other_indices_are_refused_and_other_lengths_left_to_the_caller():
    with pytest.raises(InputError, match="in what they name"):
        check_same_rows(embeddings=pd.DataFrame(np.eye(4)), labels=LABELS)
    check_same_rows(embeddings=pd.DataFrame(np.eye(3)), labels=LABELS)
    two_levels = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1), ("b", 2)])
    with pytest.raises(InputError, match=r"\('a', 1\)"):
        check_same_rows(embeddings=pd.DataFrame(np.eye(4), index=two_levels), labels=LABELS)


def test_an_index_known_from_before_counts():
    known = ("the labels of the weights", LABELS.index)
    with pytest.raises(InputError, match=r"the labels of the weights and `embeddings`"):
        check_same_rows(known, embeddings=pd.DataFrame(np.eye(4), index=[8, 7, 6, 5]))
    assert check_same_rows(("nothing", None), embeddings=np.eye(4)) is None


def test_rows_that_were_shuffled_do_not_go_beside_rows_without_an_index():
    """As the table of an audit, the most suspicious rows first."""
    shuffled = pd.Series([0.0, 1, 1, 1], index=[2, 0, 3, 1])
    weights, flags = bspml.SampleWeights([0, 1, 0, 1]), [False, False, True, False]
    for given in (weights.update, lambda scores: noise_detection(scores, flags)):
        with pytest.raises(
            InputError, match=r"rows are 0 to 3; .* in another order. Pass `.*sort_"
        ):
            given(shuffled)
    weights.update(shuffled.sort_index())
    assert weights.weights.tolist() == [1, 1, 0, 1]
    assert noise_detection(shuffled.sort_index(), flags).auroc == 1
    weights.update(pd.Series([1.0, 1, 1, 0], index=[7, 5, 6, 4]))  # of a part of other rows


CLASSES = np.array(["a", "b"])


@pytest.mark.parametrize(
    "value",
    [pd.Series([1, 0]), pd.Series([1, 0], list("ab")), pd.DataFrame(np.eye(2)), {"b": 1}, [1, 0]],
)
def test_what_goes_by_class_in_sorted_order_passes(value):
    check_class_order(value, "groups", CLASSES)


@pytest.mark.parametrize(
    "value",
    [pd.Series([1, 0], list("ba")), pd.DataFrame(np.eye(2), columns=list("ba"), index=list("ab"))],
)
def test_classes_in_another_order_are_refused(value):
    with pytest.raises(InputError, match=r"`groups` goes by class .* 'b' where 'a' is first"):
        check_class_order(value, "groups", CLASSES)


def test_noise_by_class_refuses_another_order():
    labels = ["a", "b", "c", "d"] * 3
    mixed = list("dcba")
    matrix = pd.DataFrame(np.eye(4)[::-1].copy(), index=mixed, columns=mixed)
    for call in (
        lambda: bspml.noise.sibling_flip(labels, 0.5, pd.Series([0, 0, 1, 1], index=mixed)),
        lambda: bspml.noise.semantic(labels, 0.5, similarity=matrix),
        lambda: bspml.noise.asymmetric(labels, transition=matrix),
    ):
        with pytest.raises(InputError, match="order of the classes"):
            call()


def test_columns_of_another_order_are_refused_and_other_names_are_not():
    frame = pd.DataFrame(np.eye(3), columns=list("abc"))
    check_same_columns(embeddings=frame, gallery=frame)
    check_same_columns(embeddings=frame, gallery=np.eye(3))
    check_same_columns(embeddings=frame, gallery=frame.set_axis(list("xyz"), axis=1))
    with pytest.raises(InputError, match=r"'a' first in the one and 'c'.*gallery\[embeddings\.col"):
        check_same_columns(embeddings=frame, gallery=frame[["c", "a", "b"]])
    with pytest.raises(InputError, match="columns in the same order"):
        bspml.evaluate(frame, [0, 0, 1], 1, frame[["c", "a", "b"]], [0, 0, 1])


@pytest.mark.parametrize(
    "dtype", ["Float64", "Float32", "Int16", "double[pyarrow]", "int8[pyarrow]"]
)
def test_nullable_and_arrow_columns_are_numbers_and_what_is_missing_is_nan(dtype):
    frame = pd.DataFrame({"a": [1, 2], "b": [3.0, 4.0]}).astype({"a": dtype})
    np.testing.assert_array_equal(as_array(frame), [[1, 3], [2, 4]])
    assert as_array(frame).dtype == np.float64
    frame.loc[1, "a"] = pd.NA
    np.testing.assert_array_equal(as_array(frame), [[1, 3], [np.nan, 4]])


def test_text_in_a_table_stays_text():
    assert as_array(pd.DataFrame({"a": ["1", "2"]})).dtype.kind == "O"
    assert as_array(pd.Series(["1", "2"], dtype="string")).tolist() == ["1", "2"]


@pytest.mark.parametrize("column", ["label", " Y ", "true_label", "id", "Unnamed: 0", "klass"])
def test_embeddings_that_hold_their_labels_are_refused_and_the_column_is_named(column):
    x = np.random.default_rng(0).normal(size=(16, 3))
    labels = [0, 1, 2, 3] * 4
    frame = pd.DataFrame(x, columns=["d0", "d1", "d2"])
    held = frame.assign(**{column: labels})
    for judge in (bspml.audit, lambda x, y: bspml.evaluate(x, y, ks=(1,), clustering=False)):
        for given in (held[column], labels, np.array(labels, dtype=np.float32)):
            with pytest.raises(InputError, match=rf"'{column}'.*drop\(columns=\['{column}'\]\)"):
                judge(held, given)
    dropped = bspml.evaluate(held.drop(columns=[column]), labels, ks=(1,), clustering=False)
    plain = bspml.evaluate(x, labels, ks=(1,), clustering=False)
    assert dropped.recall_at_k == plain.recall_at_k
    assert bspml.evaluate(held.to_numpy(), labels, ks=(1,), clustering=False)
    bspml.evaluate(frame.assign(d3=1.0), labels, ks=(1,), clustering=False)


def doors(value):
    """Every public argument of one entry per row, with the same value."""
    x, y, w = np.eye(6), [0, 0, 0, 1, 1, 1], bspml.SampleWeights([0, 0, 0, 1, 1, 1])
    report = bspml.audit(x, y)
    problem = bspml.WeightProblem(np.ones(6), np.ones(6), y, 1.0)
    return {
        "embeddings": lambda: bspml.evaluate(value, y),
        "labels": lambda: bspml.evaluate(x, value),
        "names": lambda: bspml.audit(x, y, names=value),
        "texts": lambda: report.save("not made", texts=value),
        "sample_weights": lambda: bspml.contrastive_statistics(x, y, sample_weights=value),
        "rows": lambda: bspml.contrastive_statistics(x, y, rows=value),
        "mask": lambda: bspml.PKSampler(y, 2, 2).set_rows(value),
        "xi_pos": lambda: bspml.WeightProblem(value, np.ones(6), y, 1.0),
        "weights": lambda: problem.objective(value),
        "start": lambda: bspml.solve_weights(problem, start=value),
        "new": lambda: w.update(value),
        "ignore": lambda: bspml.evaluate(x, y, ignore=value),
        "labels ": lambda: bspml.IndexedDataset([(0, 0)] * 6, labels=value),
        "labels  ": lambda: apply_decisions(value, []),
        "weights ": lambda: apply_decisions(y, [], value),
        "is_noisy": lambda: bspml.evaluation.noise_detection(np.ones(6), value),
    }


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (dict.fromkeys(range(6), 1.0), "dict"),
        (set(range(6)), "set"),
        ((float(i % 2) for i in range(6)), "generator"),
        (np.ma.array([0, 0, 0, 1, 1, 1], mask=[0, 1, 0, 0, 0, 0]), "masked"),
        ([*np.ma.array([0, 0, 0, 1, 1, 1], mask=[0, 1, 0, 0, 0, 0])], "masked"),
    ],
)
def test_what_has_no_order_or_hides_entries_is_refused_at_every_door(value, got):
    for name, door in doors(value).items():
        with pytest.raises(InputError, match=f"`{name.strip()}` .*{got}"):
            door()
    for same in ([1, 2], np.ma.array([1, 2]), "ab", None, {}.values()):
        check_in_order(same, "labels")


def test_a_data_set_s_own_labels_must_have_an_order_too():
    dataset = type("Photos", (), {"targets": {7: 0, 8: 1}})()
    with pytest.raises(InputError, match=r"`labels` must be a list or an array, .* got a dict"):
        labels_of(dataset, "dataset", "")
    with pytest.raises(InputError, match="`dataset` must have a length and an index; got dict"):
        bspml.IndexedDataset({"a": (0, 1), "b": (0, 2)})


@pytest.mark.parametrize("dtypes", [("boolean", "Int64"), ("bool[pyarrow]", "int64[pyarrow]")])
def test_nullable_masks_and_rows_are_masks_and_rows(dtypes):
    mask = pd.Series([True, False, True, False, True, True], dtype=dtypes[0])
    rows = pd.Series([0, 2, 4, 5], dtype=dtypes[1])
    plain = bspml.contrastive_statistics(np.eye(6), [0, 0, 0, 1, 1, 1], rows=[0, 2, 4, 5])
    for chosen in (mask, rows):
        found = bspml.contrastive_statistics(np.eye(6), [0, 0, 0, 1, 1, 1], rows=chosen)
        np.testing.assert_array_equal(found.testable, plain.testable)
    for value in (mask, rows):
        missing = value.mask(value.index == 1)
        with pytest.raises(InputError, match=r"`rows` must be integers; got torch.float64"):
            bspml.contrastive_statistics(np.eye(6), [0, 0, 0, 1, 1, 1], rows=missing)
    sampler = bspml.PKSampler([0, 0, 0, 1, 1, 1], 2, 2)
    sampler.set_rows(mask)
    assert sampler.num_usable == 4
