"""`evaluate_sets` against a loop over query sets, `evaluate`, pml, and hand-worked cases."""

import json
import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, strategies as st
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

from bspml.errors import InputError
from bspml.evaluation import evaluate, evaluate_sets
from bspml.tensors.unit_rows import grid_unit_rows
from helpers.draws import randn

TOLERANCE = 1e-12


def averages(frames, set_ids, unit):
    rows = frames.double()
    if unit:
        rows = rows / rows.norm(dim=1, keepdim=True)
    return {s: torch.stack([r for r, i in zip(rows, set_ids, strict=True) if i == s]).mean(0)
            for s in sorted(set(set_ids))}  # fmt: skip


def oracle(queries, gallery, ks, alone, unit=False):
    """Loop over queries and ranks, as the evaluation of MARS is written, junk passed over."""
    frames, labels, ids, cameras = queries
    g_frames, g_labels, g_ids, g_cameras = gallery
    q_mean, g_mean = averages(frames, ids, unit), averages(g_frames, g_ids, unit)
    label = dict(zip(ids, labels, strict=True))
    g_label = dict(zip(g_ids, g_labels, strict=True))
    camera = dict(zip(ids, cameras, strict=True)) if cameras else None
    g_camera = dict(zip(g_ids, g_cameras, strict=True)) if cameras else None
    cmc, ap, trapezoid, excluded = {k: [] for k in ks}, [], [], 0
    for q, mean in q_mean.items():
        vector = np.round(grid_unit_rows(mean[None])[0].double().numpy() * 2**24)
        names = list(g_mean)
        rows = np.round(grid_unit_rows(torch.stack(list(g_mean.values()))).double().numpy() * 2**24)
        ranked = [names[i] for i in np.argsort(-(rows @ vector), kind="stable")]
        ngood = sum(
            g_label[g] == label[q]
            and not (alone and g == q)
            and not (camera and g_camera[g] == camera[q])
            for g in ranked
        )
        if ngood == 0:
            excluded += 1
            continue
        seen, good, first, precisions, area, old = 0, 0, None, [], 0.0, 1.0
        for g in ranked:
            same = g_label[g] == label[q]
            if (alone and g == q) or (camera and same and g_camera[g] == camera[q]):
                continue
            seen += 1
            good += same
            precision = good / seen
            if same:
                first = seen if first is None else first
                precisions.append(precision)
                area += (old + precision) / 2 / ngood
            old = precision
        for k in ks:
            cmc[k].append(first <= k)
        ap.append(sum(precisions) / ngood)
        trapezoid.append(area)
    return {k: np.mean(v) for k, v in cmc.items()}, np.mean(ap), np.mean(trapezoid), excluded


def check(found, expected):
    cmc, ap, trapezoid, excluded = expected
    assert found.cmc_at_k == pytest.approx(cmc, abs=TOLERANCE)
    assert found.mean_average_precision == pytest.approx(ap, abs=TOLERANCE)
    assert found.map_trapezoid == pytest.approx(trapezoid, abs=TOLERANCE)
    assert found.num_excluded == excluded


def videos(draw, sets, classes, cameras, width=3):
    """Frames of some sets in mixed order: labels and cameras belong to sets."""
    of_set = torch.randint(0, sets, (3 * sets,), generator=draw)
    of_set = torch.cat([torch.arange(sets), of_set])[torch.randperm(4 * sets, generator=draw)]
    label = torch.randint(0, classes, (sets,), generator=draw)
    label[1] = label[0]
    camera = torch.randint(0, cameras, (sets,), generator=draw)
    camera[:2] = torch.tensor([0, 1])
    frames = torch.randint(-2, 3, (len(of_set), width), generator=draw).float()
    frames[:, 0] += 3  # no average of 0, many ties
    return frames, label[of_set].tolist(), of_set.tolist(), camera[of_set].tolist()


@given(
    seed=st.integers(0, 2**20),
    sets=st.integers(2, 12),
    classes=st.integers(1, 4),
    with_cameras=st.booleans(),
    unit=st.booleans(),
)
def test_it_is_the_loop_over_queries_and_ranks(seed, sets, classes, with_cameras, unit):
    draw = torch.Generator().manual_seed(seed)
    frames, labels, ids, cameras = videos(draw, sets, classes, 3)
    cameras = cameras if with_cameras else None
    found = evaluate_sets(frames, labels, ids, cameras, ks=(1,), normalize_frames=unit)
    side = (frames, labels, ids, cameras)
    check(found, oracle(side, side, (1,), True, unit))
    assert found.num_queries + found.num_excluded == len(set(ids)) == found.num_gallery


