"""`bspml evaluate` of files: K, galleries, labels."""

import json

import numpy as np
import pandas as pd
import pytest

import bspml
from bspml.files.tables import read_embeddings, read_labels
from helpers.commands import run


def test_evaluate_prints_what_the_function_computes(capsys, points):
    code, out, _ = run(
        capsys, "evaluate", points / "e.npy", points / "y.csv", "--ks", "1,2", "--json"
    )
    found = json.loads(out)
    same = bspml.evaluate(
        read_embeddings(points / "e.npy"), read_labels(points / "y.csv"), ks=[1, 2]
    )
    assert code == 0
    assert found.pop("versions")["bspml"] == bspml.__version__
    assert found == json.loads(json.dumps(same.as_dict()))
    _, table, _ = run(capsys, "evaluate", points / "e.npy", points / "y.csv", "--ks", "1,2")
    assert "Recall@1" in table
    assert f"searched by:    {same.backend}\nversions:       bspml {bspml.__version__}, " in table
    assert "backbone" not in table  # nobody knows what made these embeddings


def test_evaluate_refuses_k_beyond_the_gallery(capsys, points):
    code, _, err = run(capsys, "evaluate", points / "e.npy", points / "y.csv", "--ks", "64")
    assert code == 2
    assert err.startswith("bspml: `--ks` asks for the 64 nearest")
    assert err.endswith("Use --ks up to 29.\n")
    code, _, err = run(capsys, "evaluate", points / "e.npy", points / "y.csv", "--ks", "0")
    assert (code, "`--ks` must be" in err) == (2, True)


def test_evaluate_against_a_gallery(capsys, points):
    files = [points / "e.npy", points / "y.csv"]
    code, out, _ = run(
        capsys,
        "evaluate",
        *files,
        "--gallery",
        files[0],
        "--gallery-labels",
        files[1],
        "--ks",
        "1",
        "--json",
    )
    assert code == 0
    assert json.loads(out)["recall_at_1"] == 1.0  # nothing is removed: each finds itself
    code, _, err = run(capsys, "evaluate", *files, "--gallery", files[0])
    assert (code, "--gallery-labels is missing" in err) == (2, True)
    code, _, err = run(capsys, "evaluate", *files, "--gallery-labels", files[1])
    assert (code, "are the labels of --gallery" in err) == (2, True)


def test_evaluate_finds_the_labels_inside_the_file(capsys, points):
    embeddings, labels = read_embeddings(points / "e.npy"), read_labels(points / "y.csv")
    np.savez(points / "both.npz", embeddings=embeddings, labels=labels)
    apart = run(capsys, "evaluate", points / "e.npy", points / "y.csv", "--ks", "1")
    assert run(capsys, "evaluate", points / "both.npz", "--ks", "1") == apart
    gallery = ["--gallery", points / "both.npz"]
    code, out, _ = run(capsys, "evaluate", points / "both.npz", *gallery, "--ks", "1", "--json")
    assert (code, json.loads(out)["recall_at_1"]) == (0, 1.0)


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet", "labels.csv"])
def test_evaluate_measures_the_splits_that_a_training_would(capsys, points, kind):
    x, y = read_embeddings(points / "e.npy"), read_labels(points / "y.csv")
    rng = np.random.default_rng(0)
    files = [points / f"e.{kind}"] if kind != "labels.csv" else [points / "e.npy", points / kind]

    def written(splits):
        table = pd.DataFrame(x, columns=["d0", "d1", "d2"]).assign(label=y, split=splits)
        if kind == "npz":
            np.savez(files[0], embeddings=x, labels=y, splits=splits)
        elif kind == "parquet":
            table.to_parquet(files[0])
        else:
            table[["label", "split"] if len(files) == 2 else [*table]].to_csv(
                files[-1], index=False
            )
        code, out, err = run(capsys, "evaluate", *files, "--ks", "1,2", "--json")
        return json.loads(out) if code == 0 else err

    splits = rng.permutation(["train"] * 12 + ["Test"] * 18)  # in whatever case
    found, test = written(splits), splits == "Test"
    assert found["measured"] == "18 rows of test, not the 12 of train"
    alone = json.loads(json.dumps(bspml.evaluate(x[test], y[test], ks=[1, 2]).as_dict()))
    assert found.items() >= alone.items()
    splits = rng.permutation(["train"] * 9 + ["query"] * 9 + ["gallery"] * 12)
    found, query, gallery = written(splits), splits == "query", splits == "gallery"
    assert found["measured"] == "9 rows of query in 12 of gallery, not the 9 of train"
    searched = {"gallery": x[gallery], "gallery_labels": y[gallery]}
    alone = bspml.evaluate(x[query], y[query], ks=[1, 2], **searched).as_dict()
    assert found.items() >= json.loads(json.dumps(alone)).items()
    assert written(["test"] * 30)["measured"] == "30 rows of test"
    assert "its rows are of train; those of query or test would be" in written(["train"] * 30)
    splits = rng.permutation(["validation"] * 6 + ["Val", "", ""] * 2 + ["test"] * 18)
    found, test = written(splits), splits == "test"
    left = "2 of val and 6 of validation and 4 of (no split)"
    assert found["measured"] == f"18 rows of test, not the {left}"
    alone = json.loads(json.dumps(bspml.evaluate(x[test], y[test], ks=[1, 2]).as_dict()))
    assert found.items() >= alone.items()
    assert "its rows are of val; those of query or test would be" in written(["val"] * 30)
    assert "the split must be one of train, test" in written(["tset"] * 30)
    assert "those of gallery would be" in written(["train", "query"] * 15)


