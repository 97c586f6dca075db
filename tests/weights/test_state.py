import copy
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

import bspml
from bspml.errors import CheckpointError, InputError, SampleIndexError
from bspml.weights.batch import look_up
from bspml.weights.state import SampleWeights, check_weights

EMB = torch.zeros(1, 3)
LABELS = [7, 7, 1_000_003, 7, -2]  # classes -2, 7, 1000003 of sizes 1, 3, 1


@pytest.fixture
def weights():
    table = SampleWeights(LABELS)
    table.update([1.0, 0.5, 0.25, 0.0, 0.75])
    return table


# ------------------------------------------------------------------------------- the table


def test_starts_at_one_with_classes_sorted():
    table = SampleWeights(LABELS)
    assert table.weights.dtype == torch.float32
    assert table.weights.tolist() == [1] * 5
    assert table.codes.tolist() == [1, 1, 2, 1, 0]
    assert table.classes.tolist() == [-2, 7, 1_000_003]
    assert len(table) == 5
    assert (table.maw(), table.sdaw()) == (1.0, 0.0)


@pytest.mark.parametrize(
    "labels",
    [
        torch.tensor(LABELS, dtype=torch.int32),
        np.array(LABELS),
        [str(v) for v in LABELS],
        torch.tensor(LABELS, dtype=torch.float64),
        np.array([7, np.int64(7), 1_000_003, 7, -2], dtype=object),
        torch.tensor([7, 7, 128, 7, -2], dtype=torch.bfloat16),
    ],
)
def test_labels_may_be_of_any_kind(labels):
    table = SampleWeights(labels)
    same = table.codes[:, None] == table.codes
    expected = torch.tensor(LABELS)
    assert torch.equal(same, expected[:, None] == expected)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0], [1, 2]], "one label per sample.*got a list of list of different lengths"),
        ([1, None], "got a mix of NoneType, int"),
        ([10**30, 0], "must fit 64 bits.*as strings"),
        ([1e30, 0.0], "must be integers or strings.*1e\\+30"),
        (torch.zeros(2).to_sparse(), "dense tensor"),
        (torch.zeros(2) * 1j, "must be integers or strings; got torch.complex64"),
    ],
)
def test_what_are_no_labels_is_refused(labels, message):
    with pytest.raises(InputError, match=message):
        SampleWeights(labels)


def test_no_labels_are_refused():
    with pytest.raises(InputError, match="at least one"):
        SampleWeights([])


def test_lookup_keeps_the_order_and_shape_of_the_index(weights):
    assert weights[[4, 0, 4]].tolist() == [0.75, 1.0, 0.75]
    assert weights[torch.tensor([1], dtype=torch.int32)].tolist() == [0.5]
    assert weights[np.array([2])].tolist() == [0.25]
    assert weights[3].shape == ()
    assert weights[1:3].tolist() == [0.5, 0.25]
    assert weights[torch.tensor([], dtype=torch.long)].shape == (0,)


def test_a_lookup_is_a_copy(weights):
    for part in (weights[:], weights[[0]], weights[0]):
        part.zero_()
    assert float(weights[0]) == 1.0


@pytest.mark.parametrize("index", [5, -1, [0, 5], [-1]])
def test_an_index_outside_is_refused(weights, index):
    with pytest.raises(SampleIndexError, match=r"`sample_index` must lie in \[0, 5\)"):
        weights[index]


def test_a_fractional_index_is_refused(weights):
    with pytest.raises(InputError, match="must be integers"):
        weights[[0.0]]


@pytest.mark.parametrize("index", [["a"] * 4, [None] * 4, [[0], [1, 2]], "a", None, ..., {0}, 1j])
def test_what_is_no_index_is_refused_by_name(weights, index):
    lookups = (weights.__getitem__, weights.set_batch, lambda i: look_up(weights, EMB, 3, [0], i))
    for lookup in lookups[: 2 if index is None else 3]:  # no reference index is allowed
        with pytest.raises(
            InputError, match=r"sample_index` must be (integers.*; got .*Pass the|a list or)"
        ):
            lookup(index)
    with pytest.raises(InputError, match="`sample_index` must be a slice"):
        weights[::0]


