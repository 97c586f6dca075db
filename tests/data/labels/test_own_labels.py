"""A person's corrections find their samples, whatever part of the data trains."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bspml.data.labels.decisions import (
    apply_decisions,
    read_corrected,
    read_decisions,
    write_corrected,
)
from bspml.data.labels.own_labels import located, own_labels, rows_by_name
from bspml.data.picture_keys import picture_keys
from bspml.data.retrieval import Origin, RetrievalData, RetrievalSplit, half_of_classes
from bspml.errors import DataError, InputError

# Rows of the classes that train (a, b) lie between those that are held out (c, d).
LABELS = np.array(list("caabdbcd"))
NAMES = tuple(f"{label}/{i}.jpg" for i, label in enumerate(LABELS))
TRAINS = [1, 2, 3, 5]


def parted(names=NAMES, trains=None):
    features = torch.arange(8.0)[:, None]
    whole = RetrievalSplit("train", LABELS, features=features, given_names=names)
    rows = half_of_classes(LABELS) if trains is None else trains
    return RetrievalData("features", whole.part("train", rows), whole.part("test", ~rows))


@pytest.fixture
def write(tmp_path):
    def write(text, name="decisions.csv"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def test_a_part_knows_where_its_samples_stand_in_the_whole():
    data = parted()
    assert data.train.rows.tolist() == TRAINS
    assert data.train.take([2, 0]).rows.tolist() == [3, 1]
    assert data.test.origin is data.train.origin
    assert data.train.origin.names == NAMES
    joined = data.train.joined(data.test)
    assert joined.rows.tolist() == [*TRAINS, 0, 4, 6, 7]
    assert joined.features[:, 0].tolist() == joined.rows.tolist()
    alone = RetrievalSplit("train", LABELS, features=torch.zeros(8, 1))
    assert alone.joined(data.test).rows.tolist() == list(range(12))


def test_whether_the_sides_share_classes_is_told_of_the_corrected_labels(write):
    trains = np.array([label in "ab" for label in LABELS])
    data = parted(trains=trains | (np.arange(8) == 6))  # a c that is a b
    data = RetrievalData.of(data.name, data.splits, data.ks)
    assert data.notes[0].startswith("Train and test share 1 of 2 classes, such as c")
    told = own_labels(data, None, write("index,label,decision,new_label,name\n6,c,wrong,b,c/6.jpg"))
    assert (told.data.train.classes.tolist(), told.data.notes) == (["a", "b"], ())


@pytest.mark.parametrize("alone", [False, True])
def test_decisions_on_labels_that_count_nowhere_are_told(write, alone):
    data = parted().without("a")
    if alone:  # the test lies in files of its own
        data = replace(data, test=replace(data.test, whole=None, whole_rows=None))
    file = write("index,label,decision,new_label,name\n1,a,wrong,b,a/1.jpg\n3,b,wrong,a,b/3.jpg\n")
    told = own_labels(data, None, file)
    assert told.data.train.rows.tolist() == [5]
    assert told.data.test.labels.tolist() == list("cdcd")
    assert [note for note in told.notes if "the evaluation keeps" not in note] == [
        "1 sample decided on, but of no split here (their label is left out, for one)",
        "1 sample left out, as the corrected label is one that is left out",
    ]


@pytest.mark.parametrize(
    "rows",
    [
        "99,b,wrong,,b/3.jpg\n98,b,right,,b/5.jpg\n",  # by name, whatever the index
        "99,b,wrong,,train/b/3.jpg\n98,b,right,,train/b/5.jpg\n",
        "3,b,wrong,,\n5,b,right,,\n",  # rows of the whole: there is no fifth training sample
        "2,b,wrong,,\n3,b,right,,\n",  # of the training samples: row 2 of the whole is an a
    ],
)
def test_decisions_find_their_samples(write, rows):
    told = own_labels(parted(), None, write("index,label,decision,new_label,name\n" + rows))
    assert told.data.train.rows.tolist() == TRAINS
    assert told.decided.decisions.tolist() == ["", "", "wrong", "right"]
    assert told.decided.weights.tolist() == [1, 1, 0, 1]
    assert told.notes == ()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("8,,right,,\n", "line 2: there is no sample 8; the data have 8 samples, of which 4 train"),
        ("0,x,right,,\n", "Are these decisions about other data"),
        ("0,,right,,\n", "can be those of all 8 samples or of the 4 that train. Add a column"),
        ("0,,right,,z.jpg\n", r"there is no sample 'z\.jpg' in these data.*first is 'c/0\.jpg'"),
    ],
)
def test_decisions_that_fit_nothing_or_twice_are_explained(write, rows, said):
    file = write("index,label,decision,new_label,name\n" + rows)
    with pytest.raises(DataError, match=said):
        own_labels(parted(), None, file)


PARTLY = "index,label,decision,new_label,name\n{}3,b,wrong,,\n"


def test_decisions_of_which_some_have_no_name_stand_at_their_rows_or_are_refused(write):
    told = own_labels(parted(), None, write(PARTLY.format("5,b,right,,train/b/5.jpg\n")))
    assert told.decided.decisions.tolist() == ["", "", "wrong", "right"]
    with pytest.raises(
        DataError, match=r"csv: line 2: names 'b/3\.jpg', but row 5 of .* 'b/5\.jpg'"
    ):
        own_labels(parted(), None, write(PARTLY.format("5,b,right,,b/3.jpg\n")))
    names = [*NAMES[:3], "", *NAMES[4:]]
    table = "\n".join(f"{label},{name}" for label, name in zip("caaddbcd", names, strict=True))
    told = own_labels(parted(), write(f"label,name\n{table}\n", "l.csv"))
    assert told.data.test.rows.tolist() == [0, 3, 4, 6, 7]
    lines = table.split("\n")
    moved = "\n".join(["label,name", *lines[1:], lines[0]])
    with pytest.raises(
        DataError, match=r"l\.csv: names 'a/1\.jpg', but row 0 of these data is 'c/0"
    ):
        own_labels(parted(), write(moved, "l.csv"))


def test_a_name_that_is_gone_is_noted_and_the_others_count(write):
    file = write("index,decision,name\n1,right,a/1.jpg\n2,right,gone.jpg\n")
    told = own_labels(parted(), None, file)
    assert told.decided.decisions.tolist() == ["right", "", "", ""]
    assert "1 decision is about samples that are not in these data" in told.notes[0]
    assert "'gone.jpg' (a test in a folder of its own keeps its labels)" in told.notes[0]


def test_a_corrected_sample_goes_to_the_side_of_its_class(write):
    rows = "0,c,wrong,a\n1,a,wrong,d\n4,d,wrong,\n5,b,wrong,new\n6,c,wrong,new\n"
    told = own_labels(parted(), None, write("index,label,decision,new_label\n" + rows))
    train, test = told.data.train, told.data.test
    assert dict(zip(train.rows.tolist(), train.labels, strict=True)) == {
        0: "a", 2: "a", 3: "b", 5: "new",
    }  # fmt: skip
    # 4 is wrong and nobody knows what it is: no query to be right about.
    assert dict(zip(test.rows.tolist(), test.labels, strict=True)) == {1: "d", 6: "new", 7: "d"}
    assert train.features[:, 0].tolist() == train.rows.tolist()
    assert told.decided.labels.tolist() == train.labels.tolist()
    assert told.decided.weights.tolist() == [1, 1, 1, 1]
    assert told.notes[0].startswith("2 samples get a class that no given label has: 'new' (2 sa")
    assert told.notes[1:] == (
        "2 samples change sides: the corrected label is a class of the other one",
        "left out of the evaluation: 1 sample decided to be wrong",
    )


def in_three(queries, trains=None):
    data = parted(trains=trains)
    is_query = np.isin(data.test.rows, queries)
    query, gallery = (data.test.part(*of) for of in (("query", is_query), ("gallery", ~is_query)))
    return RetrievalData("features", data.train, query, gallery)


def test_queries_and_gallery_take_their_labels_and_what_training_loses_joins_the_gallery(write):
    rows = "0,c,wrong,a\n1,a,wrong,d\n4,d,wrong,\n5,b,wrong,new\n6,c,wrong,d\n7,d,wrong,b\n"
    file = write("index,label,decision,new_label\n" + rows)
    told = own_labels(in_three([0, 4, 6]), None, file)
    assert [dict(zip(s.rows.tolist(), s.labels, strict=True)) for s in told.data.splits] == [
        {0: "a", 2: "a", 3: "b", 5: "new", 7: "b"}, {6: "d"}, {1: "d"},
    ]  # fmt: skip
    assert [split.name for split in told.data.splits] == ["train", "query", "gallery"]
    assert all(split.features[:, 0].tolist() == split.rows.tolist() for split in told.data.splits)
    assert told.notes[1:] == (
        "3 samples change sides: the corrected label is a class of the other one",
        "left out of the evaluation: 1 sample decided to be wrong",
    )
    # A class of the gallery trains, too: each sample stays where it is.
    data = in_three([1], trains=np.array([True, False] * 4))
    rows = "0,c,wrong,a\n1,a,wrong,b\n5,b,wrong,\n7,d,wrong,a\n"
    told = own_labels(data, None, write("index,label,decision,new_label\n" + rows))
    assert [dict(zip(s.rows.tolist(), s.labels, strict=True)) for s in told.data.splits] == [
        {0: "a", 2: "a", 4: "d", 6: "c"}, {1: "b"}, {3: "b", 7: "a"},
    ]  # fmt: skip


@pytest.mark.parametrize("three", [True, False])
def test_an_evaluation_of_other_files_keeps_its_labels_and_that_is_said(write, three):
    data = in_three([0, 4]) if three else parted()
    alone = [RetrievalSplit(s.name, s.labels, features=s.features) for s in data.splits]
    file = write("index,label,decision,new_label\n0,a,wrong,b\n")
    told = own_labels(RetrievalData.of("features", alone), None, file)
    assert [s.labels.tolist() for s in told.data.splits] == [
        [*"babb"], *(s.labels.tolist() for s in alone[1:])
    ]  # fmt: skip
    assert len(told.notes) == 1
    assert "evaluation keeps the labels it was given: it lies in files of its" in told.notes[0]


def test_classes_on_both_sides_keep_their_samples_there(write):
    trains = np.array([True, False] * 4)
    data = parted(trains=trains)
    file = write("index,decision,new_label,name\n0,wrong,a,c/0.jpg\n1,wrong,,a/1.jpg\n")
    told = own_labels(data, None, file)
    assert told.data.train.rows.tolist() == [0, 2, 4, 6]
    assert told.data.train.labels.tolist() == ["a", "a", "d", "c"]
    assert told.data.test.rows.tolist() == [3, 5, 7]


@pytest.mark.parametrize("names", [NAMES, None])
def test_corrected_labels_of_the_whole_are_those_of_the_decisions(tmp_path, write, names):
    file = write("index,label,decision,new_label\n0,c,wrong,a\n3,b,right,\n5,b,wrong,\n")
    corrected = apply_decisions(LABELS, read_decisions(file), names=names)
    write_corrected(tmp_path / "corrected.csv", corrected)
    lines = (tmp_path / "corrected.csv").read_text().splitlines()
    assert lines[0] == f"index,label,weight,decision{',name' if names else ''},given_label"
    by_labels = own_labels(parted(), str(tmp_path / "corrected.csv"))
    by_decisions = own_labels(parted(), None, file)
    one, other = by_labels.data.train, by_decisions.data.train
    assert one.labels.tolist() == other.labels.tolist()
    assert one.rows.tolist() == other.rows.tolist()
    for field in ("labels", "weights", "decisions"):
        got, wanted = getattr(by_labels.decided, field), getattr(by_decisions.decided, field)
        assert got.tolist() == wanted.tolist()


def test_labels_are_of_all_samples_or_of_those_that_train_or_named(write):
    whole = ["a", "b", "b", "a", "c", "b", "c", "d"]
    told = own_labels(parted(), write("\n".join(whole), "whole.txt"))
    assert told.decided is None
    assert dict(zip(told.data.train.rows.tolist(), told.data.train.labels, strict=True)) == {
        0: "a", 1: "b", 2: "b", 3: "a", 5: "b",
    }  # fmt: skip
    told = own_labels(parted(), write("b\nb\na\na", "train.txt"))
    assert told.data.train.labels.tolist() == ["b", "b", "a", "a"]
    told = own_labels(parted(), write("path,label\nb/3.jpg,a\nx.jpg,a\n", "named.csv"))
    assert told.data.train.labels.tolist() == ["a", "a", "a", "b"]
    assert "1 of its 2 rows names no sample" in told.notes[0]
    assert "does not name 7 samples, which keep their labels" in told.notes[1]
    said = "has 5 labels and no names; the data have 8 samples, of which 4 train"
    with pytest.raises(DataError, match=said):
        own_labels(parted(), write("a\nb\na\na\nb", "five.txt"))
    with pytest.raises(DataError, match=r"names no sample of these data; its first is 'x\.jpg'"):
        own_labels(parted(), write("path,label\nx.jpg,a\n", "other.csv"))
    with pytest.raises(DataError, match="names a sample twice"):
        own_labels(parted(), write("path,label\nb/3.jpg,a\nb/3.jpg,b\n", "twice.csv"))


def test_labels_that_were_changed_since_the_file_was_made_are_counted(write):
    text = "index,label,weight,decision,name,given_label\n" + "".join(
        f"{i},{row}\n"
        for i, row in enumerate(
            ["b,1,wrong,a/1.jpg,d", "d,1,,a/2.jpg,d", "d,1,,c/6.jpg,c", "d,1,wrong,b/3.jpg,b"]
        )
    )
    told = own_labels(parted(), write(text, "corrected.csv"))
    assert "2 labels were changed in these data since; those of the file count" in told.notes[1]


def test_decisions_on_data_in_another_order_are_refused_where_nothing_names_them(write):
    def corrected(given):
        rows = [f"{i},{c},1,,{c}" for i, c in enumerate(LABELS)]
        rows[1] = f"1,b,1,wrong,{given}"
        return write("\n".join(["index,label,weight,decision,given_label", *rows]), "corrected.csv")

    told = own_labels(parted(names=None), corrected("a"))
    assert dict(zip(told.data.train.rows.tolist(), told.data.train.labels, strict=True))[1] == "b"
    with pytest.raises(DataError, match=r"row 2 is a decision on .* 'd'; there the data have 'a'"):
        own_labels(parted(names=None), corrected("d"))


def test_names_that_do_not_tell_samples_apart_are_not_gone_by():
    assert rows_by_name(["a"], Origin(LABELS[:2], ("a", "a"))) is None
    assert rows_by_name(["a", ""], Origin(LABELS[:2], ("a", "b"))) is None
    assert rows_by_name(["a"], Origin(LABELS[:2])) is None
    assert rows_by_name(["./b", "c"], Origin(LABELS[:2], ("a", "b"))).tolist() == [1, -1]


@pytest.mark.parametrize("asked", [["./d/b", "d/c"], ["d\\b", ".\\d\\c"], ["train/d/b", "train/c"]])
@pytest.mark.parametrize("own", [("./d/a", "./d/b"), ("d\\a", "d\\b"), ("d/a", "d/b")])
def test_a_path_is_found_however_either_side_writes_it(asked, own):
    assert rows_by_name(asked, Origin(LABELS[:2], own)).tolist() == [1, -1]


def test_names_that_differ_only_in_how_a_path_is_written_are_found_as_written():
    own = Origin(LABELS[:3], ("./a", "a", "b\\c"))
    assert rows_by_name(["a", "./a", "b/c"], own).tolist() == [1, 0, -1]


def test_no_decision_is_about_nothing():
    assert located([], Origin(LABELS)) == ([], [])


# --- the photos decided on ------------------------------------------------------------------------

HEAD = "index,label,decision,new_label,name,picture\n"


@pytest.fixture
def photos(tmp_path):
    """Files in a folder per class, in halves of the classes, and a digest of each."""
    for number, name in enumerate(NAMES):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(bytes([number]))
    whole = RetrievalSplit("train", LABELS, root=tmp_path / "photos", paths=NAMES)
    trains = half_of_classes(LABELS)
    data = RetrievalData("folder", whole.part("train", trains), whole.part("test", ~trains))
    return data, [key.decode() for key in picture_keys(whole)]


@pytest.mark.parametrize("door", ["decisions", "labels"])
def test_a_decision_holds_for_its_photo_and_no_other_of_that_name(photos, write, tmp_path, door):
    data, keys = photos
    rows = f"3,b,wrong,,b/3.jpg,{keys[3]}\n5,b,right,,b/5.jpg,\n6,c,wrong,,c/6.jpg,{keys[6]}\n"
    file = write(HEAD + rows)
    if door == "labels":
        write_corrected(file, apply_decisions(LABELS, read_decisions(file), names=NAMES))
        assert read_corrected(file).pictures == tuple(
            keys[i] if i in (3, 6) else "" for i in range(8)
        )
    files = (file, None) if door == "labels" else (None, file)
    assert own_labels(data, *files).decided.decisions.tolist() == ["", "", "wrong", "right"]
    # One without a digest is found by name, as ever; and another photo takes the place of one.
    (tmp_path / "photos/b/5.jpg").write_bytes(b"another")
    assert own_labels(data, *files).decided.decisions.tolist() == ["", "", "wrong", "right"]
    (tmp_path / "photos/b/3.jpg").write_bytes(b"another")
    with pytest.raises(
        DataError, match=r"csv: (line 2: )?.*'b/3.jpg' is another picture here than"
    ):
        own_labels(data, *files)
    (tmp_path / "photos/c/6.jpg").write_bytes(b"another")  # held out: it matters there, too
    with pytest.raises(DataError, match=r"was decided on, and 1 more: another photo of that name"):
        own_labels(data, *files)
    (tmp_path / "photos/b/3.jpg").unlink()  # no photo at hand: names alone count
    (tmp_path / "photos/c/6.jpg").unlink()
    assert own_labels(data, *files).decided.decisions.tolist() == ["", "", "wrong", "right"]


def test_without_names_the_photo_of_the_row_is_looked_at(photos, write):
    data, keys = photos
    file = write(f"index,decision,label,picture\n5,right,b,{keys[5]}\n4,wrong,d,{keys[3]}\n")
    with pytest.raises(DataError, match=r"csv: line 3: 'd/4.jpg' is another picture here"):
        own_labels(data, None, file)


def test_decisions_on_a_split_of_its_own_are_none_on_training_photos_of_that_name(photos, write):
    data, keys = photos
    tested = replace(data.test, whole=None, whole_rows=None)  # in folders of their own
    trained = replace(data.train, whole=None, whole_rows=None)
    file = write(HEAD + f"0,b,wrong,,b/3.jpg,{keys[4]}\n")
    with pytest.raises(DataError, match=r"'b/3\.jpg' is another picture here"):
        own_labels(RetrievalData("folder", trained, tested), None, file)


@pytest.mark.parametrize("column", ["true_label", "is_noisy"])
def test_planted_wrong_labels_are_no_corrections(write, column):
    """Taken for these, samples went to the side of their wrong class, which judged them."""
    lines = [f"{name},{label},{label}" for name, label in zip(NAMES, LABELS, strict=True)]
    file = write("\n".join([f"name,label,{column}", *lines]), "noisy.csv")
    with pytest.raises(
        InputError, match=rf"`{column}`, so its labels have wrong ones .* remove {column}"
    ):
        own_labels(parted(), file)
    plain = write("\n".join(["name,label", *(line[:-2] for line in lines)]), "plain.csv")
    assert own_labels(parted(), plain).data.train.labels.tolist() == LABELS[TRAINS].tolist()
