"""`evaluate` against a loop over queries, pml, and hand-worked cases."""

import json
import math
import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

import bspml
from bspml.errors import InputError, MissingDependencyError
from bspml.evaluation.clustering import kmeans
from bspml.evaluation.retrieval import CollapseWarning, evaluate
from bspml.evaluation.sides import own_gallery_rows
from bspml.tensors.unit_rows import grid_unit_rows
from helpers.draws import randn

BACKENDS = ("torch", "faiss")
# Means of at most some hundred float64 numbers, summed in another order.
TOLERANCE = 1e-12


def oracle(embeddings, labels, ks, gallery=None, gallery_labels=None):
    """Plain loop over the queries, full argsort, definitions read off the papers."""
    alone = gallery is None
    rows = embeddings if alone else gallery
    classes = labels if alone else gallery_labels
    q = np.round(grid_unit_rows(embeddings).double().numpy() * 2**24).astype(np.int64)
    g = np.round(grid_unit_rows(rows).double().numpy() * 2**24).astype(np.int64)
    recall, ap, rp, excluded = {k: [] for k in ks}, [], [], 0
    for i in range(len(q)):
        order = np.argsort(-(g @ q[i]), kind="stable")
        if alone:
            order = order[order != i]
        hits = np.array([classes[j] == labels[i] for j in order])
        r = hits.sum()
        if r == 0:
            excluded += 1
            continue
        for k in ks:
            recall[k].append(hits[:k].any())
        ap.append(sum(hits[: j + 1].mean() for j in range(r) if hits[j]) / r)
        rp.append(hits[:r].mean())
    return {k: np.mean(v) for k, v in recall.items()}, np.mean(ap), np.mean(rp), excluded


