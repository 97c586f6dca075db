"""`bspml audit` from files to files: sources, exit codes, decisions."""

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import bspml
from bspml.cli import main
from helpers.commands import run_audit as run


def test_npz_with_labels_and_names_gives_sentence_files_and_0(case, capsys):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels, names=[f"n{i}" for i in range(60)])
    code, out, err = run(capsys, "data.npz")
    assert code == 0
    assert out.startswith("The best estimate is that ")
    assert "60 samples in 5 classes" in out
    assert "-> class " in out
    assert "data-audit: audit.csv, audit.parquet" in out
    said = out.splitlines()[-1].replace(";", ",").replace(" for bspml itself", "")
    named = {name.strip() for name in said.partition(": ")[2].split(",")}
    assert named == {path.name for path in Path("data-audit").iterdir()}
    assert "auditing 60 labels" in err
    table = pd.read_parquet("data-audit/audit.parquet")
    assert table["name"][0] == f"n{table['index'][0]}"


@pytest.mark.usefixtures("undrawn")
def test_samples_that_fit_no_class_are_counted_in_what_is_printed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 30)
    x = np.eye(5, 16)[labels] + 0.05 * rng.normal(size=(150, 16))
    np.savez("data.npz", embeddings=x, labels=labels)
    count = json.loads(run(capsys, "data.npz", "--json")[1])["fit_no_class"]
    assert ("Strangers" in run(capsys, "data.npz")[1]) == (count > 0)
    x[[3, 70]] = np.eye(16)[[10, 11]]
    np.savez("other.npz", embeddings=x, labels=labels)
    assert "Strangers: 2 samples fit no class (a pict" in run(capsys, "other.npz")[1]


def test_a_map_that_cannot_be_had_is_refused_before_the_work(case, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    code, out, err = run(capsys, "data.npz", "--map", "umap")
    assert (code, out) == (2, "")
    assert "pip install 'bspml[map]'" in err.splitlines()[-1]
    assert not Path("data-audit").exists()
    assert run(capsys, "data.npz", "--map", "pca")[0] == 0


def test_json_is_the_summary_and_the_only_output(case, capsys):
    x, labels = case
    np.save("x.npy", x)
    np.save("y.npy", labels)
    code, out, err = run(capsys, "x.npy", "y.npy", "--json", "-o", "found")
    assert (code, err) == (0, "")
    found = json.loads(out)
    saved = json.loads(Path("found/summary.json").read_text())
    assert len(saved.pop("audit")) == 16
    assert found == saved | {"caution": None, "folder": "found", "decisions": None} | {
        "files": found["files"],
        "copied": None,
        "exported": None,
    }
    assert "report.html" in found["files"]


@pytest.mark.usefixtures("undrawn")
def test_fail_above_exits_3_and_only_then(case, capsys):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    code, out, err = run(capsys, "data.npz", "--fail-above", "0.01", "--quiet")
    assert code == 3
    assert "is above --fail-above 0.01" in err
    assert out.startswith("The best estimate is that ")
    assert "Most suspicious" not in out
    assert run(capsys, "data.npz", "--fail-above", "1", "--quiet")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.npz"], "none.npz: no such file"),
        (["x.npy"], "LABELS is missing: x.npy holds embeddings only"),
        (["x.npy", "short.npy"], "short.npy: has 3 labels, but x.npy has 60 embeddings"),
        (["x.npy", "y.npy", "--fail-above", "10"], "`--fail-above` must be in"),
        (["x.npy", "y.npy", "--backbone", "efficientnet-lite0"], "does not go with --backbone"),
        (["x.npy", "y.npy", "--weights", "w.pt"], "--weights are the weights of a --backbone"),
        (["x.npy", "y.npy", "--names", "x.npy"], "has no names"),
        (["x.npy", "y.npy", "--names", "names.txt"], "has 2 names; the data has 60"),
        (["x.npy", "y.npy", "--images", "."], "none of the samples' names is a file"),
        (["x.npy", "y.npy", "--apply", "none.csv"], "none.csv: no such file; expected a CSV file"),
        (["x.npy", "y.npy", "--device", "cuda:99"], "cuda:99 is not available"),
        (["x.npy", "same.npy"], "at least two classes"),
        (["data.csv"], "Or give LABELS as a file of their own"),
        (["nowhere", "--backbone", "timm:x"], "nowhere: no such folder of images; name one, or"),
        (["images"], "say what shall embed them, --backbone"),
        (
            ["images", "--backbone", "resnet"],
            "`backbone` must be efficientnet-lite0",
        ),
        (["images", "--backbone", "torchvision:resnet18"], "needs `weights`, a file"),
    ],
)
def test_mistakes_exit_2_with_one_line(case, capsys, arguments, message):
    x, labels = case
    np.save("x.npy", x)
    np.save("y.npy", labels)
    np.save("short.npy", labels[:3])
    np.save("same.npy", np.full(60, "a"))
    pd.DataFrame(x).add_prefix("d").to_csv("data.csv", index=False)
    Path("names.txt").write_text("a\nb\n")
    for label in "ab":
        (folder := Path("images", label)).mkdir(parents=True)
        Image.new("L", (8, 8)).save(folder / "1.png")
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.rstrip().count("\n") <= 1  # "auditing ..." may come first
    assert "Traceback" not in err


