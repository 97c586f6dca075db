"""What the benchmark on glyphs keeps on disk."""

import argparse
import importlib

import pytest

from bspml.files.run import UNTRAINED, write_json
from helpers.places import REPOSITORY


@pytest.fixture
def glyphs(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return importlib.import_module("glyphs")


def test_a_run_is_read_again_for_the_same_settings_only(glyphs, tmp_path, monkeypatch):
    trained = []

    def as_if_trained(config, folder, **_):
        trained.append((config.training.epochs, config.data.validation))
        row = {"Recall@1 %": 1.0 * len(trained), "MAP@R": 0.5, "seconds": 1.0}
        results = {UNTRAINED: {}, "contrastive": row}
        write_json(folder.summary, {"estimated_noise_rate": None, "results": results})

    monkeypatch.setattr(glyphs, "run_experiment", as_if_trained)

    def recall(epochs, validation=False):
        chosen = {"noise": "random", "config": None, "root": None, "out": tmp_path}
        arguments = argparse.Namespace(epochs=epochs, validation=validation, **chosen)
        return glyphs.one_run("contrastive", 0.5, 0, arguments)["recall"]

    assert [recall(14), recall(14), recall(12), recall(14, True), recall(12)] == [1, 1, 2, 3, 2]
    assert trained == [(14, False), (12, False), (14, True)]
