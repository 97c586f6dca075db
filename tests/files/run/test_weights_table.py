import csv
import os

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from bspml.errors import InputError, RunError
from bspml.files.run import WeightsTable, read_weights, write_weights

HEAD = "index,label,weight,flags\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.csv"


def write(path, labels, weights, flags=None, **columns):
    weights = np.asarray(weights)
    flags = ((),) * len(weights) if flags is None else flags
    return write_weights(path, WeightsTable(np.asarray(labels), weights, flags, **columns))


def test_the_table_reads_back_exactly(path):
    weights = torch.rand(5, generator=torch.Generator().manual_seed(0))
    write(
        path,
        [7, -1, 7, 3, 3],
        weights.numpy(),
        flags=[(), ("untestable",), ("a", "b"), (), ()],
        is_noisy=np.array([True, False, False, True, False]),
        is_outlier=np.array([True, False, False, False, False]),
        true_labels=np.array(["x", "y", "x", "=1", ""]),
        names=["a/1.jpg", "=b.jpg", "", "2", "x"],
    )
    table = read_weights(path)
    assert table.labels.tolist() == [7, -1, 7, 3, 3]
    assert np.array_equal(table.weights.astype(np.float32), weights.numpy())
    assert table.flags == ((), ("untestable",), ("a", "b"), (), ())
    assert table.is_noisy.tolist() == [True, False, False, True, False]
    assert table.is_outlier.tolist() == [True, False, False, False, False]
    assert table.true_labels.tolist() == ["x", "y", "x", "=1", ""]
    assert table.names == ("a/1.jpg", "=b.jpg", "", "2", "x")


def test_a_person_reads_short_numbers(path):
    write(path, ["cat"], torch.tensor([0.1]).numpy())
    assert path.read_text() == "index,label,weight,flags\n0,cat,0.1,\n"
    assert read_weights(path).is_noisy is None
    assert read_weights(path).is_outlier is None


@pytest.mark.parametrize(
    "label",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1", "'quoted", '=cmd|"/C"!A1'],
)
def test_no_label_opens_as_a_formula(path, label):
    write(path, [label, "safe"], [1.0, 1.0])
    with path.open(newline="", encoding="utf-8") as file:
        cell = list(csv.reader(file))[1][1]
    assert cell == "'" + label
    assert read_weights(path).labels.tolist() == [label, "safe"]


@pytest.mark.parametrize("label", ["007", "1", "1e5", "12.50", "1,5", "TRUE", "nan", ""])
def test_text_that_a_spreadsheet_would_rewrite_stays_text(path, label):
    write(path, [label, label], [1.0, 1.0])
    assert read_weights(path).labels.tolist() == [label, label]


@given(st.lists(st.text(max_size=6).map(lambda t: t.rstrip("\0")), min_size=1, max_size=5))
def test_any_text_label_survives(tmp_path_factory, labels):
    labels = [label.replace("\0", "") for label in labels]  # numpy text ends at NUL
    path = write(tmp_path_factory.mktemp("t") / "w.csv", labels, [0.5] * len(labels))
    assert read_weights(path).labels.tolist() == labels


def test_a_file_name_that_is_not_unicode_survives(path):
    name = os.fsdecode(b"caf\xe9")
    write(path, [name, "b"], [1.0, 0.0])
    assert read_weights(path).labels.tolist() == [name, "b"]


def test_rows_sorted_by_a_person_return_to_the_data_sets_order(path):
    path.write_text("﻿" + HEAD + "2,c,0.3,\n0,a,0.1,\n1,b,0.2,\n", encoding="utf-8")
    table = read_weights(path)
    assert table.labels.tolist() == ["a", "b", "c"]
    assert table.weights.tolist() == [0.1, 0.2, 0.3]


def test_no_samples_is_a_table_too(path):
    write(path, [], [])
    assert len(read_weights(path)) == 0


def test_columns_of_different_lengths_are_refused(path):
    with pytest.raises(InputError, match="`label` must have one entry per weight, 2; got 1"):
        write(path, ["a"], [1.0, 1.0])
    with pytest.raises(InputError, match="`is_noisy` must have one entry"):
        write(path, ["a"], [1.0], is_noisy=np.array([True, False]))
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no column `index`"),
        ("index;label;weight;flags\n0;a;1;\n", "no column `index`; expected commas"),
        (HEAD + "0,a,1,\n2,b,1,\n", "must hold 0 to 1, each once"),
        (HEAD + "0,a,1,\n0,b,1,\n", "must hold 0 to 1, each once"),
        (HEAD + "0,a,2,\n", r"line 2: a weight is in \[0, 1\]; got 2"),
        (HEAD + "0,a,nan,\n", r"line 2: a weight is in \[0, 1\]; got nan"),
        (HEAD + '0,a,"0,5",\n', "line 2: expected a weight"),
        (HEAD + "0,a,1,,more\n", "line 2: has 5 cells; expected 4"),
        ("index,label,weight,flags,label\n", "has 2 columns `label`; keep one"),
        (HEAD + "x,a,1,\n", "each once; 0 missing, and a row has 'x'"),
        (HEAD + "0,a\n", "line 2: has 2 cells; expected 4"),
        ("index,label,weight,flags,is_noisy\n0,a,1,,maybe\n", "line 2: expected .* is_noisy"),
        ("index,label,weight,flags,is_outlier\n0,a,1,,2\n", "line 2: expected .* is_outlier"),
        (HEAD + '0,"a,1,\n', r"cannot be read as .*CSV in UTF-8\) \(unexpected end of data"),
        (b"index,label,weight,flags\n0,\xff\xff,1,\n", r"cannot be read as .*CSV in UTF-8\)"),
    ],
)
def test_what_is_no_table_of_weights_is_refused_by_file_and_line(path, content, message):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(RunError, match=message):
        read_weights(path)


def test_a_missing_table_is_a_run_error(path):
    with pytest.raises(RunError, match=r"weights\.csv: no such file; expected a table"):
        read_weights(path)
    os.mkfifo(path)
    with pytest.raises(RunError, match=r"weights\.csv: is a pipe or a device"):
        read_weights(path)