@pytest.mark.usefixtures("undrawn")
def test_decisions_make_a_corrected_label_file(case, capsys):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    run(capsys, "data.npz")
    Path("decisions.csv").write_text(
        "index,label,decision,new_label\n"
        f"0,{labels[0]},wrong,class a\n5,{labels[5]},wrong,\n6,{labels[6]},right,\n"
    )
    code, out, _ = run(capsys, "data.npz", "--apply", "decisions.csv")
    assert code == 0
    # What was applied and where; the audit itself was told when it was made.
    first, second = out.splitlines()
    corrected = Path("data-audit/labels-corrected.csv")
    assert first == f"{corrected}: 1 label kept as right, 1 relabelled, 1 dropped"
    assert second.startswith("data-audit: audit.csv, audit.parquet, classes.csv")
    with Path("data-audit/labels-corrected.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["index", "label", "weight", "decision", "given_label"]
    assert [row.pop("given_label") for row in rows] == labels.tolist()
    assert [row["index"] for row in rows] == [str(i) for i in range(60)]
    assert rows[0] == {"index": "0", "label": "class a", "weight": "1.0", "decision": "wrong"}
    assert rows[5]["weight"] == "0.0"
    assert rows[6] | {"weight": "1.0", "decision": "right"} == rows[6]
    audited = pd.read_parquet("data-audit/audit.parquet").set_index("index")["weight"]
    assert all(float(rows[i]["weight"]) == audited[i] for i in range(7, 60))
    # The same from the folder of the earlier audit, without auditing again.
    first = corrected.read_bytes()
    code, _, err = run(capsys, "data-audit", "--apply", "decisions.csv", "--json")
    assert (code, err) == (0, "")
    assert corrected.read_bytes() == first
    code, out, _ = run(capsys, "data-audit", "--apply", "decisions.csv")
    assert out == f"{corrected}: 1 label kept as right, 1 relabelled, 1 dropped\n"


@pytest.mark.usefixtures("undrawn")
def test_a_relabelling_to_a_class_that_nobody_has_is_applied_with_a_warning(case, capsys):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    run(capsys, "data.npz", "--quiet")
    Path("decisions.csv").write_text("index,decision,new_label\n0,wrong,clas a\n1,wrong,class b\n")
    code, out, err = run(capsys, "data-audit", "--apply", "decisions.csv")
    assert code == 0
    assert "2 relabelled" in out
    assert err == (
        "bspml: warning: 1 sample gets a class that no given label has: 'clas a' (did you mean "
        "'class a'?). If it is a new class, leave it; else correct `new_label` in the decisions "
        "and apply them again.\n"
    )


def test_decisions_about_other_data_are_refused_before_the_work(case, capsys):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    Path("decisions.csv").write_text("index,decision\n99,right\n")
    code, _, err = run(capsys, "data.npz", "--apply", "decisions.csv")
    assert code == 2
    assert "decisions.csv: line 2: there is no sample 99; the data has 60" in err
    assert not Path("data-audit").exists()


@pytest.mark.usefixtures("undrawn")
def test_decisions_find_their_samples_by_name_in_data_that_grew(case, capsys):
    x, labels = case
    names = np.array([f"{i}.jpg" for i in range(60)])
    np.savez("old.npz", embeddings=x[1:], labels=labels[1:], names=names[1:])
    np.savez("data.npz", embeddings=x, labels=labels, names=names)
    Path("decisions.csv").write_text(
        f"index,label,decision,new_label,name\n4,{labels[5]},wrong,,5.jpg\n70,x,right,,gone.jpg\n"
    )
    code, _, err = run(capsys, "data.npz", "--apply", "decisions.csv")
    assert code == 0
    assert err.count("not in these data, the first is 'gone.jpg'") == 1
    with Path("data-audit/labels-corrected.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == names.tolist()
    assert [i for i, row in enumerate(rows) if row["decision"]] == [5]


def test_terminal_escapes_in_labels_are_shown_and_not_obeyed(case, capsys):
    x, labels = case
    labels = np.char.add(labels, "\x1b[2J\n")
    np.savez("data.npz", embeddings=x, labels=labels)
    code, out, _ = run(capsys, "data.npz")
    assert code == 0
    assert "\x1b" not in out
    assert "\\x1b[2J\\n" in out


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["names.csv", "summary.json", "audit.json", "audit.npz"])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(case, capsys, name):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    arguments = ["data.npz", "--names", name]
    if name != "names.csv":
        assert run(capsys, "data.npz")[0] == 0
        os.chdir("data-audit")
        Path(name).unlink(missing_ok=True)
        Path("decisions.csv").write_text("index,decision\n3,right\n")
        arguments = [".", "--apply", "decisions.csv"]
    os.mkfifo(name)
    code, _, err = run(capsys, *arguments)
    if name == "summary.json":  # nothing reads it
        assert code == 0
    else:
        assert (code, err.count("\n")) == (2, 1)
        assert name in err or "is a folder of images" in err  # no mark of an audit: just a folder


# --- what must not be lost, ignored or waited for -------------------------------------------------


def save_case(case):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels, names=[f"{i}.png" for i in range(60)])
    return x, labels


