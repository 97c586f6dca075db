"""Decisions of a person: read, applied, written, and refused by line."""

import csv
import io

import numpy as np
import pytest

from bspml.data.labels.decisions import (
    CorrectedLabels,
    apply_decisions,
    is_corrected,
    read_corrected,
    read_decisions,
    write_corrected,
)
from bspml.data.labels.own_labels import located
from bspml.data.retrieval import Origin
from bspml.errors import DataError, InputError
from bspml.files.cells import label_cells, plain_labels, protected_cell
from bspml.files.tables import read_labels


@pytest.fixture
def write(tmp_path):
    def write(text, name="decisions.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        return path

    return write


def test_right_wrong_unsure_and_relabelled(write):
    path = write(
        "index,label,decision,new_label\r\n3,d,wrong,\r\n0,a,right,\r\n"
        "1,b,wrong,z z\r\n2,c,unsure,\r\n"
    )
    made = read_decisions(path)
    assert [(d.index, d.verdict, d.new_label) for d in made] == [
        (0, "right", ""),
        (1, "wrong", "z z"),
        (2, "unsure", ""),
        (3, "wrong", ""),
    ]
    corrected = apply_decisions(list("abcde"), made, [0, 0, 0.25, 1, 0.5])
    assert corrected.labels.tolist() == ["a", "z z", "c", "d", "e"]
    assert corrected.weights.tolist() == [1, 1, 0.25, 0, 0.5]
    assert corrected.decisions.tolist() == ["right", "wrong", "unsure", "wrong", ""]
    assert corrected.fixed.tolist() == [True, True, False, True, False]


def test_a_byte_order_mark_capitals_extra_columns_and_repetition_are_fine(write):
    path = write("\ufeffDecision,note,INDEX,label,old_label\nRight,x, 4,,a\nright,y,4,,\n")
    assert [(d.index, d.verdict) for d in read_decisions(path)] == [(4, "right")]
    assert read_decisions(write("index,decision\n")) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("index,label\n0,a\n", "has no column `decision`"),
        ("", "has no column `index`.*an empty file"),
        (
            "index,decision,new_lable\n0,wrong,b\n",
            "has a column `new_lable`, which nothing reads; did you mean `new_label`\\? Rename",
        ),
        ("index,decision,label,names\n0,wrong,b,n\n", "`names`.*did you mean `name`\\?"),
        ("index,decision\n0,maybe\n", "line 2: `decision` must be one of right, wrong, unsure"),
        ("index,decision\n1.5,right\n", "line 2: `index` must be a whole number; got '1.5'"),
        ("index,decision\n0,right,3\n", "line 2: has 3 cells; expected 2"),
        ("index,decision\n0\n", "line 2: has 1 cell; expected 2"),
        ("index,decision\n\u0661,right\n", "line 2: `index` must be a whole number"),
        ("index,index,decision\n0,1,right\n", "has 2 columns `index`; keep one"),
        ("index,decision,label,label\n0,right,a,b\n", "has 2 columns `label`"),
        ("index,decision,new_label\n0,wrong,a\0b\n", "NUL"),
        (
            "index,decision,label\n0,wrong,a\n0,wrong,\n0,wrong,dog\n",
            "line 4: sample 0 has the label 'dog', but .*line 2 says 'a'",
        ),
        (
            "index,decision\n0,right\n5,wrong\n0,wrong\n",
            "line 4: sample 0 is wrong, but .* line 2 says right",
        ),
        (
            "index,decision,new_label\n0,wrong,b\n0,wrong,c\n",
            r"sample 0 is wrong \('c'\), but .* line 2 says wrong \('b'\)",
        ),
        (
            "index,label,decision,new_label\n0,a,right,b\n",
            "line 2: sample 0 has the new label 'b', but its label is right",
        ),
    ],
)
def test_bad_lines_are_refused_by_number(write, text, message):
    with pytest.raises(DataError, match=message):
        read_decisions(write(text))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("9,a,right,", "line 2: there is no sample 9; the data has 3, 0 to 2"),
        ("-1,a,right,", "there is no sample -1"),
        ("1,zebra,right,", "sample 1 has the label '4' here, the decision was about 'zebra'"),
        ("1,4,wrong,cat", "the labels are whole numbers; got the new label 'cat'"),
        ("1,4,wrong,4", "its new label '4' is the old one"),
    ],
)
def test_decisions_about_other_data_are_refused(write, row, message):
    made = read_decisions(write(f"index,label,decision,new_label\n{row}\n"))
    labels = np.array([3, 4, 5])
    with pytest.raises(DataError, match=message):
        apply_decisions(labels, made)
    assert labels.tolist() == [3, 4, 5]


