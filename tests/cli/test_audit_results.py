"""`bspml audit` with --decisions, --copy-to and --export, from files to files."""

import csv
import hashlib
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from helpers.commands import run_audit as run

pytestmark = pytest.mark.usefixtures("undrawn")
CORRECTED = Path("found/labels-corrected.csv")


@pytest.fixture
def names(case):
    """Embeddings of photos, saved as data.npz; their names."""
    x, labels = case
    names = [f"{label}/{i}.png" for i, label in enumerate(labels)]
    for number, name in enumerate(names):
        Path("photos", name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number).save(Path("photos", name))
    np.savez("data.npz", embeddings=x, labels=labels, names=names)
    return names


def decide(names, *rows, path="d.csv"):
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("index", "decision", "new_label", "name"))
        writer.writerows((i, verdict, new, names[i]) for i, verdict, new in rows)


def corrected():
    with CORRECTED.open(newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


# --- over time ------------------------------------------------------------------------------------


def test_earlier_decisions_hold_in_data_that_grew_and_are_not_asked_again(case, names, capsys):
    x, labels = case
    run(capsys, "data.npz", "-o", "found", "-q")
    first = pd.read_parquet("found/audit.parquet")
    doubtful = first["verdict"].str.contains("another") & (first["label"] != "class a")
    asked = first.loc[doubtful, "index"].tolist()[:3]
    decide(names, (asked[0], "right", ""), (asked[1], "wrong", "class a"), (asked[2], "wrong", ""))
    order = np.r_[10:60, 0:10]  # ten photographs came to the front
    fewer = np.union1d(np.r_[0:50], asked[1])
    np.savez("grown.npz", embeddings=x[order], labels=labels[order], names=np.array(names)[order])
    code, out, _ = run(capsys, "grown.npz", "-o", "found", "--decisions", "d.csv")
    assert code == 0
    line = "3 of 3 earlier decisions carried over (1 label kept as right, 1 relabelled, 1 dropped)."
    assert f"note: {line}" in out
    assert f"{CORRECTED}: 1 label kept as right, 1 relabelled, 1 dropped" in out
    table = pd.read_parquet("found/audit.parquet").set_index("name")
    for i in asked:
        assert table["verdict"][names[i]] == "decided"
    assert table["label"][names[asked[1]]] == "class a"
    page = json.loads(Path("found/page.json").read_text("utf-8"))
    shown = {card["name"] for card in page["suspects"]}
    assert shown
    assert not shown & {names[i] for i in asked}
    # The next round: new decisions beside the earlier ones, and both carried over once more.
    other = next(card for card in page["suspects"])
    again = int(table["index"][names[asked[1]]])  # relabelled in the first round, confirmed now
    Path("new.csv").write_text(
        f"index,decision,name\n{other['index']},right,{other['name']}\n"
        f"{again},right,{names[asked[1]]}\n"
    )
    assert run(capsys, "found", "--apply", "new.csv")[0] == 0
    rows = corrected()
    assert [rows[names[i]]["decision"] for i in asked] == ["right", "right", "wrong"]
    assert [rows[name]["given_label"] for name in names] == labels.tolist()
    assert [rows[names[i]]["weight"] for i in asked] == ["1.0", "1.0", "0.0"]
    assert rows[other["name"]]["decision"] == "right"
    np.savez("less.npz", embeddings=x[fewer], labels=labels[fewer], names=np.array(names)[fewer])
    code, out, err = run(capsys, "less.npz", "-o", "found", "--decisions", CORRECTED, "--json")
    assert (code, json.loads(out)["notes"][0][:6]) == (0, f"{json.loads(out)['decided']} of 4")
    less = pd.read_parquet("found/audit.parquet").set_index("name")["label"]
    assert less[names[asked[1]]] == "class a"
    gone = 4 - json.loads(out)["decided"]
    assert f"decisions of it that the new one lacks: {gone} of 4" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data.npz", "--decisions", "none.csv"], "none.csv: no such file"),
        (["data.npz", "--decisions", "other.csv"], "no sample 'zzz' in these data, nor any other"),
        (["x.npy", "y.npy", "--decisions", "d.csv"], "these data have none. Decide anew"),
        (["data.npz", "--copy-to", "new"], "name the decisions with --apply"),
        (["data.npz", "--apply", "d.csv", "--copy-to", "new"], "name their folder with --images"),
        (
            ["data.npz", "--apply", "d.csv", "--copy-to", "photos", "--images", "photos"],
            "photos: holds something already",
        ),
        (["data.npz", "--export", "cvta"], "must be one of label-studio, cvat, fiftyone"),
        (["data.npz", "--export", "fiftyone"], "nothing to show of these samples; name the folder"),
        (["x.npy", "y.npy", "--export", "cvat"], "nothing to show of these samples"),
    ],
)
def test_mistakes_are_said_before_the_work(case, names, capsys, monkeypatch, arguments, message):
    np.save("x.npy", case[0])
    np.save("y.npy", case[1])
    decide(names, (3, "right", ""))
    decide(["zzz"], (0, "right", ""), path="other.csv")
    before = sorted(Path().rglob("*"))
    monkeypatch.setattr("bspml.cli.audit.audit", lambda *_, **__: pytest.fail("worked"))
    monkeypatch.setattr("bspml.cli.audit.audit_decided", lambda *_, **__: pytest.fail("worked"))
    code, out, err = run(capsys, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert sorted(Path().rglob("*")) == before


def test_earlier_decisions_do_not_go_with_an_earlier_audit(names, capsys):
    run(capsys, "data.npz", "-o", "found", "-q")
    code, _, err = run(capsys, "found", "--decisions", "d.csv")
    assert (code, "does not go with --decisions" in err) == (2, True)


@pytest.fixture
def decided(names, capsys):
    """An audit of photos, and decisions on three of its suspects as the page saves them."""
    assert run(capsys, "data.npz", "-o", "found", "-q", "--images", "photos")[0] == 0
    cards = json.loads(Path("found/page.json").read_text("utf-8"))["suspects"][:3]
    with Path("d.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("index", "decision", "label", "name", "picture"))
        for card, verdict in zip(cards, ("right", "wrong", "unsure"), strict=True):
            row = (card["index"], verdict, card["label"], card["name"], card["picture"])
            writer.writerow(map(str, row))
    return [card["name"] for card in cards]


def test_decisions_know_their_photos(case, names, decided, capsys, tmp_path):
    keys = {
        name: hashlib.blake2b(Path("photos", name).read_bytes(), digest_size=16).hexdigest()
        for name in names
    }
    for images in ((), ("--images", "photos")):
        assert run(capsys, "found", "--apply", "d.csv", *images)[0] == 0
        known = {name: row["picture"].lstrip("'") for name, row in corrected().items()}
        assert known == {name: keys[name] if name in decided else "" for name in names}
    # An older file says nothing of the photos: those of the audit are what was decided on.
    decide(names, (3, "right", ""), path="old.csv")
    Path("photos").rename("elsewhere")
    assert run(capsys, "found", "--apply", "old.csv")[0] == 0
    assert corrected()[names[3]]["picture"].lstrip("'") == keys[names[3]]
    # A later audit without the photos keeps what is known of them.
    assert run(capsys, "found", "--apply", "d.csv")[0] == 0
    assert run(capsys, "data.npz", "-o", "found", "--decisions", CORRECTED)[0] == 0
    first, second, _ = decided
    assert corrected()[first]["picture"].lstrip("'") == keys[first]
    # Other photos under the same names: new ones, and then those of an earlier audit.
    Path("elsewhere").rename("photos")
    Path("photos", first).write_bytes(Path("photos", second).read_bytes())
    assert run(capsys, "found", "--apply", "d.csv")[0] == 0  # nobody names their folder
    for more in (["--images", "photos"], ["--copy-to", "clean", "--images", "photos"]):
        before = CORRECTED.read_bytes()
        code, out, err = run(capsys, "found", "--apply", "d.csv", *more)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert f"d.csv: line 2: {first!r} is another picture here than was decided on" in err
        assert (CORRECTED.read_bytes(), Path("clean").exists()) == (before, False)
    code, _, err = run(capsys, "found", "--copy-to", "clean", "--images", "photos")
    assert (code, f"the audit: {first!r} is another picture here" in err) == (2, True)
    code, out, _ = run(
        capsys, "data.npz", "-o", "found", "--decisions", CORRECTED, "--images", "photos"
    )
    assert (code, "1 picture is not what was decided on" in out) == (0, True)
    assert (corrected()[first]["decision"], corrected()[second]["decision"]) == ("", "wrong")


# --- copies and exports ---------------------------------------------------------------------------


def test_photos_are_copied_by_their_corrected_labels(names, capsys):
    run(capsys, "data.npz", "-o", "found", "-q")
    decide(names, (0, "wrong", "class e"), (5, "wrong", ""))
    arguments = ["found", "--apply", "d.csv", "--images", "photos", "--copy-to"]
    code, out, err = run(capsys, *arguments, "clean")
    assert code == 0
    assert "clean: 59 photos in 5 classes, 1 left out as wrong; copied.csv says which" in out
    assert "copying photos to clean" in err
    copies = {p.relative_to("clean").as_posix() for p in Path("clean").rglob("*.png")}
    assert copies == {"class e/0.png", *names} - {names[0], names[5]}
    code, _, err = run(capsys, *arguments, "clean")
    assert (code, "clean: holds something already" in err) == (2, True)
    code, out, _ = run(capsys, *arguments, "again", "--json")
    assert json.loads(out)["copied"] == {
        "folder": "again",
        "count": 59,
        "classes": 5,
        "dropped": 1,
    }


def test_an_audit_anew_copies_what_was_decided_before_as_the_first_one_did(case, capsys):
    x, labels = case
    number = [int((labels[:i] == label).sum()) for i, label in enumerate(labels)]
    names = [f"{label}/of/{i}.png" for label, i in zip(labels, number, strict=True)]
    for shade, name in enumerate(names):
        Path("photos", name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), shade).save(Path("photos", name))
    np.savez("data.npz", embeddings=x, labels=labels, names=names)
    first, second = (np.flatnonzero(labels == label) for label in ("class a", "class b"))
    decide(names, *((i, "wrong", "class b") for i in first))  # where each place is taken
    run(capsys, "data.npz", "-o", "found", "-q", "--apply", "d.csv")
    for source in (["found", "--apply", "d.csv"], ["data.npz", "--decisions", CORRECTED]):
        target = "of-" + source[0].replace(".", "-")
        result = run(capsys, *map(str, source), "--images", "photos", "--copy-to", target)
        assert result[0] == 0, result
        copied = pd.read_csv(Path(target, "copied.csv")).set_index("name")["path"]
        assert copied[names[second[0]]] == names[second[0]]  # it keeps its label
        assert copied[names[first[0]]] == "class b/of/0-2.png"


@pytest.mark.parametrize(
    ("what", "tool"),
    [
        ("data.npz", "label-studio"),
        ("data.npz", "fiftyone"),
        ("found", "cvat"),  # which alone asks for the photos themselves
        pytest.param("found", "label-studio", marks=pytest.mark.slow),
        pytest.param("found", "fiftyone", marks=pytest.mark.slow),
        pytest.param("data.npz", "cvat", marks=pytest.mark.slow),
    ],
)
def test_suspects_are_exported_from_a_new_and_from_an_earlier_audit(names, capsys, what, tool):
    if what == "found":
        run(capsys, "data.npz", "-o", "found", "-q")
    arguments = [what, "-o", "found", "--images", "photos", "--export", tool]
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    files = [Path(name) for name in json.loads(out)["exported"]]
    assert {path.parent for path in files} == {Path(f"found/to-{tool}")}
    assert all(path.stat().st_size for path in files)
    code, out, _ = run(capsys, *arguments, "--quiet")
    suspects = json.loads(Path("found/summary.json").read_text("utf-8"))["suspects"]
    assert f"found/to-{tool}: {files[0].name}, " in out
    assert f"; {suspects} of {suspects} suspects for {tool}" in out


def test_texts_are_exported_and_an_earlier_audit_needs_no_photos_for_cvat(case, names, capsys):
    x, labels = case
    frame = pd.DataFrame(x, columns=[f"d{i}" for i in range(5)]).assign(label=labels, text="words")
    frame.to_csv("texts.csv", index=False)
    assert run(capsys, "texts.csv", "-o", "found", "--export", "label-studio", "-q")[0] == 0
    tasks = json.loads(Path("found/to-label-studio/tasks.json").read_text("utf-8"))
    assert {task["data"]["text"] for task in tasks} == {"words"}
    run(capsys, "data.npz", "-o", "photographs", "-q")
    assert run(capsys, "photographs", "--export", "cvat")[0] == 0
    root = ET.parse("photographs/to-cvat/annotations.xml").getroot()
    assert {image.get("name") for image in root.iter("image")} <= set(names)


def test_a_second_apply_says_that_it_replaces_the_first(names, capsys):
    run(capsys, "data.npz", "-o", "found", "-q")
    decide(names, (3, "right", ""))
    assert run(capsys, "found", "--apply", "d.csv")[2] == ""
    assert run(capsys, "found", "--apply", "d.csv")[2] == ""  # the same again
    decide(names, (4, "right", ""))
    _, _, err = run(capsys, "found", "--apply", "d.csv")
    assert err == (
        f"note: {CORRECTED}: an earlier one was replaced; decisions of it that the new one lacks: "
        "1 of 1\n"
    )
    CORRECTED.write_text("damaged")
    code, _, err = run(capsys, "found", "--apply", "d.csv")
    assert (code, "lacks: 0 of 0" in err) == (0, True)


def test_a_name_counts_against_its_index_and_is_told(names, capsys):
    """As where one column of the decisions was sorted by itself in a spreadsheet."""
    run(capsys, "data.npz", "-o", "found", "-q")
    decide([*names[:3], names[4], *names[4:]], (3, "right", ""), (5, "right", ""))
    assert run(capsys, "found", "--apply", "d.csv")[2] == (
        "note: d.csv: line 2: 1 decision stands at another index than the name has here, the first "
        f"is {names[4]!r}; the name counts\n"
    )
    assert {name for name, row in corrected().items() if row["decision"]} == {names[4], names[5]}


def test_a_name_at_another_index_is_refused_where_other_lines_have_none(names, capsys):
    run(capsys, "data.npz", "-o", "found", "-q")
    decide([*names[:3], "", *names[4:]], (3, "right", ""), (5, "right", ""))
    assert run(capsys, "found", "--apply", "d.csv")[0] == 0
    assert {name for name, row in corrected().items() if row["decision"]} == {names[3], names[5]}
    decide([*names[:3], "", names[4], names[4]], (3, "right", ""), (5, "right", ""))
    code, _, err = run(capsys, "found", "--apply", "d.csv")
    assert code == 2
    assert f"names {names[4]!r}, but row 5 of these data is {names[5]!r}" in err


def test_a_saved_audit_finds_its_photos_from_a_folder_with_others_of_that_name(
    names, capsys, monkeypatch, tmp_path
):
    run(capsys, "data.npz", "-o", "found", "--images", "photos", "-q")
    decide(names, (3, "right", ""))
    own = Path("photos", names[3])
    wanted, here = own.read_bytes(), Path.cwd()
    (tmp_path / "elsewhere" / own).parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "elsewhere")
    for name in names:
        Path("photos", name).parent.mkdir(exist_ok=True)
        Image.new("L", (4, 4), 255).save(Path("photos", name))
    given = (str(here / "found"), "--apply", str(here / "d.csv"), "--copy-to", "fixed")
    assert run(capsys, *given)[0] == 0
    assert Path("fixed", names[3]).read_bytes() == wanted


