"""The checks of photos: what cleanvision is asked, and what becomes of its answers."""

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bspml.auditing.photo_checks import PROBLEMS, photo_checks
from bspml.errors import MissingDependencyError


class Imagelab:
    """Stands in for cleanvision's: darkness and size alone, by rules that can be told by hand."""

    def __init__(self, hf_dataset, image_key, verbose):
        assert "image" in hf_dataset.features
        assert not verbose
        self.pictures = [hf_dataset[i][image_key] for i in range(len(hf_dataset))]

    def find_issues(self, issue_types, n_jobs, verbose):
        assert (n_jobs, verbose) == (1, False)
        print("progress", file=sys.stderr)
        mean = np.array([np.asarray(picture).mean() / 255 for picture in self.pictures])
        area = np.array([picture.width * picture.height for picture in self.pictures])
        scores = {
            "dark": mean,
            "odd_size": np.where(area == np.median(area), 1.0, 0.25),
        }
        columns = {}
        for name in issue_types:
            score = scores.get(name, np.ones(len(mean)))
            columns |= {f"{name}_score": score, f"is_{name}_issue": score < 0.4}
        self.issues = pd.DataFrame(columns)


@pytest.fixture
def photos(tmp_path):
    """{sample: file} of photos by (brightness, size); None is a file that is no image."""

    def make(*looks):
        files = {}
        for i, look in enumerate(looks):
            files[10 * i] = tmp_path / f"{i}.png"
            if look is None:
                files[10 * i].write_bytes(b"no image")
            else:
                Image.new("RGB", look[1], (look[0],) * 3).save(files[10 * i])
        return files

    return make


def test_photos_are_listed_by_problem_and_the_worst_first(photos, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cleanvision", SimpleNamespace(Imagelab=Imagelab))
    usual = (30, 20)
    files = photos((51, usual), (200, usual), (25, usual), (255, (600, 900)), None, (200, usual))
    table = photo_checks(files)
    assert table.to_dict("list") == {
        "index": [20, 0, 30],
        "problem": ["dark", "dark", "odd size"],
        "score": [pytest.approx(25 / 255), pytest.approx(51 / 255), 0.25],
    }
    assert capsys.readouterr() == ("", "")


def test_files_that_are_no_images_have_no_row(photos, monkeypatch):
    monkeypatch.setitem(sys.modules, "cleanvision", SimpleNamespace(Imagelab=Imagelab))
    table = photo_checks(photos(None, None))
    assert [*table.columns] == ["index", "problem", "score"]
    assert len(table) == 0


def test_without_cleanvision_the_message_says_how_to_get_it(photos, monkeypatch):
    monkeypatch.setitem(sys.modules, "cleanvision", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'bspml\[photo-checks\]'"):
        photo_checks({})


def test_the_library_itself_finds_a_dark_an_empty_a_long_and_a_large_photo(tmp_path):
    pytest.importorskip("cleanvision")
    rng = np.random.default_rng(0)
    pixels = {i: rng.integers(0, 256, (60, 80, 3)) for i in range(12)}
    pixels[3] = pixels[3] // 16
    pixels[5] = np.full((60, 80, 3), 200)
    pixels[7] = rng.integers(0, 256, (20, 240, 3))
    pixels[9] = rng.integers(0, 256, (600, 800, 3))
    files = {i: tmp_path / f"{i}.png" for i in pixels}
    for i, values in pixels.items():
        Image.fromarray(values.astype(np.uint8)).save(files[i])
    table = photo_checks(files)
    found = {
        problem: set(table["index"][table["problem"] == problem]) for problem in PROBLEMS.values()
    }
    assert found["dark"] == {3}
    assert found["nearly empty"] == {5}
    assert found["odd shape"] == {7}
    assert 9 in found["odd size"]
