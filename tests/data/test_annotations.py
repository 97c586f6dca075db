"""Annotation lists: odd line ends are fine, paths that leave the folder are not."""

import os
import re

import pytest

from bspml.data.annotations import Row, column, holding, image_root, locate, read_rows, safe_paths
from bspml.errors import DataError


def test_blanks_line_ends_and_marks_do_not_matter(tmp_path):
    path = tmp_path / "l.txt"
    path.write_bytes(b"\xef\xbb\xbfhead\r\n1  a b.jpg   \r\n\r\n2\tc.jpg\r\n\r\n")
    rows = read_rows(path, ("id", "path"), skip=1)
    assert [row.fields for row in rows] == [("1", "a b.jpg"), ("2", "c.jpg")]
    assert [row.line for row in rows] == [2, 4]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n"])
def test_a_header_is_skipped_whatever_ends_the_lines(tmp_path, end):
    path = tmp_path / "l.txt"
    path.write_bytes(end.join(["3", "id path", "1 a.jpg", "2 b.jpg"]).encode())
    rows = read_rows(path, ("id", "path"), skip=2)
    assert [row.fields for row in rows] == [("1", "a.jpg"), ("2", "b.jpg")]


def test_short_lines_and_what_is_no_list_are_named(tmp_path):
    path = tmp_path / "l.txt"
    path.write_text("1 a\n2\n")
    with pytest.raises(DataError, match=r"l\.txt, line 2: expected id path; got '2'"):
        read_rows(path, ("id", "path"))
    path.write_bytes(b"\xff\xfe1")
    with pytest.raises(DataError, match=r"l\.txt: is not text"):
        read_rows(path, ("id", "path"))
    with pytest.raises(DataError, match=r"m\.txt: is missing"):
        read_rows(tmp_path / "m.txt", ("id",))
    os.mkfifo(tmp_path / "p.txt")
    with pytest.raises(DataError, match=r"p\.txt: is a pipe"):
        read_rows(tmp_path / "p.txt", ("id",))
    with pytest.raises(DataError, match="is a folder, not a list"):
        read_rows(tmp_path, ("id",))


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../x.jpg",
        "a/../../x.jpg",
        "a/..",
        "..\\x.jpg",
        "C:/x.jpg",
        "\\\\h\\x",
        "half\ud800",
        "",
        ".",
    ],
)
def test_paths_that_leave_the_folder_are_refused(tmp_path, path):
    with pytest.raises(DataError, match=r"l\.txt, line 7: .* is not a path inside the data set"):
        safe_paths([Row(("1", "a.jpg"), 3), Row(("2", path), 7)], 1, tmp_path / "l.txt")


def test_a_path_is_no_longer_than_systems_take(tmp_path):
    with pytest.raises(DataError, match=r"line 1: 'a{119}.* is not a path inside"):
        safe_paths([Row(("a" * 4097,), 1)], 0, tmp_path)


def test_other_paths_are_kept_with_forward_slashes(tmp_path):
    for given, kept in (
        ("a/b.jpg", "a/b.jpg"),
        ("./a//b", "a/b"),
        ("a\\b.JPG", "a/b.JPG"),
        ("..a/b..", "..a/b.."),
    ):
        assert safe_paths([Row((given,), 1)], 0, tmp_path) == (kept,)


@pytest.mark.parametrize("text", ["1_0", "\u0661", "５"])
def test_numbers_are_of_plain_digits(tmp_path, text):
    for kind in (int, float):
        with pytest.raises(DataError, match=f"line 2: x must be a.* number; got '{text}'"):
            column([Row((text,), 2)], 0, tmp_path, "x", kind)


def test_numbers_name_their_line(tmp_path):
    rows = [Row(("7", "065"), 2), Row(("7.5", "a"), 3)]
    assert column(rows[:1], 0, tmp_path, "x") == [7]
    assert column(rows[:1], 1, tmp_path, "x", float) == [65]
    with pytest.raises(DataError, match=r"line 3: the id must be a whole number; got '7\.5'"):
        column(rows, 0, tmp_path, "the id")
    with pytest.raises(DataError, match="line 3: a box must be a number; got 'a'"):
        column(rows, 1, tmp_path, "a box", float)


def test_the_folder_with_the_files_is_found(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    with pytest.raises(DataError, match=r"a\.txt, b\.txt are missing there\. .* holds sub\. Get"):
        locate(tmp_path, ("", "sub"), ("a.txt", "b.txt"), "Get it.")
    (tmp_path / "sub/a.txt").touch()
    with pytest.raises(DataError, match=r"sub: b\.txt is missing there"):
        locate(tmp_path, ("", "sub"), ("a.txt", "b.txt"), "Get it.")
    (tmp_path / "sub/b.txt").touch()
    assert locate(tmp_path, ("", "sub"), ("a.txt", "b.txt"), "") == tmp_path / "sub"
    said = r"no: no such folder, in which a\.txt should be\. .* holds sub\. Get it\."
    with pytest.raises(DataError, match=said):
        locate(tmp_path / "no", ("",), ("a.txt",), "Get it.")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"^no: .* be\. The current folder holds sub\. Get it\.$"):
        locate("no", ("",), ("a.txt",), "Get it.")
    for name in "fedcba":
        (tmp_path / "sub" / name).touch()
    more = r" .*sub holds a, a\.txt, b, b\.txt, c, \.\.\. \(8 in all\)\."
    assert re.fullmatch(more, holding(tmp_path / "sub"))
    assert holding(tmp_path / "none") == ""
    assert image_root(tmp_path, ("", "sub"), ["a.txt"]) == tmp_path / "sub"
    assert image_root(tmp_path, ("sub",), ["nowhere/a"]) == tmp_path / "sub"