@given(seed=st.integers(0, 2**20), with_cameras=st.booleans())
def test_a_gallery_is_searched_without_the_same_camera_s_sets_of_the_class(seed, with_cameras):
    draw = torch.Generator().manual_seed(seed)
    queries, gallery = videos(draw, 6, 3, 3), videos(draw, 15, 4, 3)
    if not with_cameras:
        queries, gallery = (*queries[:3], None), (*gallery[:3], None)
    ks = (1, 5, 15)
    expected = oracle(queries, gallery, ks, alone=False)
    if expected[3] == 6:
        return
    f, y, i, c = gallery
    found = evaluate_sets(
        *queries, ks=ks, gallery=f, gallery_labels=y, gallery_set_ids=i, gallery_cameras=c
    )
    check(found, expected)
    values = list(found.cmc_at_k.values())
    assert values == sorted(values)
    assert values[-1] == 1


def test_sets_of_one_frame_are_plain_retrieval():
    x, y = randn(60, 5), torch.arange(60) % 7
    sets = evaluate_sets(x, y, torch.arange(60), ks=(1, 2, 8))
    plain = evaluate(x, y, ks=(1, 2, 8), clustering=False)
    assert sets.cmc_at_k == plain.recall_at_k


@pytest.mark.parametrize("with_gallery", [False, True])
def test_cmc_1_and_map_are_pml_s(with_gallery):
    x, y = torch.nn.functional.normalize(randn(60, 5)), torch.arange(60) % 7
    args, theirs = {}, {}
    if with_gallery:
        g, gy = torch.nn.functional.normalize(randn(90, 5, seed=1)), torch.arange(90) % 9
        args = {"gallery": g, "gallery_labels": gy, "gallery_set_ids": torch.arange(90)}
        theirs = {"reference": g, "reference_labels": gy}
    calculator = AccuracyCalculator(
        include=("precision_at_1", "mean_average_precision"), device=torch.device("cpu")
    )
    expected = calculator.get_accuracy(x, y, **theirs)
    found = evaluate_sets(x, y, torch.arange(60), ks=(1,), **args)
    assert found.cmc_at_k[1] == pytest.approx(expected["precision_at_1"])
    assert found.mean_average_precision == pytest.approx(expected["mean_average_precision"])


def test_two_queries_by_hand():
    # Sets by angle: 0 (a), 10 (b), 25 (a), 45 (b).  Matches at ranks: set 0: 2 of 3; set 10: 3
    # (25 is nearer than 45); set 25: 3 (10 and 45 are nearer); set 45: 2.
    angles = torch.deg2rad(torch.tensor([0.0, 10.0, 25.0, 45.0]))
    x = torch.stack([angles.cos(), angles.sin()], 1)
    found = evaluate_sets(x, list("abab"), range(4), ks=(1, 2, 3))
    assert found.cmc_at_k == {1: 0.0, 2: 0.5, 3: 1.0}
    assert found.mean_average_precision == pytest.approx((1 / 2 + 1 / 3) / 2)
    # one step earlier the precision was 0
    assert found.map_trapezoid == pytest.approx((1 / 4 + 1 / 6) / 2)


def test_frames_are_averaged_before_the_cosine():
    # The mean of (4, 0) and (0, 1) points to (4, 1); of unit frames to (1, 1).
    frames = torch.tensor([[4.0, 0.0], [0.0, 1.0], [1.0, 0.3], [1.0, 0.9]])
    args = (frames, list("aaba"), [7, 7, 8, 9])
    assert evaluate_sets(*args, ks=(1,)).cmc_at_k[1] == 0
    assert evaluate_sets(*args, ks=(1,), normalize_frames=True).cmc_at_k[1] == 1