def test_weights_must_be_one_per_label():
    with pytest.raises(InputError, match=r"\(2,\) like the labels; got \(3,\)"):
        apply_decisions([1, 2], [], [1, 1, 1])
    with pytest.raises(InputError, match=r"`weights` must be in \[0, 1\]; rows 1 are not"):
        apply_decisions([1, 2], [], [1, np.nan])
    with pytest.raises(InputError, match=r"`names` must be one per label, \(2,\); got 3"):
        apply_decisions([1, 2], [], names=["a", "b", "c"])


def test_missing_and_foreign_files_are_named(tmp_path, write):
    with pytest.raises(DataError, match=r"nowhere.csv: no such file"):
        read_decisions(tmp_path / "nowhere.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00index")
    with pytest.raises(DataError, match="cannot be read as a CSV file in UTF-8"):
        read_decisions(tmp_path / "binary.csv")


HOSTILE = [
    "=1+1",
    "'quoted",
    "007",
    "a,b",
    'say "x"',
    "line\nbreak",
    "-5",
    "@x",
    "ü 漢",
    "nan",
    "a ",
]


def test_hostile_labels_survive_the_round_trip(tmp_path, write):
    labels = np.array(HOSTILE)
    cells = ",".join(["0", '"' + protected_cell("=2+2").replace('"', '""') + '"'])
    made = read_decisions(write(f"index,new_label,decision\n{cells},wrong\n"))
    corrected = apply_decisions(labels, made, np.linspace(0, 1, len(labels)))
    path = write_corrected(tmp_path / "labels-corrected.csv", corrected)
    back = read_corrected(path)
    assert back.labels.tolist() == ["=2+2", *HOSTILE[1:]]
    assert back.weights.tolist() == corrected.weights.tolist()
    assert back.decisions.tolist() == corrected.decisions.tolist()


def test_label_readers_take_the_corrected_file(tmp_path):
    corrected = CorrectedLabels(np.array([3, -4]), np.ones(2), np.array(["", "wrong"]))
    path = write_corrected(tmp_path / "labels.csv", corrected)
    assert read_labels(path).tolist() == [3, -4]
    assert read_corrected(path).labels.tolist() == [3, -4]
    words = CorrectedLabels(np.array(["=x", "y z"]), np.ones(2), np.array(["", ""]))
    assert read_labels(write_corrected(path, words)).tolist() == ["=x", "y z"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("index,label,weight,decision\n0,a,1,\n0,b,1,\n", "each once; 1 missing"),
        ("index,label,weight,decision\n0,a,2,\n", "line 2: a weight is in"),
        ("index,label,weight,decision\n0,a,nan,\n", "line 2: a weight is in"),
        ("index,label,weight,decision\n0,a,1,perhaps\n", "`decision` must be empty or one of"),
        ("index,label,weight,decision\nx,a,1,\n", "each once; 0 missing, and a row has 'x'"),
        ("index,label,weight,decision\n", "holds no labels"),
        ("index,label\n0,a\n", "has no column `weight`"),
    ],
)
def test_damaged_corrected_files_are_refused(write, text, message):
    with pytest.raises(DataError, match=message):
        read_corrected(write(text))


# --- labels as they stand ------------------------------------------------------------------------


def decided(write, labels, index, label, new_label):
    """The page's own line, read and applied."""
    text = io.StringIO()
    cells = label_cells(plain_labels(np.array([label, new_label], dtype=np.asarray(labels).dtype)))
    csv.writer(text).writerows(
        [["index", "label", "decision", "new_label"], [index, cells[0], "wrong", cells[1]]]
    )
    return apply_decisions(labels, read_decisions(write(text.getvalue())))


