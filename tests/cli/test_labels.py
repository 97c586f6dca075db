"""Labels beside embeddings: matched by name where both files have names."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from bspml.cli.labels import Labelled, columns_of, in_order_of, labelled
from bspml.errors import DataError
from bspml.files.matching import rows_in
from bspml.files.tables import read_beside, read_embeddings, read_names
from helpers.commands import run


@pytest.fixture
def named(tmp_path):
    """Embeddings of six samples with names, and the labels of their names."""
    names = [f"photos/{i}.jpg" for i in range(6)]
    np.savez(tmp_path / "e.npz", embeddings=np.eye(6), names=np.array(names))
    return tmp_path, names


def write(folder, names, labels):
    pd.DataFrame({"name": names, "label": labels}).to_csv(folder / "l.csv", index=False)
    return str(folder / "l.csv")


@pytest.mark.parametrize("short", [False, True])
def test_labels_are_matched_by_name(named, short):
    folder, names = named
    order = [3, 0, 5, 1, 2, 4]
    theirs = [names[i].removeprefix("photos/" if short else "") for i in order]
    file = write(folder, theirs, [f"class{i}" for i in order])
    found = labelled(str(folder / "e.npz"), file, "LABELS").labels
    assert found.tolist() == [f"class{i}" for i in range(6)]


@pytest.mark.parametrize("wrong", ["photos/9.jpg", "photos/1.jpg"])
def test_names_of_other_samples_are_refused(named, wrong):
    folder, names = named
    file = write(folder, [wrong, *names[1:]], list("aabbcc"))
    words = rf"sample 0 is '{wrong}' there and 'photos/0.jpg' here"
    with pytest.raises(DataError, match=words):
        labelled(str(folder / "e.npz"), file, "LABELS")


def test_without_names_on_both_sides_the_order_stays(named):
    folder, names = named
    labels = np.array(list("aabbcc"))
    file = write(folder, names[::-1], labels)
    assert in_order_of({}, Labelled(labels), file, "x").labels.tolist() == labels.tolist()
    np.save(folder / "e.npy", np.eye(6))
    assert labelled(str(folder / "e.npy"), file, "LABELS").labels.tolist() == labels.tolist()


def test_noise_does_not_write_over_what_it_read(capsys, named):
    folder, names = named
    file = write(folder, names, list("aabbcc"))
    before = (folder / "l.csv").read_bytes()
    code, _, err = run(capsys, "noise", file, "-o", file)
    assert (code, "is the file that is read; name another" in err) == (2, True)
    assert (folder / "l.csv").read_bytes() == before
    code, _, err = run(capsys, "noise", file, "-o", folder / "l.xyz")
    assert (code, "must end in .csv or .npz; got l.xyz" in err) == (2, True)


@pytest.mark.parametrize(
    ("ours", "theirs", "labels"),
    [
        # Every class has its 0.png: the folders tell, wherever the paths start.
        (("P/ant/0.png", "P/Bee/0.png"), ("Bee/0.png", "ant/0.png"), ["ant", "Bee"]),
        (("/x/ant/0.png", "/x/bee/0.png"), ("/y/bee/0.png", "/y/ant/0.png"), ["ant", "bee"]),
        (("ant/0.png", "bee/0.png"), ("P/ant/0.png", "P/bee/0.png"), ["ant", "bee"]),
        (("ant/0.png", "bee/0.png"), ("0.png", "0.png"), ["bee", "ant"]),  # as they stand
        (("ant/0.png", "bee/0.png"), ("P/cat/0.png", "P/bee/0.png"), None),
    ],
)
def test_photos_of_one_name_in_several_folders_are_told_apart(tmp_path, ours, theirs, labels):
    file = tmp_path / "labels.csv"
    said = ["bee", "ant"]
    if "/" in theirs[0]:
        said = [name.split("/")[-2] for name in theirs]
    rows = zip(theirs, said, strict=True)
    file.write_text("path,label\n" + "".join(f"{name},{label}\n" for name, label in rows))
    beside = Labelled(np.array(said), columns_of(str(file), 2))
    order = partial(in_order_of, {"path": [*ours]}, beside, str(file), "x.npz")
    if labels is None:
        with pytest.raises(
            DataError, match=r"sample 0 is 'P/cat/0\.png' there and 'ant/0\.png' here"
        ):
            order()
    else:
        assert order().labels.tolist() == labels


@pytest.mark.parametrize(
    ("ours", "theirs", "rows"),
    [
        # One ends the other: whole names count first, as they are or below the common folder.
        (("a/0.png", "b/a/0.png"), ("b/a/0.png", "a/0.png"), [1, 0]),
        (("a/0.png", "b/a/0.png"), ("P/b/a/0.png", "P/a/0.png"), [1, 0]),
        (("ant/0.png", "bee/0.png"), ("x/bee/0.png", "y/ant/0.png"), [1, 0]),
        (("ant/0.png", "bee/1.png"), ("1.png", "0.png"), [1, 0]),
        (("ant/0.png", "ant/0.png"), ("ant/0.png", "ant/0.png"), [0, 1]),
        (("a\\b", "a/b"), ("a/b", "a\\b"), [1, 0]),
        (("a/0.png", "x/a/0.png"), ("p/a/0.png", "q/x/a/0.png"), None),
        (("ant/0.png", "bee/0.png", "c.png"), ("0.png", "c.png", "0.png"), None),
        (("a", "b"), ("a", "a"), None),
    ],
)
def test_names_are_compared_whole_before_by_their_ends(ours, theirs, rows):
    found = rows_in(theirs, ours)
    assert (None if found is None else found.tolist()) == rows


def test_the_column_that_tells_samples_apart_matches_them(named):
    folder, names = named
    labels = [f"class{i}" for i in range(6)]
    order = [3, 0, 5, 1, 2, 4]
    file = str(folder / "l.csv")
    # A column that says the same of all, one of numbers of their own, and none.
    for ours, theirs in ((["cup"] * 6, ["cup"] * 6), ([*"uvwxyz"], [*"ghijkl"]), ([*"uvwxyz"], 0)):
        np.savez(folder / "e.npz", embeddings=np.eye(6), name=np.array(ours), path=names)
        frame = pd.DataFrame({"path": names, "label": labels}).iloc[order]
        (frame if theirs == 0 else frame.assign(name=theirs)).to_csv(file, index=False)
        assert labelled(str(folder / "e.npz"), file, "LABELS").labels.tolist() == labels
        assert read_names(folder / "e.npz")[:1] == (names[:1] if ours[0] == "cup" else ["u"])
    frame = frame.assign(name="cup", path=[*names[1:], "photos/9.jpg"])
    frame.to_csv(file, index=False)  # of other samples, though one column agrees
    np.savez(folder / "e.npz", embeddings=np.eye(6), name=["cup"] * 6, path=names)
    with pytest.raises(DataError, match="names other samples"):
        labelled(str(folder / "e.npz"), file, "LABELS")
    frame[["name", "label"]].to_csv(file, index=False)  # nothing better: as they stand
    assert labelled(str(folder / "e.npz"), file, "LABELS").labels.tolist() == frame.label.tolist()


@pytest.mark.parametrize("ours", ["csv", "parquet"])
@pytest.mark.parametrize("theirs", ["csv", "parquet"])
def test_the_nameless_index_of_a_frame_is_its_names_if_it_holds_some(tmp_path, ours, theirs):
    def labels_read(index):
        points = pd.DataFrame(np.eye(6), columns=[f"d{i}" for i in range(6)], index=index)
        labels = pd.DataFrame({"label": [f"class{i}" for i in range(6)]}, index=index)
        files = [str(tmp_path / f"e.{ours}"), str(tmp_path / f"l.{theirs}")]
        for frame, file in zip((points, labels.iloc[[3, 0, 5, 1, 2, 4]]), files, strict=True):
            getattr(frame, f"to_{file.rsplit('.')[-1]}")(file)
        assert read_embeddings(files[0]).shape == (6, 6)
        assert ("name" in read_beside(files[1])) == (index[0] == "0.jpg")
        return labelled(*files, "LABELS").labels.tolist()

    assert labels_read([f"{i}.jpg" for i in range(6)]) == [f"class{i}" for i in range(6)]
    assert labels_read(list("aabbcc"))[0] == "class3"  # a text that several have names no samples


def test_labels_decided_to_be_wrong_do_not_count_as_any_others(named, capsys):
    folder, names = named
    lines = [f"{i},{'ab'[i % 2]},{float(i > 1)},,{name},a" for i, name in enumerate(names)]
    file = folder / "labels-corrected.csv"
    file.write_text("\n".join(["index,label,weight,decision,name,given_label", *lines]))
    found = labelled(str(folder / "e.npz"), str(file), "LABELS").labels
    assert found.tolist() == list("ababab")  # weight 0 alone: the audit flagged them
    file.write_text(file.read_text().replace("0.0,,", "0.0,wrong,"))
    for command in (["evaluate"], ["audit", "-o", folder / "found"]):
        code, _, err = run(capsys, *command, folder / "e.npz", file)
        assert code == 2
        assert "2 labels were decided to be wrong, and no right one is known." in err


def test_names_of_one_side_may_be_the_ids_of_the_other(tmp_path):
    file, order = str(tmp_path / "l.csv"), [3, 0, 5, 1, 2, 4]
    pd.DataFrame({"id": order, "label": [*"abcdef"]}).to_csv(file, index=False)
    named = {"name": [str(i) for i in range(6)]}
    beside = Labelled(np.array([*"abcdef"]), columns_of(file, 6))
    assert "".join(in_order_of(named, beside, file, "x").labels) == "bdeafc"
    named["name"][2] = "two"  # names that are no ids: as they stand
    assert "".join(in_order_of(named, beside, file, "x").labels) == "abcdef"


@pytest.mark.parametrize("ours", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("theirs", ["csv", "parquet"])
@pytest.mark.parametrize("column", [None, "Unnamed: 0", "id", "sample_index"])
def test_numbers_that_both_files_give_their_samples_match_them(tmp_path, ours, theirs, column):
    """A table that was shuffled keeps the numbers of its rows; without a column, as its index."""
    labels, order = [f"class{i}" for i in range(6)], [3, 0, 5, 1, 2, 4]

    def labels_read(our_numbers, their_numbers):
        frames = [
            pd.DataFrame(np.eye(6), columns=[f"d{i}" for i in range(6)], index=our_numbers),
            pd.DataFrame({"label": labels}, index=their_numbers).iloc[order],
        ]
        if column is not None:
            frames = [frame.reset_index(names=column) for frame in frames]
        files = [str(tmp_path / f"e.{ours}"), str(tmp_path / f"l.{theirs}")]
        for frame, file in zip(frames, files, strict=True):
            if file.endswith("npz"):
                np.savez(file, embeddings=np.eye(6), **{column or "unnamed: 0": our_numbers})
            else:
                getattr(frame, f"to_{file.rsplit('.')[-1]}")(file, index=column is None)
        return labelled(*files, "LABELS").labels.tolist()

    rows = [7, 3, 9, 1, 4, 2]
    assert labels_read(rows, rows) == labels
    shuffled = [labels[i] for i in order]
    if column in ("id", "sample_index"):
        with pytest.raises(DataError, match="names other samples than"):
            labels_read(rows, [8, *rows[1:]])
    else:
        assert labels_read(rows, [8, *rows[1:]]) == shuffled  # counted anew, once
    assert labels_read([1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 3, 3]) == shuffled  # of no single sample


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
def test_what_numbers_the_samples_stays_beside_labels_that_noise_made_wrong(tmp_path, kind, capsys):
    order, x = [7, 3, 9, 1, 4, 2, 0, 8, 6, 5], np.eye(5).repeat(2, 0)
    labels = pd.DataFrame({"label": [*"aabbccddee"]}).iloc[order]
    file, points = tmp_path / f"l.{kind}", pd.DataFrame(x, columns=[*"vwxyz"])
    if kind == "npz":
        np.savez(file, labels=labels["label"].to_numpy(str), sample_index=order)
        points = points.reset_index(names="sample_index")
    else:
        getattr(labels, f"to_{kind}")(file)
    points.to_csv(tmp_path / "e.csv", index=kind != "npz")
    made = tmp_path / "noisy.csv"
    assert run(capsys, "noise", file, "--rate", "0.2", "-o", made)[0] == 0
    found = labelled(str(tmp_path / "e.csv"), str(made), "LABELS").labels
    assert (found == np.array([*"aabbccddee"])).sum() == 8