def test_arrays_reversed_or_of_another_byte_order_are_read(weights):
    assert weights[np.array([0, 4])[::-1]].tolist() == [0.75, 1.0]
    assert weights[np.array([0, 4], dtype=">i4")].tolist() == [1.0, 0.75]
    assert weights[torch.tensor([4, 0], dtype=torch.uint64)].tolist() == [0.75, 1.0]


# ------------------------------------------------------------------------------- MAW and SDAW


def test_maw_and_sdaw_of_a_worked_example():
    table = SampleWeights([0, 0, 1, 1])
    table.update([1, 1, 0, 0])  # class means 1 and 0
    assert table.maw() == 0.5
    assert table.sdaw() == 0.5  # population: sqrt(((1 - .5)^2 + (0 - .5)^2) / 2)


def test_one_class_has_no_deviation():
    table = SampleWeights([3, 3])
    table.update([0.25, 0.75])
    assert (table.maw(), table.sdaw()) == (0.5, 0.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1, width=32)), min_size=1, max_size=30))
def test_class_means_agree_with_a_loop(samples):
    table = SampleWeights([c for c, _ in samples])
    table.update(torch.tensor([w for _, w in samples]))
    means = []
    for c in sorted({c for c, _ in samples}):
        of_class = [w for k, w in samples if k == c]
        means.append(sum(of_class) / len(of_class))
    maw = sum(means) / len(means)
    sdaw = math.sqrt(sum((m - maw) ** 2 for m in means) / len(means))
    assert table.class_means().tolist() == pytest.approx(means)
    assert table.maw() == pytest.approx(maw)
    assert table.sdaw() == pytest.approx(sdaw, abs=1e-9)


# ------------------------------------------------------------------------------- update


def test_update_is_seen_by_every_holder(weights):
    held = weights.weights
    weights.update(np.zeros(5))
    assert held.tolist() == [0] * 5
    weights.reset()
    assert held.tolist() == [1] * 5


def test_update_clips_rounding():
    table = SampleWeights([0, 0])
    table.update(torch.tensor([-1e-10, 1 + 1e-10], dtype=torch.float64))
    assert table.weights.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ([1.0, 1.0], r"shape \(5,\); got \(2,\)"),
        (torch.ones(5, 1), r"got \(5, 1\)"),
        ([1, 1, 1, 1, 1.1], r"got 1.1 at row 4"),
        ([1, -0.1, 1, 1, 1], r"got -0.1 at row 1"),
        ([1, 1, math.nan, 1, math.nan], r"got nan at row 2 \(rows 2, 4\)"),
        ([1, 1, math.inf, 1, 1], r"got inf at row 2"),
        (["a"] * 5, r"`new` must be one weight per sample.*got a list of str.*in \[0, 1\]"),
        ([None] * 5, "got a list of NoneType"),
        (None, "got None"),
        ([1, [1], 1, 1, 1], "got a list of int, list"),
        (torch.ones(5).to_sparse(), r"dense tensor.*to_dense"),
        (torch.ones(5) * 1j, "got torch.complex64"),
    ],
)
def test_a_refused_update_changes_nothing(weights, new, message):
    before = weights.weights.clone()
    with pytest.raises(InputError, match=message):
        weights.update(new)
    assert torch.equal(weights.weights, before)


def test_update_takes_weights_that_carry_a_graph(weights):
    weights.update(torch.full((5,), 0.5, requires_grad=True))
    assert not weights.weights.requires_grad


# ------------------------------------------------------------------------------- the batch