def test_the_help_names_every_kind_of_backbone(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for name in ("efficientnet-lite0", "torchvision:MODEL", "timm:MODEL"):
        assert name in " ".join(out.split())


def test_report_makes_the_page_of_an_audit_again(case, capsys):
    save_case(case)
    run(capsys, "data.npz", "-o", "found")
    page = Path("found/report.html").read_bytes()
    Path("found/report.html").unlink()
    assert main(["report", "found"]) == 0
    assert Path("found/report.html").read_bytes() == page
    assert "found/report.html: The best estimate" in capsys.readouterr().out


@pytest.mark.usefixtures("undrawn")
def test_a_new_audit_of_other_data_does_not_keep_old_decisions(case, capsys):
    x, labels = save_case(case)
    Path("d.csv").write_text("index,decision\n3,wrong\n")
    assert run(capsys, "data.npz", "-o", "found", "--apply", "d.csv")[0] == 0
    assert run(capsys, "data.npz", "-o", "found")[0] == 0  # the same labels
    np.savez("other.npz", embeddings=x, labels=np.roll(labels, 1))
    code, _, err = run(capsys, "other.npz", "-o", "found")
    assert code == 2
    assert "labels-corrected.csv: holds decisions about other labels" in err
    assert run(capsys, "other.npz", "-o", "found", "--apply", "d.csv")[0] == 0  # made anew


@pytest.mark.usefixtures("undrawn")
def test_options_that_an_earlier_audit_cannot_follow_are_refused(case, capsys):
    save_case(case)
    run(capsys, "data.npz", "-o", "found")
    for option in ("--names", "--seed", "--device", "--workers", "--backbone", "--weights"):
        code, _, err = run(capsys, "found", option, "2")
        assert (code, err.count("\n")) == (2, 1)
        assert f"does not go with {option}" in err
    code, _, err = run(capsys, "data.npz", "--workers", "2")
    assert (code, "does not go with --workers" in err) == (2, True)


@pytest.mark.usefixtures("undrawn")
def test_names_without_a_picture_are_counted_and_the_first_are_named(case, capsys):
    x, labels = case
    names = [f"{i}.png" if i < 20 else f"lost-{i}.png" for i in range(60)]
    Path("pictures").mkdir()
    for i in range(20):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(f"pictures/{i}.png")
    for number, words in ((60, "40 of 60 names are no file in pictures "), (20, None)):
        np.savez("data.npz", embeddings=x[-number:], labels=labels[-number:], names=names[:number])
        code, out, _ = run(capsys, "data.npz", "--images", "pictures")
        assert code == 0
        assert ("no file in" in out) == (words is not None)
        if words is not None:
            assert words in out
            assert "'lost-20.png', 'lost-21.png', " in out
            assert "'lost-24.png', ..." in out
            assert words in json.loads(Path("data-audit/summary.json").read_text())["notes"][-1]


def test_images_for_an_earlier_audit_leave_its_texts_and_title(case, capsys):
    x, labels = case
    frame = pd.DataFrame(x, columns=[f"d{i}" for i in range(5)]).assign(label=labels)
    frame = frame.assign(name=[f"{i}.png" for i in range(60)], text="some words")
    frame.to_csv("data.csv", index=False)
    run(capsys, "data.csv", "-o", "found")
    Path("pictures").mkdir()
    for i in range(60):
        Image.new("RGB", (8, 8)).save(f"pictures/{i}.png")
    assert run(capsys, "found", "--images", "pictures")[0] == 0
    page = Path("found/report.html").read_text("utf-8")
    assert "some words" in page
    assert "Audit of data.csv" in page
    assert "data:image/jpeg" in page


@pytest.mark.usefixtures("undrawn")
def test_other_photos_than_an_audit_saw_are_told_of(case, capsys):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels, names=[f"{i}.png" for i in range(60)])
    for folder, count, changed in (("seen", 60, ()), ("other", 60, (7, 9)), ("few", 20, ())):
        Path(folder).mkdir()
        for i in range(count):
            Image.new("RGB", (8, 8), (i, 200 * (i in changed), 0)).save(f"{folder}/{i}.png")
    run(capsys, "data.npz", "-o", "found", "--images", "seen")
    for images, words in (
        ("seen", None),
        ("other", "2 photos in other changed since the audit, at rows 7, 9: its chances are"),
        ("few", "40 of 60 names are no file in few"),
    ):
        code, out, _ = run(capsys, "found", "-o", f"with-{images}", "--images", images)
        notes = json.loads(Path(f"with-{images}/summary.json").read_text())["notes"]
        told = [note for note in notes if "changed since" in note or "no file in" in note]
        assert code == 0
        assert len(told) == (words is not None)
        if words is not None:
            assert told[0].startswith(words)
            assert words in " ".join(out.split())