def test_a_saved_audit_knows_where_its_photos_are_and_says_so_where_they_are_gone(names, capsys):
    run(capsys, "data.npz", "-o", "found", "--images", "photos", "-q")
    assert json.loads(Path("found/audit.json").read_text())["images"] == "photos"
    assert run(capsys, "found", "--flag", "3")[0] == 0  # saved again, without a word of photos
    code, _, err = run(capsys, "found", "--export", "label-studio")
    assert (code, err) == (0, "")
    tasks = json.loads(Path("found/to-label-studio/tasks.json").read_text("utf-8"))
    assert all(task["data"]["image"].startswith("/data/local-files/?d=photos/") for task in tasks)
    decide(names, (3, "right", ""))
    assert run(capsys, "found", "--apply", "d.csv", "--copy-to", "fixed")[0] == 0
    assert len([*Path("fixed").rglob("*.png")]) == len(names)
    Path("photos").rename("moved")
    code, _, err = run(capsys, "found", "--export", "label-studio")
    assert code == 2
    assert "photos of this audit were in photos, which is no folder here; name theirs" in err
    assert "nothing to show of these samples; name the folder of the photos with --images" in err
    assert run(capsys, "found", "--export", "label-studio", "--images", "moved")[0] == 0
    assert json.loads(Path("found/audit.json").read_text())["images"] == "moved"