def test_an_explicit_index_beats_the_announced_batch(weights):
    weights.set_batch([0, 1])
    assert weights.for_batch(2).tolist() == [1.0, 0.5]
    assert weights.for_batch(2, sample_index=[2, 3]).tolist() == [0.25, 0.0]
    assert weights.for_batch(2).tolist() == [1.0, 0.5]


def test_a_missing_index_names_both_ways(weights):
    with pytest.raises(SampleIndexError, match=r"`sample_index=`.*weights\.set_batch"):
        weights.for_batch(2)


@pytest.mark.parametrize("announce", [True, False])
def test_another_number_of_rows_raises_and_never_broadcasts(weights, announce):
    if announce:
        weights.set_batch([0])
    with pytest.raises(InputError, match=r"\(B,\) = \(4,\) like the embeddings; got \(1,\)"):
        weights.for_batch(4, None if announce else [0])


@pytest.mark.parametrize(
    "wrong",
    [
        ([0, 5], None),
        ([0, -1], None),
        ([[0]], None),
        ([0.5], None),
        ([1], [9]),
        (["a"], None),
        ([None], None),
        ([[0], [1, 2]], None),
        (None, None),
        ([1], "b"),
    ],
)
def test_a_refused_batch_leaves_the_old_one(weights, wrong):
    weights.set_batch([3], [4])
    with pytest.raises((InputError, SampleIndexError)):
        weights.set_batch(*wrong)
    assert weights.batch_index.tolist() == [3]
    assert weights.ref_batch_index.tolist() == [4]


def test_look_up_takes_announced_references_only_with_the_announced_batch(weights):
    like = torch.zeros(2, 3, dtype=torch.float64)
    weights.set_batch([0, 1], [2, 3, 4])
    announced = look_up(weights, like, 3)
    assert announced.anchors.tolist() == [1.0, 0.5]
    assert announced.anchors.dtype == torch.float64
    assert announced.references.tolist() == [0.25, 0.0, 0.75]
    assert look_up(weights, like, 3, sample_index=[0, 1]).references is None
    weights.set_batch([0, 1])
    assert look_up(weights, like, 3).references is None


def test_look_up_within_a_batch_uses_the_same_weights_on_both_sides(weights):
    known = look_up(weights, torch.zeros(2, 3), None, [4, 2])
    assert known.anchors is known.references
    assert known.sample_index.tolist() == [4, 2]


def test_look_up_without_a_table_keeps_the_indices():
    known = look_up(None, torch.zeros(2, 3), 1, [900, 3], [3])
    assert known.anchors is None
    assert known.ref_sample_index.tolist() == [3]
    with pytest.raises(InputError, match=r"\(B,\) = \(2,\)"):
        look_up(None, torch.zeros(2, 3), 1, [900])


def test_reference_indices_without_references_are_refused(weights):
    with pytest.raises(InputError, match="`ref_emb`, which was not given"):
        look_up(weights, torch.zeros(2, 3), None, [0, 1], [0, 1])


def test_a_bare_tensor_is_no_table():
    with pytest.raises(InputError, match=r"must be a SampleWeights or None; got Tensor.*update"):
        check_weights(torch.ones(3))


# ------------------------------------------------------------------------------- state_dict


def test_state_dict_round_trip(weights):
    weights.set_batch([0])
    other = SampleWeights(LABELS)
    other.load_state_dict(weights.state_dict())
    assert torch.equal(other.weights, weights.weights)
    assert other.batch_index is None
    assert set(weights.state_dict()) == {"weights", "codes", "current_codes", "fixed"}


def test_weights_of_another_number_of_samples_are_refused(weights):
    other = SampleWeights([0, 1])
    with pytest.raises(CheckpointError, match="weights for 5 samples, this data set has 2"):
        other.load_state_dict(weights.state_dict())
    assert other.weights.tolist() == [1, 1]