def check_against_oracle(metrics, expected):
    recall, map_at_r, r_precision, excluded = expected
    assert metrics.recall_at_k == pytest.approx(recall, abs=TOLERANCE)
    assert metrics.map_at_r == pytest.approx(map_at_r, abs=TOLERANCE)
    assert metrics.r_precision == pytest.approx(r_precision, abs=TOLERANCE)
    assert metrics.num_excluded == excluded


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(3, 120),
    classes=st.integers(1, 30),
    d=st.integers(1, 4),
    levels=st.sampled_from([1, 2, 1000]),
    backend=st.sampled_from(BACKENDS),
    block=st.sampled_from([None, 1, 7]),
    seed=st.integers(0, 2**30),
)
def test_metrics_equal_the_loop_over_queries(n, classes, d, levels, backend, block, seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randint(-levels, levels + 1, (n, d), generator=draw).float()
    x[:, 0] += 1  # few levels bring ties and zero rows
    y = torch.randint(0, classes, (n,), generator=draw)
    y[1] = y[0]
    ks = (1, 2) if n < 10 else (1, 4, 9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = evaluate(x, y, ks, backend=backend, clustering=False, block_size=block)
    check_against_oracle(found, oracle(x, y.tolist(), ks))
    values = list(found.recall_at_k.values())
    assert values == sorted(values)
    assert found.num_queries + found.num_excluded == n


@pytest.mark.parametrize("backend", BACKENDS)
def test_query_gallery_metrics_equal_the_loop(backend):
    x, g = randn(60, 5), randn(300, 5, seed=1)
    g[:30] = x[:30]  # nothing is removed, not even the query's own copy
    y = [f"c{i % 25}" for i in range(60)]
    gy = [f"c{(7 * i) % 20}" for i in range(300)]  # c20 to c24 have no match
    found = evaluate(x, y, (1, 3, 300), g, gy, backend=backend, clustering=False)
    expected = oracle(x, y, (1, 3, 300), g, gy)
    check_against_oracle(found, expected)
    assert found.num_excluded == sum(i % 25 >= 20 for i in range(60))
    assert found.recall_at_k[300] == 1
    assert found.num_gallery == 300


def pml(x, y, metrics, k="max_bin_count", **kwargs):
    x = torch.nn.functional.normalize(x)
    calculator = AccuracyCalculator(
        include=metrics,
        k=k,
        device=torch.device("cpu"),
        # pml's own starts from random rows; the definitions are compared, on the same clusters
        kmeans_func=lambda x, clusters: torch.from_numpy(kmeans(grid_unit_rows(x), clusters)[0]),
    )
    return calculator.get_accuracy(x, y, **kwargs)


def test_numbers_equal_those_of_pml_where_both_define_them():
    y = torch.arange(400) % 23
    x = randn(400, 32) + 0.8 * randn(23, 32, seed=1)[y]
    theirs = pml(
        x,
        y,
        ("precision_at_1", "r_precision", "mean_average_precision_at_r", "NMI", "AMI"),
    )
    ours = evaluate(x, y)
    assert ours.recall_at_k[1] == pytest.approx(theirs["precision_at_1"], abs=TOLERANCE)
    assert ours.r_precision == pytest.approx(theirs["r_precision"], abs=TOLERANCE)
    assert ours.map_at_r == pytest.approx(theirs["mean_average_precision_at_r"], abs=TOLERANCE)
    assert ours.nmi == pytest.approx(theirs["NMI"], abs=1e-9)
    assert ours.ami == pytest.approx(theirs["AMI"], abs=1e-9)


def test_gallery_numbers_equal_those_of_pml():
    y, gy = torch.arange(90) % 9, torch.arange(200) % 7  # 7 and 8 have no match
    x, g = randn(90, 16), randn(200, 16, seed=1)
    names = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    theirs = pml(
        x, y, names, reference=torch.nn.functional.normalize(g), reference_labels=gy, k=200
    )
    ours = evaluate(x, y, gallery=g, gallery_labels=gy, clustering=False)
    assert ours.recall_at_k[1] == pytest.approx(theirs["precision_at_1"], abs=TOLERANCE)
    assert ours.r_precision == pytest.approx(theirs["r_precision"], abs=TOLERANCE)
    assert ours.map_at_r == pytest.approx(theirs["mean_average_precision_at_r"], abs=TOLERANCE)


def test_recall_at_k_asks_for_any_match_among_k():
    # On a circle at 0, 10, 21, 33 degrees: neighbours of 0: 10, 21, 33; of 10: 0, 21, 33;
    # of 21: 10, 33, 0; of 33: 21, 10, 0.  Labels 0 1 0 1.
    angles = torch.deg2rad(torch.tensor([0.0, 10.0, 21.0, 33.0]))
    x = torch.stack([angles.cos(), angles.sin()], 1)
    found = evaluate(x, [0, 1, 0, 1], ks=(1, 2, 3), clustering=False)
    # matches at rank 2, 3, 3, 2
    assert found.recall_at_k == {1: 0.0, 2: 0.5, 3: 1.0}


def test_map_at_r_uses_all_r_neighbours_whatever_ks_asks():
    x, y = randn(7, 3), [0, 0, 1, 1, 1, 1, 1]
    found = evaluate(x, y, ks=[2], clustering=False)
    check_against_oracle(found, oracle(x, y, (2,)))


@pytest.mark.parametrize("size", [2, 5, 50])
@pytest.mark.parametrize("backend", BACKENDS)
def test_perfect_retrieval_scores_one_for_every_class_size(size, backend):
    classes = torch.arange(8).repeat_interleave(size)
    x = torch.eye(8)[classes] + 0.01 * randn(8 * size, 8)
    found = evaluate(x, classes, ks=[1], backend=backend)
    assert found.map_at_r == found.r_precision == found.recall_at_k[1] == 1
    assert found.num_excluded == 0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("block", [None, 3])
@pytest.mark.parametrize("value", [0.37, -2.0])
def test_collapsed_embeddings_score_chance_and_warn(backend, block, value):
    labels = np.repeat(np.arange(20), 10)
    x = torch.full((200, 19), value)
    with pytest.warns(CollapseWarning, match="collapsed"):
        found = evaluate(x, labels, backend=backend, block_size=block)
    # by index: rows 1 to 9 find row 0, row 0 finds row 1, all others row 0 of class 0: 10 of 200
    assert found.recall_at_k[1] == 0.05
    assert found.chance_recall_at_1 == pytest.approx(9 / 199)
    assert found.collapsed
    assert found.nmi == pytest.approx(0)


def test_nearly_collapsed_embeddings_warn_and_healthy_ones_do_not():
    y = torch.arange(60) % 6
    with pytest.warns(CollapseWarning):
        assert evaluate(torch.ones(60, 9) + 1e-4 * randn(60, 9), y, clustering=False).collapsed
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not evaluate(torch.eye(6)[y], y, clustering=False).collapsed


def test_all_zero_rows_are_a_collapse_too():
    with (
        pytest.warns(CollapseWarning, match="collapsed"),
        pytest.warns(UserWarning, match=r"norm 0: 0, 1, 2, 3, 4, \.\.\. \(40 in all\)"),
    ):
        found = evaluate(torch.zeros(40, 3), torch.arange(40) % 4, clustering=False)
    assert found.collapsed
    assert len(found.zero_rows) == 40


def test_zero_rows_are_named_and_do_not_spoil_the_rest():
    x, y = randn(40, 4), torch.arange(40) % 4
    x[[5, 11]] = 0
    with pytest.warns(UserWarning, match="`embeddings` has rows of norm 0: 5, 11"):
        found = evaluate(x, y, clustering=False)
    assert found.zero_rows == (5, 11)
    assert math.isfinite(found.map_at_r)


def test_nan_rows_are_refused_by_number():
    x, y = randn(40, 4), torch.arange(40) % 4
    x[[3, 8], 1] = math.nan
    with pytest.raises(InputError, match=r"rows 3, 8 hold NaN"):
        evaluate(x, y)
    with pytest.raises(InputError, match=r"`gallery` must be finite; rows 3, 8"):
        evaluate(randn(9, 4), torch.arange(9) % 4, (1,), x, y)


def test_lone_labels_are_excluded_and_counted():
    y = [0, 0, 1, 1, 2, 3]
    x = torch.eye(6)[[0, 0, 1, 1, 2, 3]]
    found = evaluate(x, y, ks=[1], clustering=False)
    assert (found.num_queries, found.num_excluded, found.recall_at_k[1]) == (4, 2, 1.0)
    with pytest.raises(InputError, match="none of the 6 queries has a match"):
        evaluate(x, range(6), ks=[1])


def test_a_chosen_k_beyond_the_gallery_is_refused_with_the_numbers():
    x, y, ks = randn(20, 4), torch.arange(20) % 4, (1, 2, 4, 8, 16, 32)
    with pytest.raises(InputError, match=r"32 nearest, but the gallery has 19 rows \(the query"):
        evaluate(x, y, ks)
    with pytest.raises(InputError, match=r"32 nearest, but the gallery has 20 rows\. Use ks up"):
        evaluate(x, y, ks, gallery=randn(20, 4, seed=1), gallery_labels=y)
    assert evaluate(x, y, ks=[19], clustering=False).recall_at_k[19] == 1


def test_of_the_default_k_those_that_fit_are_taken_and_the_others_named():
    x, y = randn(20, 4), torch.arange(20) % 4
    with pytest.warns(UserWarning, match=r"usual `ks`, 32 are left out: the gallery has 19 rows"):
        assert list(evaluate(x, y, clustering=False).recall_at_k) == [1, 2, 4, 8, 16]
    with pytest.warns(UserWarning, match="2, 4, 8, 16, 32 are left out"):
        assert list(evaluate(x[:2], [3, 3], clustering=False).recall_at_k) == [1]


@pytest.mark.parametrize("ks", [None, 1.5, [None], "1", {"a": 1}, object()])
def test_ks_that_are_no_whole_numbers_are_refused(ks):
    with pytest.raises(InputError, match="`ks`"):
        evaluate(np.eye(4), [0, 0, 1, 1], ks=ks)


# --- rows that do not match -----------------------------------------------------------------------


def test_pandas_rows_of_another_order_are_refused_on_either_side():
    y = pd.Series(np.repeat(np.arange(10), 10))
    x = pd.DataFrame(np.eye(10)[y] + 0.01 * randn(100, 10).numpy())
    mixed = x.sample(frac=1, random_state=0)
    with pytest.raises(InputError, match=r"`embeddings` and `labels`.* indices differ"):
        evaluate(mixed, y, (1,), clustering=False)
    with pytest.raises(InputError, match=r"`gallery` and `gallery_labels`.* indices differ"):
        evaluate(x, y, (1,), gallery=mixed, gallery_labels=y, clustering=False)
    assert evaluate(mixed, y.loc[mixed.index], (1,), clustering=False).recall_at_k[1] == 1
    assert evaluate(x, y.to_numpy(), (1,), clustering=False).recall_at_k[1] == 1


def test_repeated_rows_are_counted_and_two_of_them_named():
    x, y = randn(10, 4), torch.arange(10) // 2
    again = torch.cat([torch.arange(10), torch.tensor([0, 1, 4])])
    with pytest.warns(UserWarning, match=r"3 of 13 rows .* \(rows 10 of 0 and 11 of 1\).*Distrib"):
        found = evaluate(x[again], y[again], (1,), clustering=False)
    assert found.num_copies == 3
    assert "3 rows find an exact copy" in found.table()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluate(x, y, (1,), clustering=False).num_copies == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_queries_in_the_gallery_are_warned_of_and_can_be_left_out(backend):
    y = torch.arange(300) % 7
    x = randn(300, 6) + randn(7, 6, seed=1)[y]
    options: dict = {"ks": (1, 5), "gallery": x, "gallery_labels": y, "clustering": False}
    options["backend"] = backend
    with pytest.warns(
        UserWarning, match=r"100 of 100 query rows are in `gallery`.*rows 0 as 0 and"
    ):
        assert evaluate(x[:100], y[:100], **options).recall_at_k[1] == 1
    rows = torch.randperm(300, generator=torch.Generator().manual_seed(0))[:100]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = evaluate(x[rows], y[rows], query_in_gallery=True, **options)
    hits = torch.stack([y[evaluated(x, int(row))] == y[row] for row in rows])
    assert found.recall_at_k[1] == pytest.approx(float(hits[:, 0].double().mean()))
    assert found.recall_at_k[5] == pytest.approx(float(hits[:, :5].any(1).double().mean()))
    # All of them: the search of the gallery in itself.
    whole = evaluate(x, y, query_in_gallery=True, **options)
    alone = evaluate(x, y, ks=(1, 5), clustering=False, backend=backend)
    assert whole.as_dict() == alone.as_dict()


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64", "times 3", "of norm 1"])
def test_queries_rounded_otherwise_than_the_gallery_are_copies_all_the_same(kind):
    y = torch.arange(200) % 7
    x = randn(200, 16) + randn(7, 16, seed=1)[y]
    x = x.float()
    rounded = {"times 3": 3 * x, "of norm 1": torch.nn.functional.normalize(x)}
    queries = rounded[kind] if kind in rounded else x.to(getattr(torch, kind))
    options: dict = {"ks": (1,), "gallery": x, "gallery_labels": y, "clustering": False}
    with pytest.warns(UserWarning, match="100 of 100 query rows are in `gallery`"):
        found = evaluate(queries[:100], y[:100], **options)
    assert (found.recall_at_k[1], found.num_copies) == (1, 100)
    own = evaluate(queries[:100], y[:100], query_in_gallery=True, **options)
    hits = torch.stack([y[evaluated(x, row)[0]] == y[row] for row in range(100)])
    assert own.recall_at_k[1] == pytest.approx(float(hits.double().mean()), abs=0.02)
    twice = torch.cat([x, queries[:9].float()])
    if kind in ("times 3", "of norm 1"):
        with pytest.warns(UserWarning, match="9 of 209 rows are exact copies"):
            evaluate(twice, torch.cat([y, y[:9]]), (1,), clustering=False)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_the_own_row_is_the_equal_one_among_rows_within_the_rounding(kind):
    y = torch.arange(300) // 100
    x = (randn(300, 2) + randn(3, 2, seed=1)[y]).to(kind)  # in two columns most rows have some
    options: dict = {"gallery_labels": y, "query_in_gallery": True, "clustering": False}
    found = evaluate(x[::2], y[::2], (1,), x, **options)
    told_apart = evaluate(x[::2].float(), y[::2], (1,), x.float(), **options)
    assert (found.recall_at_k, found.map_at_r) == (told_apart.recall_at_k, told_apart.map_at_r)


def test_an_own_row_is_equal_before_it_is_near_and_free_before_it_is_taken():
    def angles(*degrees):
        turns = torch.tensor(degrees).deg2rad()
        return grid_unit_rows(torch.stack([turns.cos(), turns.sin()], 1))

    sides = [angles(1.0, 0.0, 0.1, 0.0), angles(0.0, 90.0, 0.2, 1.0)]
    codes = [torch.zeros(4, dtype=torch.int64)] * 2
    rows = own_gallery_rows(sides, codes, 0.01, np.arange(4), "rows")
    assert rows.tolist() == [3, 0, 2, 0]


def evaluated(x, row):
    """Rows by similarity to one, without it."""
    unit = torch.nn.functional.normalize(x)
    order = torch.argsort(unit @ unit[row], descending=True)
    return order[order != row]


def test_the_own_row_is_the_copy_under_the_same_label_and_other_copies_stay():
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    options: dict = {"ks": (1,), "gallery": x, "clustering": False, "query_in_gallery": True}
    with pytest.warns(UserWarning, match="1 of 4 rows are exact copies"):
        found = evaluate(2 * x[[1]], ["a"], gallery_labels=["b", "a", "b", "a"], **options)
    assert found.recall_at_k[1] == 0  # row 0, a copy under another label, is the nearest
    with pytest.warns(UserWarning, match="exact copies"):
        found = evaluate(x[[0, 1]], [0, 0], gallery_labels=[0, 0, 1, 1], **options)
    assert found.recall_at_k[1] == 1  # each finds the other
    with pytest.raises(InputError, match=r"no copy .* of the query rows 1 \(1 of 2\)"):
        evaluate(x[[0, 3]] + torch.tensor([[0.0], [1.0]]), [0, 1], gallery_labels=[0, 0, 1, 1],
                 **options)  # fmt: skip


def test_ignored_labels_count_nowhere():
    x = torch.tensor([[1.0, 0.1], [1.0, 0.0], [0.9, 0.0], [0.8, 0.6], [0.0, 0.0]])
    y = [-1, 0, 0, -1, -1]
    with pytest.warns(UserWarning, match="ONE CLASS"):
        found = evaluate(x, y, (1,), ignore=(-1,))
    assert (found.num_queries, found.num_gallery, found.num_ignored) == (2, 2, 3)
    assert found.zero_rows == ()
    with pytest.warns(UserWarning, match="norm 0"):  # named as the caller's rows are
        assert evaluate(x, [0, 0, -1, 1, 1], (1,), ignore=-1).zero_rows == (4,)
    z, labels = randn(40, 5), np.arange(40) % 6
    kept = labels > 1
    options: dict = {"gallery": z.flip(0), "gallery_labels": labels[::-1].copy()}
    part: dict = {"gallery": z[kept].flip(0), "gallery_labels": labels[kept][::-1].copy()}
    with pytest.warns(UserWarning, match="in `gallery` too"):
        whole = evaluate(z, labels, (1, 3), ignore=[0, 1], **options)
    with pytest.warns(UserWarning, match="in `gallery` too"):
        expected = evaluate(z[kept], labels[kept], (1, 3), **part)
    assert whole.as_dict() == expected.as_dict() | {"num_ignored": 28}
    text = evaluate(z, labels.astype(str), (1, 3), ignore="0")
    assert text.num_ignored == 7
    with pytest.raises(InputError, match="`ignore` must be of the labels' kind"):
        evaluate(z, labels.astype(str), (1,), ignore=(0,))
    with pytest.raises(InputError, match="none would be left"):
        evaluate(x, [-1] * 5, (1,), ignore=(-1,))


def test_a_label_to_ignore_must_be_that_of_some_row():
    x, names = randn(4, 3), ["robin", "robin", "wren", "wren"]
    with pytest.raises(InputError, match=r"`ignore` names 'robbin', .* did you mean `robin`\?"):
        evaluate(x, names, (1,), ignore=["wren", "robbin"])
    with pytest.raises(InputError, match=r"`ignore` names -1, a label that no row has; leave it"):
        evaluate(x, [0, 0, 1, 1], (1,), ignore=-1)
    options: dict = {"gallery": x + 1, "gallery_labels": ["robin", "robin", "wren", "lark"]}
    assert evaluate(x, names, (1,), ignore="lark", **options).num_ignored == 1
    options |= {"gallery_set_ids": [4, 5, 6, 7], "ks": 1, "ignore": "larch"}
    with pytest.raises(InputError, match=r"names 'larch', .* did you mean `lark`\?"):
        bspml.evaluation.evaluate_sets(x, names, [0, 1, 2, 3], **options)
    # One calculator is for splits with such labels, and for others.
    calculator = bspml.evaluation.AccuracyCalculator(("precision_at_1",), ks=1, ignore=(-1, 2))
    calculator.get_accuracy(x, torch.tensor([0, 0, 1, 2]))
    assert calculator.latest is not None
    assert calculator.latest.num_ignored == 1


def test_of_one_class_a_hundred_per_cent_means_nothing():
    with pytest.warns(UserWarning, match="ONE CLASS: whatever is found is right"):
        found = evaluate(randn(6, 3), ["a"] * 6, (1,))
    assert "ONE CLASS" in found.table()
    others = randn(6, 3, seed=1)
    searched = evaluate(randn(3, 3), ["a"] * 3, (1,), others, ["a", "b"] * 3, clustering=False)
    assert "ONE CLASS" not in searched.table()


def test_nmi_does_not_depend_on_the_order_of_rows():
    x, y = randn(12, 4), np.repeat(np.arange(4), 3)
    found = set()
    for seed in range(12):
        order = np.random.default_rng(seed).permutation(12)
        found.add(evaluate(x[order], y[order], (1,)).nmi)
    assert len(found) == 1


def test_one_neighbour_of_a_search_in_itself_is_another_row():
    x = randn(30, 6)
    # No row is its own neighbour: labels pair each row with a far one only.
    far = oracle(x, [0] * 30, (1,))
    assert far[0][1] == 1
    y = torch.arange(30) // 2
    found = evaluate(x, y, ks=[1], clustering=False)
    assert found.recall_at_k[1] < 0.5


def test_faiss_missing_gives_the_same_numbers(monkeypatch):
    x, y = randn(600, 10), torch.arange(600) % 37
    x[500:] = x[:100]
    with_faiss, clustered = evaluate(x, y, clustering=False), evaluate(x, y)
    assert with_faiss.backend == "faiss"
    monkeypatch.setitem(sys.modules, "faiss", None)
    without = evaluate(x, y, clustering=False)
    assert without.backend == "torch"
    assert str(replace(without, backend="faiss")) == str(with_faiss)  # NaN is not NaN
    assert evaluate(x, y).nmi == pytest.approx(clustered.nmi, abs=0.01)  # rounding at borders
    with pytest.raises(MissingDependencyError, match="faiss is not installed"):
        evaluate(x, y, backend="faiss")


def test_labels_of_any_kind_give_the_same_numbers():
    x, y = randn(60, 5), np.arange(60) % 6
    expected = evaluate(x, y)
    for other in (
        y.astype(np.uint8),
        (y * 10**6 + 7).tolist(),
        torch.as_tensor(-y),
        [f"class {i}" for i in y],
        y.astype(np.float64),
    ):
        found = evaluate(x, other)
        assert found.recall_at_k == expected.recall_at_k
        assert found.map_at_r == expected.map_at_r


def test_large_neighbouring_labels_stay_distinct():
    # float32 cannot tell 2^24 from 2^24 + 1
    y = [2**24, 2**24 + 1, 2**24, 2**24 + 1]
    x = torch.eye(2)[[0, 0, 1, 1]]
    assert evaluate(x, y, ks=[1], clustering=False).recall_at_k[1] == 0


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (np.array([5, 9], np.int32), np.array([9, 5], np.uint64)),
        (torch.tensor([0, 1]), [True, False]),
        (["a", "bcd"], np.array(["bcd", "a"], object)),
        ([2**62 + 1, 2**62], np.array([2**62, 2**62 + 1], np.uint64)),
    ],
)
def test_query_and_gallery_labels_are_matched_by_value_not_by_position(ours, theirs):
    x = torch.eye(2)
    found = evaluate(x, ours, (1,), gallery=x.flip(0), gallery_labels=theirs, clustering=False)
    assert found.recall_at_k[1] == 1


