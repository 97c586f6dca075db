"""--root of the benchmarks: either layout, the same rows; and a message where it is neither."""

import importlib

import pytest
from PIL import Image

from bspml.errors import DataError
from helpers.places import REPOSITORY


@pytest.fixture
def data_folders(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return importlib.import_module("data_folders")


def drawings(folder):
    for path in (
        "images_background/Greek/character01/0002_01.png",
        "images_background/Greek/character02/0001_01.png",
        "images_evaluation/Ge_ez/character01/0003_01.png",
    ):
        (folder / path).parent.mkdir(parents=True)
        Image.new("1", (4, 4)).save(folder / path)


def test_the_folder_itself_and_the_one_above_are_the_same(data_folders, tmp_path):
    drawings(tmp_path / "omniglot")
    found = data_folders.read_rows(tmp_path, "omniglot")
    assert data_folders.read_rows(tmp_path / "omniglot", "omniglot") == found
    folder, rows = found
    assert folder == tmp_path / "omniglot"
    # As in the labels.csv that goes with it: numbered by name, the background first.
    assert [(r["class"], r["class_name"], r["split"]) for r in rows] == [
        ("0", "Greek/character01", "train"),
        ("1", "Greek/character02", "train"),
        ("2", "Ge_ez/character01", "test"),
    ]
    assert all((folder / r["path"]).is_file() for r in rows)
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    (folder / "labels.csv").write_text("\n".join(lines))
    assert data_folders.read_rows(tmp_path, "omniglot") == found


def test_a_grid_finds_the_only_data_set_in_either_layout(data_folders, tmp_path):
    grid_file = importlib.import_module("grid_file")
    (tmp_path / "birds").mkdir()
    (tmp_path / "birds/labels.csv").touch()
    tree = {
        "name": "g",
        "datasets": {"d": {"root": "birds", "config": {"data": {"name": "table"}}}},
    }
    tree["untrained"] = True
    for root in (tmp_path, tmp_path / "birds"):
        (cell,) = grid_file.expand(tree, "g.yaml", root).cells
        assert cell.config.data.root == str(tmp_path / "birds")
    (cell,) = grid_file.expand(tree, "g.yaml", tmp_path / "none").cells
    assert cell.config.data.root == str(tmp_path / "none/birds")


def test_neither_layout_is_an_error_that_names_both_and_what_is_there(data_folders, tmp_path):
    (tmp_path / "birds").mkdir()
    said = r"expected cub50/labels\.csv in it, or labels\.csv itself .* holds birds\."
    with pytest.raises(DataError, match=said):
        data_folders.read_rows(tmp_path, "cub50")
    (tmp_path / "omniglot").mkdir()
    with pytest.raises(DataError, match=r"images_background, images_evaluation are missing there"):
        data_folders.read_rows(tmp_path, "omniglot")
