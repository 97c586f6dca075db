"""Tables of the user's: what spreadsheets, pandas and other tools leave in text files."""

import pandas as pd
import pytest

from bspml.errors import DataError
from bspml.files.tables import read_beside, read_embeddings, read_labels, read_texts


def lines(path, *rows):
    path.write_bytes("\n".join([*rows, ""]).encode())
    return path


def test_a_plain_list_of_words_or_a_single_column_is_enough(tmp_path):
    (tmp_path / "y.txt").write_text("cat\ndog\n")
    assert read_labels(tmp_path / "y.txt").tolist() == ["cat", "dog"]
    (tmp_path / "y.csv").write_text("\ufeff1\n2\n")
    assert read_labels(tmp_path / "y.csv").tolist() == [1, 2]


def test_the_nameless_index_of_pandas_is_no_dimension(tmp_path):
    frame = pd.DataFrame({"d0": [1.5, 2.5], "d1": [3.5, 4.5]}, index=[7, 3])
    frame.to_csv(tmp_path / "e.csv")
    assert read_embeddings(tmp_path / "e.csv").tolist() == [[1.5, 3.5], [2.5, 4.5]]
    pd.read_csv(tmp_path / "e.csv").to_csv(tmp_path / "e.csv", index=False)  # "Unnamed: 0"
    assert read_embeddings(tmp_path / "e.csv").tolist() == [[1.5, 3.5], [2.5, 4.5]]
    frame.set_axis([0, 1], axis=1).to_csv(tmp_path / "e.csv", index=False)
    with pytest.raises(DataError, match="first row is 0, 1: are these names"):
        read_embeddings(tmp_path / "e.csv")
    assert len(read_embeddings(lines(tmp_path / "e.csv", "0,1", "1,0"))) == 2


def test_cells_are_numbers_only_as_python_writes_them(tmp_path):
    for name in ("y.csv", "y.txt"):
        assert read_labels(lines(tmp_path / name, "007", "7", "1_0")).tolist() == [
            "007",
            "7",
            "1_0",
        ]
    assert read_labels(lines(tmp_path / "y.txt", "'=x", "=x")).tolist() == ["'=x", "=x"]
    assert read_labels(lines(tmp_path / "y.csv", "label", "'=x", "'tis")).tolist() == ["=x", "'tis"]
    assert read_labels(lines(tmp_path / "y.csv", "nan", "a")).tolist() == ["nan", "a"]


def test_lines_end_as_on_any_system_and_nowhere_else(tmp_path):
    names = ["a\u2028b", "c\vd", "e\ff"]
    assert read_labels(lines(tmp_path / "y.txt", *names)).tolist() == names
    for content in ("a\nb\nc\nb\n", "a\rb\rc\rb\r", "a\r\nb\r\nc\r\nb\r\n", "a\r\nb\rc\nb"):
        for name in ("y.csv", "y.txt"):
            (tmp_path / name).write_bytes(content.encode())
            assert read_labels(tmp_path / name).tolist() == ["a", "b", "c", "b"]


def test_files_joined_end_to_end_are_told_of(tmp_path):
    marked = "\ufefflabel\ncat\n"
    for name, content in (("y.csv", marked * 2), ("y.csv", marked[:-1] * 2), ("y.txt", marked * 2)):
        (tmp_path / name).write_text(content, "utf-8")
        with pytest.raises(DataError, match=r"line [23] has a byte order mark inside: were files"):
            read_labels(tmp_path / name)
    table = ["name,label", "1.png,a", "2.png,b"]
    path = lines(tmp_path / "t.csv", *table, *table)
    for read in (read_labels, read_beside, lambda path: read_texts(path, ("name",))):
        with pytest.raises(
            DataError,
            match=r"row 4 says the names of the columns again.*names nothing, put",
        ):
            read(path)
    assert read_labels(lines(path, *table, "name,c")).tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (["label", "1"], [1]),
        (["y", "n", "y"], ["y", "n", "y"]),
        (["species", "1", "2"], [1, 2]),
        (["species", "cat"], ["species", "cat"]),
        (["7"], [7]),
        (["099", "100", "101"], ["099", "100", "101"]),  # no name of a column
        (["# species", "1", "2"], [1, 2]),  # as numpy.savetxt writes it
        (["+1", "2"], ["+1", "2"]),
        (["0x1", "2"], ["0x1", "2"]),
    ],
)
def test_one_column_has_a_header_only_where_it_must_be_one(tmp_path, rows, labels):
    for name in ("y.csv", "y.txt"):
        assert read_labels(lines(tmp_path / name, *rows)).tolist() == labels


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["index;label", "0;a"], "seem to be separated by ';', not ','"),
        (["index\tlabel", "0\ta"], r"seem to be separated by '\\t', not ','"),
        (["label,label", "a,b"], "has 2 columns `label`; keep one"),
        (["index,index,label", "0,0,b"], "has 2 columns `index`"),
        (["label", '"a', "b"], "unexpected end of data"),
        (["label", "a", "", "b"], "row 2 has an empty label"),
        (["label", "'"], "row 1 has an empty label"),
        (["label", "a\0"], "NUL"),
    ],
)
def test_tables_that_could_be_read_wrongly_are_refused(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        read_labels(lines(tmp_path / "y.csv", *rows))


@pytest.mark.parametrize("missing", ["nan", "None", "NULL", "<NA>"])
@pytest.mark.parametrize("name", ["y.csv", "y.txt"])
def test_something_missing_among_numbers_is_no_class(tmp_path, missing, name):
    for numbers in (["1", "2"], ["1.0", "2.0"]):
        path = lines(tmp_path / name, numbers[0], missing, numbers[1])
        with pytest.raises(DataError, match=f"row 2 has the label '{missing}' where all others"):
            read_labels(path)
    assert read_labels(lines(tmp_path / name, "a", missing, "2")).tolist() == ["a", missing, "2"]
    # Said to be text, as bspml writes it.
    told = lines(tmp_path / "y.csv", "label", "'1", f"'{missing}", "'2")
    assert len(set(read_labels(told))) == 3


@pytest.mark.parametrize("name", ["y.csv", "y.txt"])
def test_names_that_are_no_text_survive_in_labels(tmp_path, name):
    labels = ["a\ud800", "b\udcff", "\U0001f600"]
    (tmp_path / name).write_bytes("\n".join(labels).encode("utf-8", "surrogatepass"))
    assert read_labels(tmp_path / name).tolist() == labels


def test_a_quote_left_open_is_told_of_by_the_label_that_it_makes(tmp_path):
    path = lines(tmp_path / "y.csv", "name,label", '1,"cat', "2,dog", '3,cat"', "4,dog")
    with pytest.warns(UserWarning, match=r"1 label runs over several lines, .*'cat\\n2,dog"):
        assert len(read_labels(path)) == 2