def test_a_broken_picture_is_a_link_and_not_the_end(case, capsys):
    save_case(case)
    Path("pictures").mkdir()
    whole = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(whole, "PNG")
    broken = bytearray(whole.getvalue())
    broken[35] -= 1  # 256 bytes fewer than there are: Pillow answers with a SyntaxError
    for i in range(60):
        Path(f"pictures/{i}.png").write_bytes(broken)
    assert run(capsys, "data.npz", "--images", "pictures")[0] == 0


@pytest.mark.usefixtures("undrawn")
def test_what_cannot_be_judged_does_not_pass_a_threshold(case, capsys):
    x, labels = case
    np.savez("one.npz", embeddings=np.ones_like(x), labels=labels)
    np.savez("alone.npz", embeddings=x, labels=[f"{i}" for i in range(60)])
    for name in ("one.npz", "alone.npz"):
        code, out, _ = run(capsys, name)
        assert code == 0
        assert out.startswith("No label could be judged: ")
        code, out, err = run(capsys, name, "--fail-above", "0.5", "--quiet")
        assert code == 2
        assert "--fail-above 0.5 cannot be answered. No label could be judged" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data.npz", "-o", "x" * 300], "name too long"),
        (["data.npz", "-o", "a\0b"], "null byte"),
        (["data.npz", "-o", ""], "name of the audit's folder is empty"),
        (["data.npz", "-o", "data.npz"], "data.npz is a file"),
        (["data.npz", "-o", "taken"], "audit.csv: exists already and is not an audit's"),
        (["data.npz", "-o", "corrected"], "labels-corrected.csv: exists already and is not"),
        (["data.npz", "--images", "none"], "none: no such folder of images"),
        (["data.npz", "--images", ""], "folder of images is empty"),
        (["data.npz", "--names", ""], "the file of names is empty"),
        (["x" * 300 + ".npz"], "File name too long"),
        (["a\0b.npz"], "no such file"),
        ([""], "EMBEDDINGS is empty"),
        (["nan.npy", "y.npy"], "nan.npy: `embeddings` must be finite; rows 7 hold"),
        (["x.npy", "same.npy"], "same.npy: all 60 labels are 'a'"),
        (["zero.npy", "y.npy"], "zero.npy: "),
    ],
)
def test_mistakes_are_found_before_the_work_and_name_the_file(
    case, capsys, monkeypatch, arguments, message
):
    x, labels = save_case(case)
    np.save("x.npy", x)
    np.save("y.npy", labels)
    np.save("same.npy", np.full(60, "a"))
    np.save("zero.npy", np.zeros_like(x))
    np.save("nan.npy", np.where(np.arange(60)[:, None] == 7, np.nan, x))
    for folder, name in (("taken", "audit.csv"), ("corrected", "labels-corrected.csv")):
        Path(folder).mkdir()
        Path(folder, name).write_text("precious")
    before = sorted(Path().rglob("*"))
    if "zero.npy" not in arguments:
        monkeypatch.setattr("bspml.cli.audit.audit", lambda *_, **__: pytest.fail("worked"))
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert sorted(Path().rglob("*")) == before
    assert Path("corrected/labels-corrected.csv").read_text() == "precious"


