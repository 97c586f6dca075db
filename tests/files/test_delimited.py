"""Delimited text: read as it was written, by name of column, and refused by file and line."""

import csv
import io
import os
import sys

import pytest
from hypothesis import given, strategies as st

from bspml.errors import DataError, RunError
from bspml.files.delimited import read_rows, read_table, write_table

# The csv of Python 3.10 knows no NUL.
_TEXT = st.text(
    st.characters(exclude_characters="\0" if sys.version_info < (3, 11) else ""), max_size=6
)


@given(st.lists(_TEXT, min_size=1, max_size=5))
def test_any_text_is_read_as_it_was_written(tmp_path_factory, cells):
    path = write_table(tmp_path_factory.mktemp("t") / "t.csv", {"a": cells, "b": range(len(cells))})
    rows = [row.cells for row in read_table(path, ("b", "a"))]
    assert rows == [{"a": cell, "b": str(i)} for i, cell in enumerate(cells)]


def test_lines_end_as_rfc_4180_says_and_names_of_files_survive(tmp_path):
    path = write_table(tmp_path / "t.csv", {"a": ["x,y", os.fsdecode(b"caf\xe9")]})
    assert path.read_bytes() == b'a\r\n"x,y"\r\ncaf\xed\xb3\xa9\r\n'
    assert read_table(path, ["a"])[1].cells == {"a": "caf\udce9"}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n", "\n, ,\n"])  # as a spreadsheet leaves
def test_columns_are_found_in_any_order_and_case(tmp_path, end):
    path = tmp_path / "t.csv"
    text = end.join(["\ufeff Note,INDEX,label", "x,0,a", "y,1,b", ""])
    path.write_bytes(text.encode())
    rows = read_table(path, ("index", "label"))
    assert [row.cells["label"] for row in rows] == ["a", "b"]
    assert rows[1].where == f"{path}: line {3 if len(end) < 2 or end[0] == chr(13) else 5}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "has no column `a`; expected commas between a, b; got an empty file"),
        ("a;b\n", "has no column `a`; expected commas between a, b; got a;b"),
        ("a,b,a\n", "has 2 columns `a`; keep one"),
        ("a,b,c,c\n1,2,3,4\n", "has 2 columns `c`; keep one"),
        ("a,b\n1,2\n1,2,3\n", "line 3: has 3 cells; expected 2, a, b"),
        ('a,b\n1,"2\n', r"cannot be read as a CSV file \(unexpected end of data"),
        (b"a,b\n1,\xff\xff\n", "cannot be read as a CSV file .*utf-8"),
        ("a,b\n1,2\n\ufeffa,b\n", r"cannot be read as a CSV file \(line 3 has a byte order mark"),
    ],
)
def test_other_tables_are_refused_in_the_class_of_the_reader(tmp_path, content, message):
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for error in (DataError, RunError):
        with pytest.raises(error, match=rf"t\.csv: {message}"):
            read_table(path, ("a", "b"), ("c",), error=error)


def test_columns_no_reader_asks_for_may_share_a_name(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,,\n1,,\n\n")
    assert len(read_table(path, ["a"])) == 1


def test_rows_come_with_the_line_they_end_on():
    rows = list(read_rows(io.BytesIO(b'a\t"b\nc"\n\nd\n'), "\t"))
    assert rows == [(("a", "b\nc"), 2), ((), 3), (("d",), 4)]
    with pytest.raises(csv.Error):
        list(read_rows(io.BytesIO(b'"a"b\n')))