def test_the_gallery_of_a_file_is_its_own_split(capsys, points):
    x, y = read_embeddings(points / "e.npy"), read_labels(points / "y.csv")
    np.savez(points / "g.npz", embeddings=x, labels=y, split=["train", "gallery", "query"] * 10)
    files = [points / "e.npy", points / "y.csv", "--gallery", points / "g.npz"]
    out = run(capsys, "evaluate", *files, "--ks", "1", "--json")[1]
    expected = bspml.evaluate(x, y, ks=[1], gallery=x[1::3], gallery_labels=y[1::3]).as_dict()
    assert json.loads(out).items() >= json.loads(json.dumps(expected)).items()
    left = "10 of train and 10 of query"
    assert json.loads(out)["measured"] == f"30 rows in 10 of gallery, not the {left}"
    np.savez(points / "q.npz", embeddings=x, labels=y, split=["test", "train", "test"] * 10)
    for other in (points / "g.npz", points / "e.npy"):
        beside = ["--gallery-labels", points / "y.csv"] * (other.suffix == ".npy")
        out = run(capsys, "evaluate", points / "q.npz", "--gallery", other, *beside, "--json")[1]
        place, of = ("10 of gallery", f" and {left}") if not beside else ("30 of the gallery", "")
        assert json.loads(out)["measured"] == f"20 rows of test in {place}, not the 10 of train{of}"


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_columns_of_two_files_fit_together_by_their_names(capsys, tmp_path, ending):
    rng, y = np.random.default_rng(0), np.repeat(list("abcd"), 6)
    x = rng.standard_normal((4, 12))[np.repeat(np.arange(4), 6)] + rng.standard_normal((24, 12))
    frame = pd.DataFrame(x, columns=[f"d{i}" for i in range(12)]).assign(label=y)
    by_text = frame[sorted(frame.columns)]  # d0, d1, d10, d11, d2, ...
    for name, table in (("q", frame.iloc[::2]), ("g", by_text.iloc[1::2])):
        file = tmp_path / f"{name}.{ending}"
        if ending == "parquet":
            table.to_parquet(file)
        else:
            table.to_csv(file, index=False, sep={"csv": ",", "tsv": "\t"}[ending])
    files = [tmp_path / f"q.{ending}", "--gallery", tmp_path / f"g.{ending}"]
    out = run(capsys, "evaluate", *files, "--ks", "1", "--json")[1]
    expected = bspml.evaluate(x[::2], y[::2], ks=[1], gallery=x[1::2], gallery_labels=y[1::2])
    assert json.loads(out)["map_at_r"] == pytest.approx(expected.map_at_r)


def test_evaluate_says_what_does_not_match(capsys, points):
    files = [points / "e.npy", points / "y.csv", "--ks", "1"]
    gallery = ["--gallery", files[0], "--gallery-labels", files[1]]
    code, alone, err = run(capsys, "evaluate", *files)
    assert (code, err) == (0, "")
    code, _, err = run(capsys, "evaluate", *files, *gallery)
    assert (code, "30 of 30 query rows are in `gallery` too" in err) == (0, True)
    code, out, err = run(capsys, "evaluate", *files, *gallery, "--query-in-gallery")
    assert (code, err, out.splitlines()[0]) == (0, "", alone.splitlines()[0])
    code, _, err = run(capsys, "evaluate", *files, "--query-in-gallery")
    assert (code, "--query-in-gallery is about --gallery" in err) == (2, True)


@pytest.mark.parametrize(
    ("text", "left_out"),
    [
        ("b,c", 3),
        ('a,"b,c"', 7),
        (" d", 2),
        ("a, d", 6),
        ("' d", None),
        (" a ,'\"q", 5),
        ("b", None),
        ("", None),
        ("a\nb", None),
    ],
)
def test_a_label_with_a_comma_or_a_space_can_be_left_out(capsys, tmp_path, text, left_out):
    labels = np.repeat(["a", "b,c", " d", "'\"q", "e"], [4, 3, 2, 1, 6])
    x = np.random.default_rng(0).normal(size=(16, 4))
    np.savez(tmp_path / "x.npz", embeddings=x, labels=labels)
    code, out, err = run(
        capsys, "evaluate", tmp_path / "x.npz", "--ks", "1", "--ignore", text, "--json"
    )
    if left_out is None:
        assert (code, "a label that no row has" in err) == (2, True)
    else:
        assert json.loads(out)["num_ignored"] == left_out


