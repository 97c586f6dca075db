"""`bspml evaluate` of files: K, galleries, labels."""

import json

import numpy as np

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