def test_the_same_camera_s_sets_of_the_class_take_no_rank_but_other_classes_do():
    x = torch.eye(4)[[0, 0, 0, 0]] + torch.tensor([[0.0], [0.01], [0.02], [0.1]]) * torch.eye(4)[1]
    labels, cameras = [5, 5, 6, 5], ["c1", "c1", "c1", "c2"]
    # Query 0: set 1 is ignored, set 2 (another class, same camera) is rank 1, set 3 rank 2.
    found = evaluate_sets(x[:1], [5], [0], ["c1"], (1, 2), x[1:], labels[1:], range(3), cameras[1:])
    assert found.cmc_at_k == {1: 0.0, 2: 1.0}
    assert found.num_ignored == 1
    free = evaluate_sets(x[:1], [5], [0], None, (1,), x[1:], labels[1:], range(3))
    assert free.cmc_at_k[1] == 1


def test_names_order_and_kind_of_ids_do_not_matter():
    draw = torch.Generator().manual_seed(4)
    frames, labels, ids, cameras = videos(draw, 9, 3, 3)
    frames = frames + 0.01 * randn(*frames.shape)  # ties go by the order of the ids
    before = evaluate_sets(frames, labels, ids, cameras, ks=(1, 5))
    order = torch.randperm(len(ids), generator=draw)
    renamed = [f"tracklet {(7 * i) % 9}" for i in ids]
    after = evaluate_sets(
        frames[order],
        [f"person {labels[i]}" for i in order],
        [renamed[i] for i in order],
        [str(cameras[i]) for i in order],
        ks=(1, 5),
    )
    assert after.cmc_at_k == before.cmc_at_k
    assert after.mean_average_precision == pytest.approx(before.mean_average_precision)


def test_lone_queries_are_left_out_and_counted_and_zero_sets_named():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.0, 1.0]])
    with pytest.warns(UserWarning, match=r"the frames of query set t0 average to 0 \(1 such"):
        found = evaluate_sets(x, list("aaaab"), ["t0", "t0", "t1", "t2", "t3"], ks=(1,))
    assert (found.num_queries, found.num_excluded, found.zero_sets) == (3, 1, (0,))


def test_as_dict_is_json_and_the_table_names_every_number():
    x, y = randn(30, 4), torch.arange(30) % 5
    found = evaluate_sets(x, y, torch.arange(30), ks=(1, 5))
    values = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert values["cmc_at_5"] == found.cmc_at_k[5]
    assert values["mean_average_precision"] == found.mean_average_precision
    assert values["num_zero_sets"] == 0
    for name in ("CMC@1 ", "CMC@5", "mAP", "30 query sets"):
        assert name in found.table()


FRAMES = {"embeddings": torch.eye(4), "labels": list("aabb"), "set_ids": [0, 1, 2, 3], "ks": (1,)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"set_ids": [0, 0, 1, 1], "labels": list("abbb")}, "`labels` must be one for all frames of"
         r" a set; set 0 has a and b \(frame 1\)"),
        ({"set_ids": [0, 0, 1, 1], "cameras": [1, 2, 1, 1]}, "`cameras` must be one for all"),
        ({"set_ids": [0, 1]}, r"`set_ids` must have one entry per"),
        ({"embeddings": torch.full((4, 2), math.nan)}, "`embeddings` must be finite"),
        ({"embeddings": torch.zeros(0, 2), "labels": [], "set_ids": []}, "at least one row"),
        ({"labels": list("abcd")}, "none of the 4 query sets has a match"),
        ({"ks": (4,)}, r"4 nearest, but the gallery has 3 sets \(the query itself not counted\)"),
        ({"ks": ()}, "`ks` must name at least one"),
        ({"gallery_labels": [1]}, "`gallery_labels` comes with `gallery`"),
        ({"gallery": torch.eye(3), "gallery_labels": list("abc"), "gallery_set_ids": [0, 1, 2]},
         "`gallery` must have the queries' 4 columns; got 3"),
        ({"gallery": torch.eye(4), "gallery_labels": list("abcd"), "gallery_set_ids": range(4),
          "cameras": [0] * 4}, "`cameras` and `gallery_cameras` come together"),
        ({"gallery": torch.eye(4), "gallery_labels": range(4), "gallery_set_ids": range(4)},
         "`labels` and `gallery_labels` must be of one kind"),
        ({"gallery": torch.eye(4), "gallery_labels": list("abcd"), "gallery_set_ids": [0, 1, 2]},
         "`gallery_set_ids` must have one entry per"),
    ],
)  # fmt: skip
def test_wrong_input_is_refused(change, message):
    with pytest.raises(InputError, match=message):
        evaluate_sets(**{**FRAMES, **change})