def test_strings_never_match_numbers():
    x = torch.eye(2)
    with pytest.raises(InputError, match="of one kind"):
        evaluate(x, ["0", "1"], (1,), x, [0, 1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_floating_types_and_gradients_are_accepted(dtype):
    x = randn(40, 6).to(dtype).requires_grad_()
    y = torch.arange(40) % 4
    as_numpy = evaluate(x.detach().double().numpy(), y.numpy(), clustering=False)
    assert str(evaluate(x, y, clustering=False)) == str(as_numpy)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**20), scale=st.floats(1e-6, 1e6))
def test_order_of_samples_names_of_labels_and_scale_do_not_matter(seed, scale):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(50, 4, generator=draw, dtype=torch.float64)
    y = torch.randint(0, 5, (50,), generator=draw)
    before = evaluate(x, y, (1, 2, 8), clustering=False)
    order, names = torch.randperm(50, generator=draw), torch.randperm(5, generator=draw)
    after = evaluate(scale * x[order], names[y[order]], (1, 2, 8), clustering=False)
    assert after.recall_at_k == pytest.approx(before.recall_at_k)
    assert after.map_at_r == pytest.approx(before.map_at_r)


def test_nmi_is_one_for_separate_classes_and_read_against_chance():
    y = np.repeat(np.arange(3), 20)
    found = evaluate(torch.eye(3)[y] + 0.001 * randn(60, 3), y)
    assert found.nmi == pytest.approx(1)
    few = evaluate(randn(200, 8), np.arange(200) // 4)
    assert few.nmi > 0.5
    assert few.nmi == pytest.approx(few.nmi_chance, abs=0.05)
    assert abs(few.ami) < 0.2


def test_clusters_are_of_the_queries_unless_asked_otherwise():
    y = np.repeat(np.arange(3), 20)
    x = torch.eye(3)[y] + 0.001 * randn(60, 3)
    noise = randn(60, 3, seed=1)
    args = {"gallery": noise, "gallery_labels": y}
    queries, both = evaluate(x, y, **args), evaluate(x, y, **args, cluster="query+gallery")
    assert queries.nmi == pytest.approx(1)
    assert both.nmi < 0.9
    assert (queries.clustered, both.clustered) == ("query", "query+gallery")
    assert both.as_dict()["clustered"] == "query+gallery"
    assert "clusters of queries and gallery together" in both.table()
    assert "together" not in queries.table()


def test_clusters_of_both_are_those_of_all_rows_in_one_set():
    # Half of the classes are in the gallery only: as many clusters as classes of both together.
    y = np.repeat(np.arange(6), 20)
    x = torch.eye(6)[y] + 0.3 * randn(120, 6)
    rows = np.arange(120)
    ask = (rows % 2 == 0) & (y < 3)
    found = evaluate(
        x[ask], y[ask], (1,), x[~ask], y[~ask], cluster="query+gallery", backend="torch"
    )
    order = np.concatenate([rows[ask], rows[~ask]])
    alone = evaluate(x[order], y[order], (1,), cluster="query+gallery", backend="torch")
    assert (found.nmi, found.ami) == (alone.nmi, alone.ami)
    assert alone.clustered == "query"
    left_out = evaluate(x[ask], y[ask], (1,), x[~ask], y[~ask], clustering=False)
    assert left_out.clustered == ""


def test_clustering_can_be_left_out_and_repeats_itself():
    x, y = randn(80, 4), np.arange(80) % 8
    assert math.isnan(evaluate(x, y, clustering=False).nmi)
    assert evaluate(x, y, seed=3) == evaluate(x, y, seed=3)


def test_as_dict_is_json_and_the_table_names_every_number():
    found = evaluate(randn(40, 4), torch.arange(40) % 5, ks=(1, 10), clustering=False)
    values = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert values["recall_at_1"] == found.recall_at_k[1]
    assert values["recall_at_10"] == found.recall_at_k[10]
    assert values["nmi"] is None
    assert values["num_zero_rows"] == 0
    assert "Recall@10" in found.table()
    assert "NMI" not in found.table()
    assert "NMI" in evaluate(randn(40, 4), torch.arange(40) % 5).table()


def test_it_is_reached_from_the_package():
    assert bspml.evaluate is evaluate


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embeddings": torch.zeros(3)}, r"`embeddings` must be \(N, D\)"),
        ({"embeddings": torch.zeros(0, 3), "labels": []}, "`embeddings` must have at least one"),
        ({"labels": [0, 1]}, r"`labels` must have one entry per embedding, \(40,\); got \(2,\)"),
        ({"ks": ()}, "`ks` must name at least one"),
        ({"ks": (0, 1)}, "`ks` must be a whole number of at least 1; got 0"),
        ({"ks": (1.5,)}, "`ks` must be a whole number"),
        ({"gallery": torch.zeros(4, 4)}, "`gallery` and `gallery_labels` come together"),
        ({"gallery_labels": [1]}, "`gallery` and `gallery_labels` come together"),
        ({"gallery": torch.ones(2, 9), "gallery_labels": [0, 1]}, "queries' 4 columns"),
        ({"backend": "annoy"}, "`backend` must be one of auto, faiss, torch"),
        ({"cluster": "all"}, "`cluster` must be one of"),
        ({"seed": -1}, "`seed`"),
        ({"block_size": 0}, "`block_size`"),
    ],
)
def test_wrong_input_is_refused(change, message):
    given_ = {"embeddings": randn(40, 4), "labels": torch.arange(40) % 4} | change
    with pytest.raises(InputError, match=message):
        evaluate(**given_)


@pytest.mark.parametrize("backend", ["faiss", "torch"])
def test_k_beyond_what_a_gpu_index_can_do_is_searched_all_the_same(backend):
    rng = np.random.default_rng(0)
    labels = np.arange(2200) % 1100  # one match each
    rows = rng.normal(size=(2200, 4))
    found = evaluate(rows, labels, ks=(1, 2100, 2199), backend=backend, clustering=False)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    mate = similarity[np.arange(2200), (np.arange(2200) + 1100) % 2200]
    rank = (similarity > mate[:, None]).sum(1)
    assert found.recall_at_k == {k: float((rank < k).mean()) for k in (1, 2100, 2199)}