def test_weights_of_other_labels_are_refused(weights):
    other = SampleWeights([7, 7, 1_000_003, 1_000_003, -2])
    with pytest.raises(CheckpointError, match=r"other labels.*rows 3 of 5"):
        other.load_state_dict(weights.state_dict())
    assert other.weights.tolist() == [1] * 5


def test_refusal_also_works_inside_another_module(weights):
    holder = torch.nn.ModuleDict({"w": weights})
    state = copy.deepcopy(holder.state_dict())
    with pytest.raises(CheckpointError, match="5 samples"):
        torch.nn.ModuleDict({"w": SampleWeights([0])}).load_state_dict(state)


@pytest.mark.parametrize("wrong", [float("nan"), -0.5, 1.5, float("inf")])
def test_saved_weights_outside_the_box_are_refused(weights, wrong):
    state = {k: v.clone() for k, v in weights.state_dict().items()}
    state["weights"][2] = wrong
    before = weights.weights.clone()
    with pytest.raises(CheckpointError, match=r"must lie in \[0, 1\]"):
        weights.load_state_dict(state)
    assert torch.equal(weights.weights, before)


# ------------------------------------------------------------------------------- fixed weights


def test_fixed_weights_outlast_updates_and_resets_and_are_saved(weights):
    weights.fix([3, 1], [1.0, 0.0])
    assert weights.weights.tolist() == [1.0, 0.0, 0.25, 1.0, 0.75]
    weights.update([0.5] * 5)
    assert weights.weights.tolist() == [0.5, 0.0, 0.5, 1.0, 0.5]
    weights.reset()
    assert weights.weights.tolist() == [1.0, 0.0, 1.0, 1.0, 1.0]
    other = SampleWeights(LABELS)
    other.load_state_dict(weights.state_dict())
    other.update([0.5] * 5)
    assert other.weights.tolist() == [0.5, 0.0, 0.5, 1.0, 0.5]
    weights.fix([1], [1.0])  # a person may think again
    assert weights[1] == 1.0


@pytest.mark.parametrize(
    ("rows", "values", "error", "message"),
    [
        ([0, 5], [1, 1], SampleIndexError, r"lie in \[0, 5\)"),
        ([0, 0], [1, 0], InputError, "`sample_index` must name each row once; got rows 0"),
        ([0, 1], [1], InputError, r"`weights` must be one weight per row, shape \(2,\)"),
        ([0], [1.5], InputError, r"`weights` must lie in \[0, 1\]; got 1.5"),
        ([0], [math.nan], InputError, r"`weights` must lie in \[0, 1\]; got nan"),
    ],
)
def test_a_decision_that_cannot_be_changes_nothing(weights, rows, values, error, message):
    before = copy.deepcopy(weights.state_dict())
    with pytest.raises(error, match=message):
        weights.fix(rows, values)
    assert all(torch.equal(before[k], v) for k, v in weights.state_dict().items())


@pytest.mark.parametrize("nothing", [[], (), np.array([]), torch.zeros(0), torch.zeros(0).long()])
def test_no_rows_are_a_choice_of_rows_like_any_other(nothing):
    weights = SampleWeights([0, 0, 1])
    assert weights[nothing].shape == (0,)
    weights.fix(nothing, nothing)
    assert not weights.fixed.any()
    weights.set_batch(nothing, nothing)
    assert weights.batch_index.dtype == weights.ref_batch_index.dtype == torch.int64
    assert weights.for_batch(0).shape == weights.for_batch(0, nothing).shape == (0,)
    loss = bspml.BSPMLLoss(weights)
    empty = torch.zeros(0, 4, requires_grad=True)
    assert loss(empty, torch.zeros(0).long(), sample_index=nothing).item() == 0
    pairs = bspml.BSPMLMiner(weights)(empty, torch.zeros(0).long(), sample_index=nothing)
    assert [len(part) for part in pairs] == [0, 0, 0, 0]