@pytest.mark.usefixtures("undrawn")
def test_nothing_of_an_audit_folder_changes_when_decisions_are_refused(case, capsys):
    save_case(case)
    run(capsys, "data.npz", "-o", "found")
    before = Path("found/page.json").read_bytes()
    Path("d.csv").write_text("index,decision\n99,right\n")
    Path("pictures").mkdir()
    Image.new("L", (8, 8)).save("pictures/3.png")
    assert run(capsys, "found", "--apply", "d.csv", "--images", "pictures")[0] == 2
    assert Path("found/page.json").read_bytes() == before


@pytest.fixture
def deaf():
    """Makes streams whose reader is gone."""
    made = []

    def stream():
        reading, writing = os.pipe()
        os.close(reading)
        made.append(os.fdopen(writing, "w"))
        return made[-1]

    yield stream
    for each in made:
        with contextlib.suppress(OSError):
            each.close()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_reader_that_went_away_changes_no_exit_code(case, monkeypatch, deaf, as_json):
    save_case(case)
    monkeypatch.setattr("sys.stdout", deaf())
    above = ["--fail-above", "0.01", *as_json]
    assert main(["audit", "data.npz", "-o", "found", *above]) == 3
    monkeypatch.setattr("sys.stdout", deaf())
    assert main(["audit", "found", *above]) == 3
    monkeypatch.setattr("sys.stdout", deaf())
    assert main(["audit", "found", *as_json]) == 0


@pytest.mark.usefixtures("undrawn")
def test_an_audit_needs_nobody_at_stderr(case, capsys, monkeypatch, deaf):
    save_case(case)
    for stream in (None, deaf()):
        monkeypatch.setattr("sys.stderr", stream)
        assert main(["audit", "data.npz", "-o", "found"]) == 0
        assert capsys.readouterr().out.startswith("The best estimate is that ")
        assert main(["audit", "data.npz", "-o", "found", "--fail-above", "0.01"]) == 3
        assert "--fail-above" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="a pipe of a POSIX shell")
@pytest.mark.usefixtures("undrawn")
def test_a_pipeline_sees_what_the_audit_found(case, capsys):
    save_case(case)
    run(capsys, "data.npz", "-o", "found")
    program = f"{sys.executable} -c 'import sys; from bspml.cli import main; sys.exit(main())'"
    command = f"set -o pipefail; {program} audit found --fail-above 0.01 | true"
    here = {**os.environ, "PYTHONPATH": str(Path(bspml.__file__).parents[1])}
    done = subprocess.run(
        ["bash", "-c", command], check=False, capture_output=True, text=True, env=here
    )
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "above --fail-above 0.01" in done.stderr


@pytest.mark.usefixtures("undrawn")
def test_flags_are_asked_for_by_number_or_precision(case, capsys):
    np.savez("data.npz", embeddings=case[0], labels=case[1])
    code, out, _ = run(capsys, "data.npz", "-o", "found", "--flag", "5", "--json")
    assert code == 0
    assert json.loads(out)["look_wrong"] == 5
    table = pd.read_parquet("found/audit.parquet")
    assert (table["weight"] == 0).tolist() == [True] * 5 + [False] * (len(table) - 5)
    code, out, _ = run(capsys, "found", "--flag-precision", "0.9", "--json")
    chosen = json.loads(out)
    assert code == 0
    assert chosen["expected_wrong_among_them"] >= 0.9 * chosen["look_wrong"]
    assert (pd.read_parquet("found/audit.parquet")["weight"] == 0).sum() == chosen["look_wrong"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--flag", "5", "--flag-precision", "0.5"], "--flag and --flag-precision both say"),
        (["--flag", "-1"], "`--flag` must be a whole number"),
        (["--flag-precision", "80"], "`--flag-precision` must be"),
        (["--map", "tsne"], "`--map` must be one of pca, umap"),
    ],
)
def test_impossible_choices_are_refused_before_the_work(case, capsys, options, message):
    np.savez("data.npz", embeddings=case[0], labels=case[1])
    code, _, err = run(capsys, "data.npz", "-o", "found", *options)
    assert code == 2
    assert message in err
    assert not Path("found").exists()


@pytest.mark.usefixtures("undrawn")
def test_corrected_labels_of_other_flags_are_pointed_out(case, capsys):
    np.savez("data.npz", embeddings=case[0], labels=case[1])
    run(capsys, "data.npz", "-o", "found", "-q")
    Path("d.csv").write_text("index,decision\n0,right\n")
    run(capsys, "found", "--apply", "d.csv")
    _, _, err = run(capsys, "found", "--flag", "3")
    assert "labels-corrected.csv is of an earlier audit, or of other flags" in err