@pytest.mark.parametrize(
    "labels",
    [
        np.array([True, False, True]),
        np.array([7, 250, 7], np.uint8),
        np.array([7, -120, 7], np.int8),
        np.array([7, 2**62, 7]),
        np.array([7, 2**64 - 1, 7], np.uint64),
        np.array([7, 9, 7], ">i8"),
        *(
            np.array(pair)
            for pair in (
                ["c0", "c0 ", "c0"], ["\ufeff5", "5", "5"], ["=1", "'=1", "=1"],
                ["nan", "NaN", "x"],
                ["\x1c5", "\x85b", "b"], ["a\ud800", "a\udcff", "b"], ["\xa0q", "q", "q"],
            )
        ),
    ],
)  # fmt: skip
def test_whatever_the_page_writes_is_applied_and_read_back(tmp_path, write, labels):
    for index in (0, 1):
        old, new = labels[index], labels[1 - index]
        corrected = decided(write, labels, index, old, new)
        expected = labels.astype(object)
        expected[index] = new
        assert corrected.labels.tolist() == expected.tolist()
        path = write_corrected(tmp_path / "corrected.csv", corrected)
        assert is_corrected(path)
        for back in (read_corrected(path).labels, read_labels(path)):
            assert back.tolist() == corrected.labels.tolist()


@pytest.mark.parametrize(
    ("new_label", "taken"),
    [("c1 ", "c1 "), (" c0", "c0"), ("\u3000c1\t", "c1"), (" new one", " new one"), ("q", "q")],
)
def test_a_new_label_loses_spaces_only_where_it_is_no_class_with_them(write, new_label, taken):
    labels = np.array(["c2", "c0", "c1", "c1 ", "\xa0q"])
    path = write(f"index,decision,new_label\n0,wrong,{new_label}\n")
    assert apply_decisions(labels, read_decisions(path)).labels[0] == taken


def test_the_label_decided_on_may_be_stripped_but_not_be_another_class(write):
    path = write("index,label,decision\n0,c0,right\n")
    assert apply_decisions(np.array(["c0 ", "c1"]), read_decisions(path)).weights[0] == 1
    with pytest.raises(DataError, match="sample 0 has the label 'c0 ' here"):
        apply_decisions(np.array(["c0 ", "c0"]), read_decisions(path))


@pytest.mark.parametrize("spelled", ["007", "+5", "1_0", "5.0", "٣"])
def test_a_number_has_one_spelling(write, spelled):
    made = read_decisions(write(f"index,decision,new_label\n0,wrong,{spelled}\n"))
    with pytest.raises(DataError, match="the labels are whole numbers; got the new label"):
        apply_decisions(np.array([1, 2]), made)


def test_numbers_become_as_wide_as_they_must_or_are_refused(write):
    made = read_decisions(write("index,decision,new_label\n0,wrong,300\n1,wrong,-1\n"))
    assert apply_decisions(np.array([7, 8], np.uint8), made).labels.tolist() == [300, -1]
    made = read_decisions(write(f"index,decision,new_label\n0,wrong,{2**63}\n"))
    assert apply_decisions(np.array([7, 8]), made).labels.tolist() == [2**63, 8]
    for labels, new in (([7, -1], 2**63), ([7, 8], 2**64), ([7, 8], -(2**63) - 1)):
        made = read_decisions(write(f"index,decision,new_label\n0,wrong,{new}\n"))
        with pytest.raises(DataError, match=r"line 2: the new label .* do not fit into 64 bits"):
            apply_decisions(np.array(labels), made)


def test_lines_on_one_sample_that_differ_are_refused_whatever_their_index(write):
    """Two rounds put together: the names find one sample under two indices."""
    labels, names = np.array(list("aabb")), ("a/0", "a/1", "b/2", "b/3")
    head = "index,label,decision,new_label,name\n1,a,wrong,b,a/1\n"
    for other in ("7,a,right,,a/1", "7,a,wrong,,./a/1", "7,a,wrong,c,a/1", "7,a,unsure,,a/1"):
        found, _ = located(read_decisions(write(f"{head}{other}\n")), Origin(labels, names))
        with pytest.raises(DataError, match=r"line 3: decides on '.*a/1' otherwise than .* line 2"):
            apply_decisions(labels, found)
    found, _ = located(read_decisions(write(f"{head}7,a,wrong,b,a/1\n")), Origin(labels, names))
    assert apply_decisions(labels, found).labels.tolist() == list("abbb")


def test_an_index_beyond_all_integers_is_none_of_the_data(write):
    with pytest.raises(DataError, match="line 2: there is no sample 1000"):
        located(read_decisions(write(f"index,decision\n{10**30},right\n")), Origin(np.array(["a"])))