def test_floats_and_bools_are_still_no_rows():
    weights = SampleWeights([0, 0, 1])
    for rows in ([0.0], [True, False, True]):
        with pytest.raises(InputError, match="must be integers"):
            weights[rows]


def test_labels_are_given_and_current():
    weights = SampleWeights(["b", "a", "b"])
    assert weights.current_labels.tolist() == weights.labels.tolist() == ["b", "a", "b"]
    assert not weights.repaired.any()
    weights.fix([1], [1.0])
    weights.relabel([0, 1, 1])
    assert weights.labels.tolist() == ["b", "a", "b"]
    assert weights.current_labels.tolist() == ["a", "a", "b"]  # a decision keeps its label
    assert weights.repaired.tolist() == [True, False, False]
    assert weights.of_given_labels.tolist() == [0, 1, 1]


@pytest.mark.parametrize("codes", [[0, 1], [0, 1, 2], [0, 1, -1], [0.0, 1.0, 1.0]])
def test_classes_that_do_not_exist_change_nothing(codes):
    weights = SampleWeights(["b", "a", "b"])
    with pytest.raises(InputError, match="one position in the 2 classes per sample"):
        weights.relabel(codes)
    assert not weights.repaired.any()


@pytest.mark.parametrize(
    ("classes", "batch", "expected"),
    [
        ([7, 7, 9, 9], [7, 9, 9], [9, 9, 9]),  # the labels themselves
        ([7, 7, 9, 9], [0, 1, 1], [1, 1, 1]),  # or their positions
        (["x", "x", "y", "y"], [0, 1, 1], [1, 1, 1]),
    ],
)
def test_a_batch_gets_the_repaired_labels_in_its_own_terms(classes, batch, expected):
    weights = SampleWeights(classes)
    labels, rows = torch.tensor(batch), torch.tensor([0, 2, 3])
    assert weights.relabelled(labels, rows) is labels
    weights.relabel([1, 0, 1, 1])
    found = weights.relabelled(labels, rows)
    assert found.tolist() == expected
    assert found.dtype == labels.dtype
    assert weights.relabelled(found, rows).tolist() == expected  # such as those in a memory
    assert weights.as_given(found, rows).tolist() == batch
    assert weights.as_given(labels, rows) is labels
    with pytest.raises(InputError, match="those that the weights were made of"):
        weights.relabelled(labels + 20, rows)
    with pytest.raises(InputError, match=r"must be \(B,\), those that"):
        weights.relabelled(torch.stack([labels, labels], dim=1), rows)


def test_a_batch_that_both_kinds_of_labels_fit_is_of_the_kind_of_those_before():
    """Labels with a gap, and a batch below it: 3 is a position there, and no label."""
    weights = SampleWeights([0, 1, 2, 4, 4])
    weights.relabel([0, 3, 2, 3, 3])
    batch, rows = torch.tensor([0, 1]), [0, 1]
    assert weights.relabelled(batch, rows).tolist() == [0, 4]  # as are the labels
    for told, expected in ((3, 3), (4, 4)):
        assert weights.index_for_batch(1, [3], torch.tensor([told])).tolist() == [3]
        assert weights.relabelled(batch, rows).tolist() == [0, expected]
    with pytest.raises(InputError, match="those that the weights were made of"):
        weights.relabelled(torch.tensor([3, 3]), rows)  # which tells nothing
    assert weights.relabelled(batch, rows).tolist() == [0, 4]


def test_class_means_are_those_of_the_classes_trained_under():
    weights = SampleWeights([0, 0, 1])
    weights.relabel([0, 1, 1])
    weights.update([1, 0, 1])
    assert weights.class_means().tolist() == [1.0, 0.5]
    weights.relabel([1, 1, 1])
    assert weights.class_means()[0] == 0  # nobody is left there
    assert weights.maw() == pytest.approx(2 / 3)
    assert weights.sdaw() == 0
    weights.reset()
    assert (weights.maw(), weights.sdaw()) == (1, 0)  # everybody takes part