def test_evaluate_leaves_labels_out_and_calls_one_class_by_its_name(capsys, tmp_path):
    x = np.random.default_rng(0).normal(size=(20, 4))
    np.save(tmp_path / "e.npy", x)
    np.save(tmp_path / "y.npy", np.repeat([-1, 5], 10))
    files = [tmp_path / "e.npy", tmp_path / "y.npy"]
    code, out, err = run(capsys, "evaluate", *files, "--ignore", "-1")
    assert code == 0
    assert "10 queries" in out
    assert "10 rows left out (ignored labels)" in out
    assert "ONE CLASS" in out
    assert "ONE CLASS: whatever is found is right, so 100 % means nothing" in err
    assert "16, 32 are left out" in err
    code, _, err = run(capsys, "evaluate", *files, "--ignore", "7")
    assert (code, "`--ignore` names 7, a label that no row has" in err) == (2, True)
    for option, value, message in (
        ("--ignore", "cat", "--ignore must be whole numbers"),
        ("--ignore", "1_0", "--ignore must be whole numbers"),
        ("--ks", "1,", "--ks must be whole numbers"),
        ("--ks", "\u0661", "--ks must be whole numbers"),
        ("--method", "bspml", "--method is of a run; "),
    ):
        code, _, err = run(capsys, "evaluate", *files, option, value)
        assert (code, message in err) == (2, True)


@pytest.mark.parametrize("parts", [("test",), ("query", "gallery")])
def test_rows_that_training_saw_are_named_beside_the_metrics_without_them(
    capsys, tmp_path, monkeypatch, parts
):
    monkeypatch.chdir(tmp_path)
    rng, centres = np.random.default_rng(0), np.eye(10)
    y = np.repeat(np.arange(10), 16)
    x = (centres[y] + 0.4 * rng.standard_normal((160, 10))).astype("f4")
    splits = np.where(y < 6, "train", np.where(np.arange(160) % 2, parts[0], parts[-1]))
    new = np.flatnonzero(splits == parts[0])
    seen = np.r_[new[[3, 7]], np.flatnonzero(splits == parts[-1])[-1:]]
    x[seen] = x[[0, 17, 40]]  # of other classes, which spoils their neighbours
    np.savez("f.npz", embeddings=x, labels=y, splits=splits)
    ours, theirs = splits == parts[0], splits == parts[-1]
    rest = np.ones(160, bool)
    rest[seen] = False

    def metrics(some):
        side = [ours & some, theirs & some]
        searched = {"gallery": x[side[1]], "gallery_labels": y[side[1]]} if len(parts) > 1 else {}
        return bspml.evaluate(x[side[0]], y[side[0]], ks=(1,), clustering=False, **searched)

    before, after = metrics(rest | True), metrics(rest)
    assert before.recall_at_k[1] != after.recall_at_k[1]
    recall = f"{100 * after.recall_at_k[1]:.2f} % (with them {100 * before.recall_at_k[1]:.2f} %)"
    told = f"without the 3 samples that training saw: Recall@1 {recall}, MAP@R "
    code, out, err = run(capsys, "evaluate", "f.npz", "--ks", "1", "--json")
    assert code == 0
    assert json.loads(out)["trained_on"].startswith(told)
    assert f"{parts[0]}/3 is train/0, {parts[0]}/7 is train/17" in err
    assert ("gallery are in train, too" in err or "gallery is in train, too" in err) == (
        len(parts) > 1
    )
    quick = ["training.methods=[multi-similarity]", "training.epochs=1", "network.name=mlp"]
    quick += ["sampler.classes_per_batch=4", "evaluation.ks=[1]", "data.validation_classes=0"]
    made = run(capsys, "train", "data.name=features", "data.root=f.npz", *quick, "-o", "run")
    assert made[0] == 0
    code, out, err = run(capsys, "evaluate", "run", "--json")
    assert code == 0
    assert "without the 3 samples that training saw" in json.loads(out)["trained_on"]
    assert "is train/0" in err
    assert "is train/40" in err


def test_a_file_of_what_a_network_was_trained_on_says_so(tmp_path, capsys):
    x, y = np.eye(8).repeat(3, 0), np.arange(8).repeat(3)
    for trained in (True, False):
        more = {"trained_on": np.array(True)} if trained else {}
        np.savez(tmp_path / "e.npz", embeddings=x, labels=y, **more)
        code, out, _ = run(capsys, "evaluate", tmp_path / "e.npz", "--ks", "1", "--json")
        assert code == 0
        assert ("trained on some samples of" in json.loads(out).get("caution", "")) == trained
        code, out, err = run(capsys, "evaluate", tmp_path / "e.npz", "--ks", "1")
        assert (out + err).count("trained on some samples of") == trained