def test_sets_behave_as_rows_do_where_each_is_one_frame():
    x, y = randn(40, 5), np.arange(40) % 6
    ids, whole = np.arange(40), {"ks": (1, 3)}
    gallery = {"gallery": x, "gallery_labels": y}
    options = {"query_in_gallery": True, "ignore": (5,), "clustering": False}
    expected = evaluate(x[:20], y[:20], **whole, **gallery, **options)
    del options["clustering"]
    found = evaluate_sets(
        x[:20], y[:20], ids[:20], **whole, **gallery, gallery_set_ids=ids[::-1].copy(), **options
    )
    assert found.cmc_at_k == expected.recall_at_k
    assert found.num_ignored == 0
    assert found.num_ignored_frames == expected.num_ignored == 9
    with pytest.warns(UserWarning, match=r"20 of 20 query sets are in `gallery` too \(sets 0 as 0"):
        copies = evaluate_sets(
            x[:20], y[:20], ids[:20], **whole, **gallery, gallery_set_ids=ids
        ).num_copies
    assert copies == 20
    shifted = np.where(ids[:20] == 2, 3, y[:20])
    with pytest.raises(InputError, match="no copy under the same label of the query sets 2"):
        evaluate_sets(
            *(x[:20], shifted, ids[:20]), **whole, **gallery, gallery_set_ids=ids, **options
        )


def test_repeated_sets_and_rows_of_another_order_are_told():
    x, y = randn(10, 4), np.arange(10) // 2
    again = np.append(np.arange(10), [0, 1])
    ids = np.arange(12)
    with pytest.warns(UserWarning, match=r"2 of 12 sets .* \(sets 10 of 0 and 11 of 1\)"):
        evaluate_sets(x[again], y[again], ids, ks=1)
    with pytest.warns(UserWarning, match="10, 20 are left out: the gallery has 9 sets"):
        assert list(evaluate_sets(x, y, ids[:10]).cmc_at_k) == [1, 5]
    frames, labels = pd.DataFrame(x.numpy()), pd.Series(y)
    with pytest.raises(InputError, match=r"`set_ids`.* indices differ"):
        evaluate_sets(frames, labels, pd.Series(ids[:10])[::-1], ks=1)
    with pytest.raises(InputError, match=r"`gallery_labels`.* indices differ"):
        evaluate_sets(x, y, ids[:10], None, 1, frames, labels[::-1], pd.Series(ids[:10]))


def test_frames_of_ignored_labels_leave_their_sets():
    x = torch.tensor([[1.0, 0], [1, 0.2], [0, 9], [0, 1], [0.1, 1], [1, 0.1]])
    found = evaluate_sets(x, [0, 0, -1, 1, 1, 0], [0, 0, 0, 1, 2, 3], ks=1, ignore=(-1,))
    assert found.cmc_at_k[1] == 1
    assert (found.num_queries, found.num_frames, found.num_ignored_frames) == (4, 5, 1)
    with pytest.raises(InputError, match=r"set 1 has 1 and 0 \(frame 5\)"):
        evaluate_sets(x, [0, 0, -1, 1, 1, 0], [0, 0, 0, 1, 2, 1], ks=1, ignore=(-1,))


def test_a_frame_that_its_set_has_twice_is_named():
    frames = randn(8, 3)
    sets, labels = torch.arange(8) // 2, torch.arange(8) // 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate_sets(frames, labels, sets, ks=(1,))
        # In a set of nothing else the average is the same; in two sets a frame is no repeat.
        alone = torch.cat([frames, frames[:1], frames[:1]])
        more = torch.tensor([4, 4])
        evaluate_sets(alone, torch.cat([labels, more]), torch.cat([sets, more]), ks=(1,))
    rows = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 3, 0])
    named = r"`embeddings`: 2 of 10 frames .* of their set \(frame 8 of 3, set 1\), and count again"
    with pytest.warns(UserWarning, match=named):
        evaluate_sets(frames[rows], labels[rows], sets[rows], ks=(1,))
    with pytest.warns(UserWarning, match="`gallery`: 1 of 9 frames"):
        evaluate_sets(
            frames[:4] + 1, labels[:4], sets[:4], None, (1,),
            frames[rows[:9]], labels[rows[:9]], sets[rows[:9]],
        )  # fmt: skip