def test_a_state_of_before_labels_were_repaired_loads_as_not_repaired():
    weights, other = SampleWeights([0, 0, 1]), SampleWeights([0, 0, 1])
    other.relabel([1, 0, 1])
    saved = weights.state_dict()
    del saved["current_codes"]
    other.load_state_dict(saved)
    assert not other.repaired.any()
    weights.relabel([1, 0, 1])
    other.load_state_dict(weights.state_dict())
    assert other.repaired.tolist() == [True, False, False]


def test_a_state_without_the_table_leaves_it_alone():
    """Such as one of the proxies alone, read with `strict=False`."""
    weights = SampleWeights([0, 0, 1])
    weights.update([0.5, 1, 1])
    weights.relabel([1, 0, 1])
    done = torch.nn.ModuleDict({"weights": weights}).load_state_dict({}, strict=False)
    assert sorted(done.missing_keys) == [f"weights.{name}" for name in sorted(weights.state_dict())]
    assert weights.current_labels.tolist() == [1, 0, 1]
    assert weights.any_repaired
    assert weights[0] == 0.5


def test_buffers_written_in_place_are_noticed():
    weights, other = SampleWeights([0, 0, 1]), SampleWeights([0, 0, 1])
    weights.relabel([1, 0, 1])
    for name, value in weights.state_dict().items():
        other.state_dict()[name].copy_(value)
    labels = torch.tensor([0, 0, 1])
    assert other.relabelled(labels, [0, 1, 2]).tolist() == [1, 0, 1]


def test_a_decision_is_about_the_given_label():
    weights = SampleWeights([0, 0, 1])
    weights.relabel([1, 0, 1])
    weights.fix([0], [1.0])
    assert weights.current_labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize("kind", [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn])
def test_types_that_torch_hardly_computes_with_are_numbers_all_the_same(kind):
    weights = SampleWeights([3, 3, 5])
    weights.update(torch.tensor([1, 0, 1]).to(kind))
    assert weights.weights.tolist() == [1, 0, 1]
    weights.fix([1], torch.tensor([1]).to(kind))
    labels = torch.tensor([5, 3]).to(kind)
    assert weights.index_for_batch(2, [2, 0], labels).tolist() == [2, 0]
    weights.relabel([0, 1, 1])
    assert weights.relabelled(torch.tensor([3, 3]).to(kind), [0, 1]).tolist() == [3, 3]
    with pytest.raises(InputError, match="their labels differ at 1 of 2 rows"):
        weights.index_for_batch(2, [2, 2], labels)


def test_a_mask_is_no_list_of_classes():
    weights = SampleWeights([3, 3, 5])
    with pytest.raises(InputError, match="`codes` must be one position in the 2 classes"):
        weights.relabel([True, False, True])


@pytest.mark.parametrize("kind", ["u1", "u2", "u4", "u8", "i4"])
def test_codes_of_any_whole_kind_relabel(kind):
    weights = SampleWeights([0, 1, 1])
    weights.relabel(np.array([0, 1, 0], dtype=kind))
    assert weights.current_codes.tolist() == [0, 1, 0]
    with pytest.raises(InputError, match="one position in the 2 classes"):
        weights.relabel(np.array([0, 1, np.iinfo(kind).max], dtype=kind))


@pytest.mark.parametrize("cast", ["half", "bfloat16", "double"])
def test_a_network_in_half_precision_leaves_the_weights_their_digits(cast):
    weights = SampleWeights(["a", "a", "b"])
    weights.update([0.3, 0.0001, 1.0])
    before = weights.weights.clone()
    getattr(torch.nn.Sequential(weights), cast)()
    assert torch.equal(weights.weights, before.to(weights.weights))
    assert weights.weights.dtype == (torch.float64 if cast == "double" else torch.float32)
