"""The grid runner of benchmarks/: cells, resuming, failures, results, tables."""

from __future__ import annotations

import importlib
import json
import shutil
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bspml.errors import ConfigError
from bspml.experiment.config import load_config
from bspml.files.run import RecordLog, RunFolder
from helpers.places import REPOSITORY

GRIDS = sorted((REPOSITORY / "configs" / "benchmarks").glob("*.yaml"))

# Two classes a batch, two steps: what is tested is the runner.
TINY = """
name: tiny
seeds: [0, 1]
common:
  data: {subset: 4}
  network: {embedding_size: 8}
  sampler: {classes_per_batch: 2, samples_per_class: 2}
  training: {epochs: 2, batches_per_epoch: 2}
  evaluation: {ks: [1, 2], clustering: false}
datasets:
  glyphs: {title: Glyphs_4 & more}
methods: [multi-similarity, contrastive]
noise:
  - {kind: none}
  - {kind: symmetric, rates: [0.3]}
untrained: true
tables: [table1, table2]
"""


@pytest.fixture
def grid(monkeypatch):
    return modules(monkeypatch)


def modules(monkeypatch):
    """The modules of benchmarks/, which import each other as scripts do."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    names = ("grid", "grid_file", "grid_run", "grid_results", "grid_tables", "published", "figures")
    return SimpleNamespace(**{name: importlib.import_module(name) for name in names})


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


def run(grid, path, *more):
    return grid.grid.main([str(path), "--out", str(path.parent / "out"), *more])


def smaller(path, methods="[multi-similarity]", noise="- {kind: none}"):
    """The tiny grid with one seed."""
    text = TINY.replace("seeds: [0, 1]", "seeds: [0]")
    text = text.replace("methods: [multi-similarity, contrastive]", f"methods: {methods}")
    start, end = text.index("noise:\n") + 7, text.index("untrained")
    path.write_text(f"{text[:start]}  {noise}\n{text[end:]}")
    return path


@pytest.fixture(scope="module")
def three_cells(tmp_path_factory):
    """The folder of a small grid that was run."""
    path = smaller(tmp_path_factory.mktemp("grid") / "tiny.yaml", "[multi-similarity, contrastive]")
    with pytest.MonkeyPatch.context() as patched:
        assert run(modules(patched), path) == 0
    return path.parent


# --- expansion ------------------------------------------------------------------------------------


def test_a_grid_is_every_method_noise_and_seed_and_one_untrained_cell(grid, tiny):
    cells = grid.grid_file.read_grid(tiny).cells
    found = {(c.method, c.noise, c.rate, c.seed) for c in cells}
    expected = {
        (method, kind, rate, seed)
        for method in ("multi-similarity", "contrastive")
        for kind, rate in (("none", 0.0), ("symmetric", 0.3))
        for seed in (0, 1)
    } | {("untrained", "none", 0.0, 0)}
    assert found == expected
    assert len(cells) == len(found) == len({c.name for c in cells})
    cell = next(c for c in cells if c.method == "contrastive" and c.rate and c.seed)
    assert cell.config.training.methods == ("contrastive",)
    assert (cell.config.noise.rate, cell.config.seed) == (0.3, 1)
    assert cell.config.data.subset == 4


def test_varied_settings_multiply_and_those_of_a_method_stay_its_own(grid):
    tree = {
        "name": "vary",
        "datasets": {"glyphs": {}},
        "vary": {"network.embedding_size": [8, 16]},
        "methods": ["contrastive", {"name": "rdml", "vary": {"eta": [1, 2, 3]}}],
    }
    cells = grid.grid_file.expand(tree, "here").cells
    assert len(cells) == 2 + 2 * 3
    eta = "hyperparameters.rdml.eta"
    found = {
        (c.varied[eta], c.config.hyperparameters["rdml"]["eta"], c.config.network.embedding_size)
        for c in cells
        if c.method == "rdml"
    }
    assert found == {(eta, eta, size) for eta in (1, 2, 3) for size in (8, 16)}
    assert all(eta not in c.varied for c in cells if c.method == "contrastive")
    # So does the loss of multi-similarity.
    tree |= {"common": {"loss": {"alpha": 3}}, "methods": ["multi-similarity", "rdml"]}
    alphas = [c.config.loss.alpha for c in grid.grid_file.expand(tree, "here").cells]
    assert alphas == [3, 3, 2, 2]


def test_the_run_folder_follows_the_settings_but_not_the_machine(grid, tiny):
    def names(**settings):
        dotted = {key.replace("__", "."): value for key, value in settings.items()}
        return {c.name for c in grid.grid_file.read_grid(tiny, None, dotted).cells}

    assert names() == names(data__root="elsewhere", device="cuda:1", threads=2, data__cache="x")
    assert not names() & names(optimizer__lr=0.5)


def test_a_users_own_data_are_those_at_their_root(grid):
    def cells(root, **more):
        config = {"data": {"name": "features", "root": root}, "network": {"name": "mlp"}}
        tree = {"name": "own", "datasets": {"mine": {"config": config}}, "methods": ["contrastive"]}
        return grid.grid_file.expand(tree | more, "here").cells

    (a,), (b,) = cells("a.npz"), cells("b.npz")
    assert a.name != b.name
    assert not a.same_settings(b.config)
    assert len(cells("a.npz", vary={"data.root": ["a.npz", "b.npz"]})) == 2


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("seeds:", "sedes:", "unknown key `sedes`; did you mean `seeds`"),
        ("[table1, table2]", "[table3]", "`tables.0` must be one of table1, .*; got 'table3'"),
        ("contrastive]", "contrastiv]", "did you mean `contrastive`"),
        ("embedding_size: 8", "embeding_size: 8", "did you mean `embedding_size`"),
        ("{kind: none}", "{rates: [0.1]}", "`noise.0.kind` is missing; got .*rates"),
        (
            "{kind: none}",
            "{kind: symmetric, rates: []}",
            "`noise.0.rates`: expected at least 1 value",
        ),
        ("rates: [0.3]", "rates: [30]", "`noise.1.rates.0`: expected a number in .0, 1.; got 30"),
        ("rates: [0.3]", "rates: 0.3", "`noise.1.rates`: expected a list such as .*; got 0.3"),
        ("seeds: [0, 1]", "seeds: 3", "`seeds`: expected a list such as .*; got 3"),
        (
            "seeds: [0, 1]",
            "seeds: [a]",
            "`seeds.0`: expected a whole number from 0 to 4294967295; got 'a'",
        ),
        (
            "[multi-similarity, contrastive]",
            "contrastive",
            "`methods`: expected a list such as .*; got 'contrastive'",
        ),
        ("name: tiny", "name: ../tiny", "`name` must be letters"),
        ("  glyphs:", "  ../glyphs:", "a key of `datasets` must be letters"),
        (
            "{title: Glyphs_4 & more}",
            "{config: 3}",
            "`datasets.glyphs.config`: expected `key: value` lines; got 3",
        ),
        ("ks: [1, 2]", "ks: [2]", "`evaluation.ks` must hold 1, which tables .*; got .2."),
        ("untrained: true", "vary: {seed: 3}", "`vary.seed`: expected a list such as .*; got 3"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_the_file(grid, tiny, old, new, says):
    tiny.write_text(TINY.replace(old, new))
    with pytest.raises(ConfigError, match=says) as caught:
        grid.grid_file.read_grid(tiny)
    assert str(tiny) in str(caught.value)


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_every_grid_file_of_the_repository_expands(grid, path, tmp_path):
    found = grid.grid_file.read_grid(path, tmp_path)
    assert found.cells
    assert any(cell.method == "untrained" for cell in found.cells)
    choosing = path.stem.startswith("choose")
    # Settings are chosen on held-out training classes, and tables are not.
    assert all(cell.config.data.validation == choosing for cell in found.cells)


# --- running --------------------------------------------------------------------------------------


def test_finished_cells_are_read_and_not_run_again(grid, tiny, monkeypatch, capsys):
    assert run(grid, smaller(tiny)) == 0
    results = pd.read_parquet(tiny.parent / "out" / "tiny.parquet")
    assert results.status.tolist() == ["finished"] * 2
    assert results.recall_at_1.between(0, 1).all()
    assert results.published_set.isna().all()
    monkeypatch.setattr(grid.grid_run, "run_experiment", None)  # calling it would fail
    monkeypatch.setattr(grid.grid_run, "untrained_network", None)
    assert run(grid, tiny) == 0
    again = pd.read_csv(tiny.parent / "out" / "tiny.csv")
    assert again.recall_at_1.tolist() == pytest.approx(results.recall_at_1.tolist())
    assert run(grid, tiny, "--dry-run") == 0
    assert "0 of 2 cells to run" in capsys.readouterr().out


def test_an_interrupted_cell_goes_on_to_the_same_numbers(grid, tiny, tmp_path, monkeypatch):
    smaller(tiny, noise="- {kind: symmetric, rates: [0.3]}")
    cell = next(c for c in grid.grid_file.read_grid(tiny).cells if c.method != "untrained")
    assert grid.grid_run.run_cell(cell, tmp_path / "whole").error is None

    def stop(self, record):
        raise KeyboardInterrupt

    monkeypatch.setattr("bspml.trainers.progress.Silent.record", stop)
    with pytest.raises(KeyboardInterrupt):
        grid.grid_run.run_cell(cell, tmp_path / "cut")
    monkeypatch.undo()
    folder = RunFolder(tmp_path / "cut" / cell.name)
    assert not folder.finished
    assert len(RecordLog(folder.records)) == 1
    assert grid.grid_run.run_cell(cell, tmp_path / "cut").error is None
    curves = [
        [(r.epoch, r.loss, r.recall_at_k) for r in RecordLog(RunFolder(path).records).read()]
        for path in (folder.path, tmp_path / "whole" / cell.name)
    ]
    assert len(curves[0]) == 4  # before the first step: the features, and the network
    assert curves[0] == curves[1]


def test_a_failing_cell_is_reported_and_the_others_finish(grid, tiny, capsys):
    # More neighbours than there are: only the data tell.
    many = "{name: contrastive, config: {evaluation: {ks: [1, 999999]}}}"
    smaller(tiny, f"[{many}, multi-similarity]")
    assert run(grid, tiny) == 1
    printed = capsys.readouterr()
    assert "FAILED" in printed.out
    assert "999999" in printed.err
    results = pd.read_parquet(tiny.parent / "out" / "tiny.parquet").set_index("method").status
    assert results.to_dict() == {
        "untrained": "finished", "contrastive": "failed", "multi-similarity": "finished",
    }  # fmt: skip
    text = (tiny.parent / "out" / "tiny.md").read_text()
    assert "1 of the grid's 3 cells is not here: contrastive (1 failed)" in text


def test_an_unforeseen_error_fails_its_cell_only(grid, tiny, monkeypatch, capsys):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(grid.grid_run, "run_experiment", broken)
    assert run(grid, smaller(tiny)) == 1
    assert "ZeroDivisionError: by nothing" in capsys.readouterr().err


def test_a_cell_that_another_grid_runs_is_passed_over_and_no_failure(grid, tiny, capsys):
    pytest.importorskip("fcntl")
    cells = grid.grid_file.read_grid(smaller(tiny)).cells
    out = tiny.parent / "out"
    held = [RunFolder.create(out / cell.name) for cell in cells]
    with held[0].locked(), held[1].locked():  # the untrained one and a trained one
        assert run(grid, tiny) == 0
    printed, err = capsys.readouterr()
    for number, cell in enumerate(cells, 1):
        assert f"[{number}/2] {cell.name}: running elsewhere\n" in printed
    assert "2 cells were running elsewhere; when that is done, --report" in err
    assert set(pd.read_parquet(out / "tiny.parquet").status) == {"running elsewhere"}
    assert run(grid, tiny) == 0
    assert set(pd.read_parquet(out / "tiny.parquet").status) == {"finished"}


def test_a_run_under_other_defaults_is_not_taken_for_the_cell(grid, tiny, capsys):
    assert run(grid, smaller(tiny)) == 0
    cell = grid.grid_file.read_grid(tiny).cells[1]
    saved = RunFolder(tiny.parent / "out" / cell.name).config
    saved.write_text(saved.read_text().replace("epsilon: 0.1", "epsilon: 0.2"))
    assert load_config(saved).loss.epsilon == 0.2
    assert run(grid, tiny) == 1
    assert "other defaults" in capsys.readouterr().err


def test_a_dry_run_prints_every_cell_and_runs_none(grid, tiny, capsys):
    assert run(grid, tiny, "--dry-run", "--jobs", "2") == 0
    printed = capsys.readouterr().out
    assert all(c.name in printed for c in grid.grid_file.read_grid(tiny).cells)
    assert "9 of 9 cells to run" in printed
    assert not (tiny.parent / "out").exists()


def test_a_dry_run_can_time_a_short_cell(grid, tiny, capsys):
    assert run(grid, smaller(tiny), "--dry-run", "--time") == 0
    printed, said = capsys.readouterr()
    assert "first, a short cell of each of 2 pairs of data set and method" in said
    assert printed.count("about") == 3
    assert "unknown" not in printed


@pytest.mark.parametrize("named", [True, False])
def test_a_dry_run_without_the_data_says_so_once_and_exits_with_2(grid, tiny, capsys, named):
    old = "glyphs: {title: Glyphs_4 & more}"
    new = "omniglot: {root: omniglot, config: {data: {name: omniglot}}}"
    tiny.write_text(TINY.replace(old, new))
    more = ["--root", str(tiny.parent / "none")] * named
    assert run(grid, tiny, "--dry-run", "--time", *more) == 2
    out, err = capsys.readouterr()
    assert "9 of 9 cells to run, 9 of unknown time\n" in out
    assert "0 min" not in out
    assert err.count("omniglot cannot be read") == err.count("brendenlake") == 1
    assert ("with --root" in err) is not named
    assert run(grid, tiny, "--dry-run", *more) == 0
    assert "9 of unknown time (--time estimates them)\n" in capsys.readouterr().out


def test_only_and_set_refuse_what_is_not_there(grid, tiny, capsys):
    assert run(grid, tiny, "--only", "nobody") == 2
    assert "nobody" in capsys.readouterr().err
    assert run(grid, tiny, "--set", "nonsense") == 2
    assert run(grid, tiny, "--jobs", "0") == 2


def test_set_takes_the_seeds_and_a_title_says_what_was_changed(grid, tiny, capsys):
    assert run(grid, tiny, "--dry-run", "--set", "seeds=[3]", "data.subset=2", "device=cpu") == 0
    assert "5 of 5 cells to run" in capsys.readouterr().out
    changed = {"seeds": [3], "data.subset": 2, "device": "cpu"}
    cells = grid.grid_file.read_grid(tiny, overrides=changed).cells
    assert {(c.seed, c.title) for c in cells} == {(3, "Glyphs_4 & more (data.subset=2)")}
    assert run(grid, tiny, "--dry-run", "--set", "seed=3") == 2
    assert "--set seeds=[0]" in capsys.readouterr().err
    assert run(grid, tiny, "--dry-run", "--set", "seeds=zero") == 2
    assert "`seeds`" in capsys.readouterr().err


# --- tables and figures, from results made up -----------------------------------------------------


def rows(methods=("untrained", "bspml-paper"), published=None, **more):
    """Two seeds a method; Recall@1 0.5 and 0.6 at no noise, less under 30 %."""
    made = []
    for method in methods:
        for seed in (0, 1):
            for kind, rate in (("none", 0.0), ("symmetric", 0.3)):
                if method == "untrained" and (seed or rate):
                    continue
                recall = 0.5 + 0.1 * seed - rate / 2
                made.append(
                    {
                        "dataset": "set", "title": "A_set", "method": method,
                        "method_title": "BSPML (paper)", "noise": kind, "rate": rate, "seed": seed,
                        **more, "embedding_size": 8, "split": "test", "published_set": published,
                        "run": f"{method}{seed}{rate}", "status": "finished",
                        "recall_at_1": recall, "recall_at_2": 0.75, "nmi": 0.4, "maw": 0.9,
                        "map_at_r": recall / 2,
                        "sdaw": 0.1, "best_recall_at_1": recall + 0.05,
                        "note": "pretrained, untrained" if method == "untrained" else "",
                    }
                )  # fmt: skip
    return pd.DataFrame(made)


def test_table_1_has_mean_deviation_and_an_untrained_row(grid):
    (table,) = grid.grid_tables.make_tables("table1", rows(), pd.DataFrame())
    assert table.head == ["method", "R@1", "R@2", "MAP@R", "NMI"]
    # 0.5 and 0.6: mean 55, deviation 10 / sqrt(2)
    assert table.rows == [
        ["Pretrained, untrained", "50.0", "75.0", "25.0", "40.0"],
        ["BSPML (paper)", "55.0 ± 7.1", "75.0 ± 0.0", "27.5 ± 3.5", "40.0 ± 0.0"],
    ]
    assert table.best == {(1, 1), (1, 2), (1, 3), (1, 4)}


@pytest.mark.parametrize("kind", ["table1", "table2"])
def test_settings_that_vary_have_rows_of_their_own(grid, kind):
    lr, eta = "vary optimizer.name", "vary hyperparameters.rdml.eta"
    parts = [rows(("untrained", "a"), **{lr: v}) for v in ("adamw", "sgd")]
    own = [rows(("rdml",), **{lr: "adamw", eta: v}) for v in (1, 2)]
    own[1].recall_at_1 += 0.2
    results = pd.concat([*parts, *own]).assign(method_title=lambda r: r.method)
    results.loc[results.method == "untrained", lr] = None
    (table,) = grid.grid_tables.make_tables(kind, results, results)
    assert [row[:2] for row in table.rows] == [
        ["Pretrained, untrained", "50.0 ± 0.0"],
        ["a, optimizer.name adamw", "55.0 ± 7.1"],
        ["a, optimizer.name sgd", "55.0 ± 7.1"],
        ["rdml, optimizer.name adamw, rdml.eta 1", "55.0 ± 7.1"],
        ["rdml, optimizer.name adamw, rdml.eta 2", "75.0 ± 7.1"],
    ]


def test_settings_may_be_words_or_missing(grid):
    clip, eta = "vary optimizer.clip_norm", "vary hyperparameters.rdml.eta"
    kinds = [("a", None, None, 0.1), ("a", "l2", None, 0.2), ("rdml", "l2", 1.0, 0.4)]
    made = [
        rows((m,), **{clip: c, eta: e}).iloc[:1].assign(epoch=1, recall_at_1=r, run=f"{m}{c}")
        for m, c, e, r in kinds
    ]
    results = pd.concat(made).assign(method_title=lambda r: r.method)
    (varied,) = grid.grid_tables.make_tables("varied", results, results)
    assert [row[:5] for row in varied.rows] == [
        ["a", "–", "–", "none", "10.0"],
        ["a", "l2", "–", "none", "20.0"],
        ["rdml", "l2", "1", "none", "40.0"],
    ]
    (choice,) = grid.grid_tables.make_tables("choice", results, results)
    assert choice.rows == [
        ["–", "–", "1", "10.00", "25.00", "1"],
        ["l2", "–", "1", "20.00", "25.00", "1"],
        ["l2", "1", "1", "40.00", "25.00", "1"],
    ]
    assert choice.best == {(2, 3)}
    assert "a: best 20.00 at optimizer.clip_norm l2, rdml.eta –, epoch 1." in choice.notes


@pytest.mark.parametrize(
    "twice",
    [
        {"noise": [{"kind": "symmetric", "rates": [0.3], "per_class": p} for p in (True, False)]},
        {"methods": ["rdml", {"name": "rdml", "hyperparameters": {"eta": 2}}]},
        {"noise": [{"kind": "none", "list_file": f"{folder}/mine.csv"} for folder in "ab"]},
    ],
)
def test_cells_that_a_table_would_call_the_same_are_refused(grid, twice):
    data = {"cub": {"config": {"data": {"name": "cub", "root": "there"}}}}
    tree = {"name": "twice", "datasets": data, "methods": ["rdml"], **twice}
    with pytest.raises(ConfigError, match="a table would call both the same"):
        grid.grid_file.expand(tree, "here")
    tree["noise"] = tree.get("noise", [{"kind": "none"}])[:1] * 2  # the same cell is one
    tree["methods"] = ["rdml"]
    assert len(grid.grid_file.expand(tree, "here").cells) == 1


def test_table_2_names_the_last_and_the_best_epoch_apart(grid):
    (table,) = grid.grid_tables.make_tables("table2", rows(), pd.DataFrame())
    assert table.head[1:] == [
        "labels as they are: R@1", "labels as they are: MAP@R",
        "labels as they are: R@1, best epoch",
        "symmetric 30%: R@1", "symmetric 30%: MAP@R", "symmetric 30%: R@1, best epoch",
    ]  # fmt: skip
    assert table.rows[1][1:4] == ["55.0 ± 7.1", "27.5 ± 3.5", "60.0 ± 7.1"]
    assert table.rows[1][4:] == ["40.0 ± 7.1", "20.0 ± 3.5", "45.0 ± 7.1"]
    assert table.rows[0][1:] == ["50.0", "25.0", "50.0"] * 2
    assert any("oracle" in note for note in table.notes)


def test_a_published_value_stands_beside_the_same_data_set_only(grid):
    def shown(published):
        results = rows(published=published)
        made = [
            t
            for k in ("table1", "table2")
            for t in grid.grid_tables.make_tables(k, results, results)
        ]
        return "\n".join(map(grid.grid_tables.to_markdown, made))

    assert "(50.6)" in shown("cub")  # table 1, R@1 of BSPML on CUB
    assert "(48.74 ± 0.19)" in shown("cub")  # table 2, 30 %
    assert "Zhang" not in shown(None)
    assert "(59.6)" in shown("cars196")
    assert "(50.6)" not in shown("cars196")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["data.name=cub", "network.name=torchvision:resnet18"], "cub"),
        (["data.name=cub", "data.incomplete=true"], None),
        (["data.name=cub", "data.validation=true"], None),
        (["data.name=cub", "data.subset=50"], None),
        (["data.name=omniglot"], None),
        (["data.name=table"], None),
    ],
)
def test_a_part_of_a_data_set_is_another_data_set(grid, settings, expected):
    assert grid.published.published_set(load_config(overrides=settings)) == expected


def test_the_printed_tables_are_whole(grid):
    published = grid.published
    for name in ("cub", "cars196", "in-shop", "sop"):
        table = published.table_1(name)
        assert list(table) == list(published.METHODS)
        for row in table.values():
            recalls = [row[key] for key in row if key != "NMI"]
            assert len(recalls) == 6
            assert recalls == sorted(recalls)  # Recall@K rises with K
    for name in ("cub", "cars196", "in-shop"):
        by_rate = published.table_2(name)
        assert list(by_rate) == [0.1, 0.2, 0.3]
        for method in published.METHODS:
            values = [by_rate[rate][method][0] for rate in by_rate]
            assert values == sorted(values, reverse=True)  # and falls with the noise
            assert values[0] < published.table_1(name)[method]["R@1"]
    assert published.table_2("sop") == {}  # not printed


def test_latex_escapes_what_would_be_commands(grid):
    table = grid.grid_tables.Table("50% of a_b & \\c ~ {d} #1 $", ["m^2", "±"], [["a_b", "1 ± 2"]])
    text = grid.grid_tables.to_latex(table)
    caption = r"50\% of a\_b \& \textbackslash{}c \textasciitilde{} \{d\} \#1 \$"
    assert rf"\caption{{{caption}}}" in text
    assert r"m\textasciicircum{}2 & $\pm$ \\" in text
    assert r"a\_b & 1 $\pm$ 2 \\" in text
    assert grid.grid_tables.to_markdown(table).count(r"a\_b") == 2


def test_the_choice_carries_a_curve_to_whole_epochs(grid):
    base = rows(("contrastive",), **{"vary optimizer.lr": 0.1}).iloc[:1]
    parts = [base.assign(epoch=e, recall_at_1=r) for e, r in ((0.7, 0.1), (1.4, 0.2), (2.1, 0.6))]
    curves = pd.concat([rows(("untrained",)).assign(epoch=0), *parts])
    (table,) = grid.grid_tables.make_tables("choice", rows(), curves)
    # At epoch 1 the round that ended at 0.7 is the last one measured, at 2 that of 1.4.
    assert table.rows == [
        ["Untrained", "0", "50.00", "25.00", "1"],
        ["0.1", "1", "10.00", "25.00", "1"],
        ["0.1", "2", "20.00", "25.00", "1"],
    ]
    assert table.best == {(2, 2)}


def test_the_choice_is_between_epochs_of_networks_that_stay(grid, tmp_path):
    path = tmp_path / "tiny.yaml"
    noise = "- {kind: symmetric, rates: [0.3]}"
    text = smaller(path, '[contrastive, "auto:contrastive"]', noise).read_text()
    for old, new in (
        ("{subset: 4}", "{subset: 12}"),
        (
            "classes_per_batch: 2, samples_per_class: 2",
            "classes_per_batch: 4, samples_per_class: 4",
        ),
        (", batches_per_epoch: 2", ""),
        ("evaluation: {", "evaluation: {every: 2, "),
    ):
        text = text.replace(old, new)
    path.write_text(text.replace("[table1, table2]", "[choice]\nvary: {optimizer.lr: [0.001]}"))
    assert run(grid, path) == 0
    (folder,) = (path.parent / "out").glob("glyphs_auto*")
    records = [r for r in RecordLog(folder / "records.jsonl").read() if r.method != "untrained"]
    thrown_away = [r for r in records if r.is_temporary]
    assert [r for r in thrown_away if r.recall_at_k]  # which would be an epoch of two
    curves = pd.read_parquet(path.parent / "out" / "tiny-curves.parquet")
    own = curves[curves.method == "auto:contrastive"]
    kept = [r for r in records if r.recall_at_k and not r.is_temporary]
    assert own.recall_at_1.tolist() == [r.recall_at_k[1] for r in kept]
    assert own.epoch.iloc[[0, -1]].tolist() == pytest.approx([0, 2])
    (table,) = grid.grid_tables.make_tables("choice", curves, curves)
    # Contrastive was measured before its first step and after the second epoch alone.
    plain = curves[(curves.method == "contrastive") & (curves.epoch == 2)].recall_at_1.item()
    assert [row[1] for row in table.rows] == ["0", "1", "2"]
    assert table.rows[1][4] == "1"
    assert table.rows[2][2] == f"{100 * (plain + kept[-1].recall_at_k[1]) / 2:.2f}"


def test_figures_come_from_the_results_file_alone(grid, tmp_path):
    age, balance = (f"vary hyperparameters.bspml-paper.{key}" for key in ("age", "balance"))
    weights = pd.concat(
        [rows(("bspml-paper",), **{age: a, balance: b}) for a in (1.0, 2.0) for b in (0.0, 10.0)]
    )
    sizes = pd.concat([rows(**{"vary network.embedding_size": size}) for size in (64, 512)])
    grid.grid_results.write_frame(sizes, tmp_path / "noises")  # a mean over them is no figure
    assert grid.figures.main([str(tmp_path / "noises.csv")]) == 2
    files = []
    for name, frame in (("weights", weights), ("sizes", sizes)):
        grid.grid_results.write_frame(frame[frame.noise == "none"], tmp_path / name)
        files.append(str(tmp_path / f"{name}.parquet"))
    assert grid.figures.main([*files, "--out", str(tmp_path / "figures")]) == 0
    expected = {
        "figure3_maw_set.svg": ("age λ", "MAW at the last epoch", "balance μ = 10"),
        "figure4_sdaw_set.svg": ("age λ", "SDAW at the last epoch"),
        "figure5_recall_set.svg": ("embedding size", "Recall@1 (%), last epoch", "BSPML (paper)"),
    }
    for name, words in expected.items():
        text = " ".join(ElementTree.parse(tmp_path / "figures" / name).getroot().itertext())
        assert all(word in text for word in words)
    grid.grid_results.write_frame(rows(), tmp_path / "plain")
    assert grid.figures.main([str(tmp_path / "plain.csv")]) == 2


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_list_of_noisy_labels_is_noise_and_no_clean_column(grid):
    tree = {
        "name": "lists",
        "datasets": {"cub": {"config": {"data": {"name": "cub", "root": "there"}}}},
        "methods": ["contrastive-paper"],
        "noise": [
            {"kind": "none"},
            {"kind": "none", "list_file": "lists/CUB_0.2noised_train.csv.gz"},
            {"kind": "none", "list_file": "mine.csv"},
        ],
    }
    cells = grid.grid_file.expand(tree, "here").cells
    found = [(c.noise, c.rate) for c in cells]
    assert found == [("none", 0.0), ("list CUB_0.2noised_train", 0.2), ("list mine", 0.0)]
    results = pd.DataFrame(
        {
            "dataset": "cub", "title": "CUB", "method": "contrastive-paper",
            "method_title": "Contrastive", "noise": [c.noise for c in cells],
            "rate": [c.rate for c in cells], "seed": 0, "split": "test", "status": "finished",
            "published_set": "cub", "recall_at_1": [0.5, 0.4, 0.3], "nmi": 0.5,
        }
    )  # fmt: skip
    (clean,) = grid.grid_tables.make_tables("table1", results, results)
    assert clean.rows == [["Contrastive", "50.0 (49.6)", "50.0 (57.7)"]]
    (noisy,) = grid.grid_tables.make_tables("table2", results, results)
    assert noisy.head[1:] == [
        "labels as they are: R@1",
        "list CUB_0.2noised_train: R@1",
        "list mine: R@1",
    ]
    assert noisy.rows == [["Contrastive", "50.0", "40.0", "30.0"]]


def test_held_out_classes_have_no_published_value(grid):
    config = load_config(None, ["data.name=cub", "data.root=there"])
    assert grid.published.published_set(config) == "cub"
    for setting in ("data.validation_classes=0.2", "data.validation=true", "data.subset=50"):
        part = load_config(None, ["data.name=cub", "data.root=there", setting])
        assert grid.published.published_set(part) is None


@pytest.mark.parametrize("file", ["records.jsonl", "summary.json"])
@pytest.mark.parametrize("content", ["", "garbage\n{}\n", "[]"])
def test_a_damaged_cell_is_named_and_the_others_stand(
    grid, three_cells, tmp_path, capsys, file, content
):
    shutil.copytree(three_cells, tmp_path, dirs_exist_ok=True)
    tiny, out = tmp_path / "tiny.yaml", tmp_path / "out"
    (folder,) = out.glob("glyphs_contrastive*")
    (folder / file).write_text(content)
    (folder / "cell.json").write_text("{")
    capsys.readouterr()
    assert run(grid, tiny) == 1
    said = capsys.readouterr()
    assert said.err.startswith("damaged: ")
    assert f"Remove {folder} to run that cell anew" in said.err
    assert "1 of the grid's 3 cells is not here: contrastive (1 damaged)." in said.out
    assert "| MS |" in said.out
    assert run(grid, tiny, "--dry-run") == 0


@pytest.mark.parametrize("edit", ["last line", "end of it", "map_at_r", "another run's"])
def test_records_that_are_not_those_of_the_summary_are_in_no_table(
    grid, three_cells, tmp_path, capsys, edit
):
    shutil.copytree(three_cells, tmp_path, dirs_exist_ok=True)
    tiny, out = tmp_path / "tiny.yaml", tmp_path / "out"
    (folder,), (other,) = out.glob("glyphs_contrastive*"), out.glob("glyphs_multi*")
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    if edit == "last line":
        lines.pop()
    elif edit == "end of it":
        lines[-1] = lines[-1][:-5]
    elif edit == "map_at_r":
        record = json.loads(lines[-1])
        lines[-1] = json.dumps(record | {"map_at_r": record["map_at_r"] / 2}) + "\n"
    else:
        of_other = (other / "records.jsonl").read_text()
        lines = [of_other.replace("multi-similarity", "contrastive").replace("0.", "0.1")]
    (folder / "records.jsonl").write_text("".join(lines))
    assert run(grid, tiny, "--report") == 1
    said = capsys.readouterr()
    assert "than summary.json: it was cut, edited, or is of another run. Remove" in said.err
    assert "1 of the grid's 3 cells is not here: contrastive (1 damaged)." in said.out
    curves = pd.read_parquet(out / "tiny-curves.parquet")
    assert "contrastive" not in set(curves.method)


def test_results_that_cannot_be_written_or_read_are_one_line(grid, tiny, tmp_path, capsys):
    (tmp_path / "out").write_text("a file")
    assert run(grid, tiny) == 2
    for name, content in (("a.parquet", b"x"), ("a.csv", b"a,b\n"), ("b.csv", b"")):
        (tmp_path / name).write_bytes(content)
        assert grid.figures.main([str(tmp_path / name)]) == 2
    assert grid.figures.main([str(tmp_path / "none.csv")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 5


@pytest.mark.parametrize("method", ["clean-only", "prism", "spms"])
def test_a_benchmark_takes_the_labels_of_a_table_for_right(grid, method):
    tree = {
        "name": "table",
        "datasets": {
            "mine": {
                "config": {"data": {"name": "features", "root": "x"}, "network": {"name": "mlp"}}
            }
        },
        "methods": [method],
        "untrained": True,
    }
    untrained, cell = grid.grid_file.expand(tree, "here").cells
    assert (cell.noise, cell.rate) == ("none", 0.0)
    assert (cell.config.noise.kind, cell.config.noise.rate) == ("symmetric", 0.0)
    assert untrained.config.noise.kind == "none"


def test_one_untrained_row_is_not_of_data_that_vary(grid):
    tree = {"name": "vary", "datasets": {"glyphs": {}}, "methods": ["contrastive"]}
    tree |= {"vary": {"data.subset": [4, 8]}}
    assert len(grid.grid_file.expand(tree, "here").cells) == 2
    with pytest.raises(ConfigError, match="`untrained` is one row for all"):
        grid.grid_file.expand(tree | {"untrained": True}, "here")


# --- files that the settings name -----------------------------------------------------------------

OWN = """
name: own
seeds: [0, 1]
common:
  data: {name: features, root: ROOT, validation_classes: 0}
  network: {name: mlp, embedding_size: 4, head: random}
  sampler: {classes_per_batch: 2, samples_per_class: 2}
  training: {epochs: 2}
  evaluation: {ks: [1], every: 1, clustering: false}
datasets: {mine: {title: Mine}}
methods: [contrastive]
noise: [{kind: symmetric, rates: [0.3]}]
untrained: true
tables: [table2, varied, choice]
"""


def own_features(place, seed):
    """Six classes of four, half of them for the test; every file is of the same length."""
    draw = np.random.default_rng(seed)
    labels = np.repeat([f"c{i}" for i in range(6)], 4)
    splits = np.repeat(["train", "test"], 12)
    np.savez(place, embeddings=draw.normal(size=(24, 4)), labels=labels, splits=splits)


def test_cells_of_edited_data_are_named_and_in_no_table(grid, tmp_path, capsys):
    path, root = tmp_path / "own.yaml", tmp_path / "own.npz"
    path.write_text(OWN.replace("ROOT", str(root)))
    own_features(root, 0)
    assert run(grid, path, "--set", "seeds=[0]") == 0
    own_features(root, 1)
    assert run(grid, path) == 1  # the second seed's cell is of the data as they are now
    printed = capsys.readouterr()
    assert printed.err.count("was run on other files of these names") == 2
    assert "2 of the grid's 3 cells are not here: untrained (1 failed), contrastive" in printed.out
    frame = pd.read_csv(tmp_path / "out" / "own.csv")
    assert frame.status.tolist() == ["failed", "failed", "finished"]
    curves = pd.read_csv(tmp_path / "out" / "own-curves.csv")
    assert set(curves.seed) == {1}
    assert run(grid, path, "--report") == 1
    assert pd.read_csv(tmp_path / "out" / "own.csv").status.tolist() == [
        *["damaged"] * 2, "finished"
    ]  # fmt: skip
    root.unlink()  # who has the results alone can still make the tables
    assert run(grid, path, "--report") == 0


def test_edits_inside_a_folder_and_pictures_of_a_table_are_other_files(grid, tmp_path):
    """Labels of one length in a folder's file; a picture that a table lists."""
    digest = grid.grid_file.files_digest
    folder = tmp_path / "tiles"
    folder.mkdir()
    for name in "abcd":
        Image.new("L", (4, 4)).save(folder / f"{name}.png")
    table = folder / "labels.csv"
    table.write_text("path,label\na.png,c1\nb.png,c1\nc.png,c2\nd.png,c2\n")
    in_folder = load_config(None, ["data.name=table", f"data.root={folder}"])
    of_table = load_config(None, ["data.name=table", f"data.root={table}"])
    first = digest(in_folder), digest(of_table)
    assert first == (digest(in_folder), digest(of_table))
    Image.effect_noise((4, 4), 90).save(folder / "b.png")
    second = digest(in_folder), digest(of_table)
    assert second[0] != first[0]
    assert second[1] != first[1]
    assert second[1][:8] == first[1][:8]  # what cells of before have: the table alone
    table.write_text(table.read_text().replace("b.png,c1", "b.png,c2"))
    assert digest(in_folder) != second[0]
    assert digest(of_table) != second[1]
    (folder / "a.png").unlink()
    assert digest(of_table) is None


def test_pictures_beside_a_saved_table_are_other_files(grid, tmp_path):
    datasets = pytest.importorskip("datasets")
    for name in "abcd":
        Image.new("L", (4, 4)).save(tmp_path / f"{name}.png")
    images = [{"path": f"{name}.png", "bytes": None} for name in "abcd"]
    saved = datasets.Dataset.from_dict({"image": images, "label": list("ccdd")})
    saved.to_parquet(tmp_path / "saved.parquet")
    config = load_config(None, ["data.name=huggingface", f"data.root={tmp_path}/saved.parquet"])
    before = grid.grid_file.files_digest(config)
    assert grid.grid_file.files_digest(config) == before
    Image.new("L", (4, 4), 9).save(tmp_path / "b.png")
    after = grid.grid_file.files_digest(config)
    assert after[:8] == before[:8]  # the table itself
    assert after != before


def test_a_cell_begun_under_other_defaults_does_not_go_on(grid, tmp_path, capsys):
    path, root = tmp_path / "own.yaml", tmp_path / "own.npz"
    path.write_text(OWN.replace("ROOT", str(root)))
    own_features(root, 0)
    assert run(grid, path, "--set", "seeds=[0]") == 0
    (folder,) = (tmp_path / "out").glob("mine_contrastive*")
    saved = RunFolder(folder).config.read_text().replace("weight_decay: 0.0", "weight_decay: 0.1")
    assert "weight_decay: 0.1" in saved
    for file in folder.glob("*.*"):  # stopped before its first checkpoint
        file.unlink()
    RunFolder(folder).config.write_text(saved)
    assert run(grid, path, "--set", "seeds=[0]") == 1
    assert "under other defaults" in capsys.readouterr().err


def test_lists_and_words_beside_numbers_are_varied(grid, tmp_path):
    path, root = tmp_path / "own.yaml", tmp_path / "own.npz"
    vary = "vary: {schedule.name: [step], schedule.milestones: [[1], [2, 3]]}\n"
    path.write_text(OWN.replace("ROOT", str(root)) + vary)
    own_features(root, 0)
    assert run(grid, path, "--set", "seeds=[0]") == 0
    text = (tmp_path / "out" / "own.md").read_text()
    assert "Contrastive, schedule.name step, schedule.milestones [2, 3]" in text
    mixed = pd.DataFrame({"vary tau": ["mean", 0.5], "seed": [0, 1]})
    grid.grid_results.write_frame(mixed, tmp_path / "mixed")
    assert pd.read_parquet(tmp_path / "mixed.parquet")["vary tau"].tolist() == ["mean", "0.5"]


def test_the_number_of_seeds_is_that_of_each_mean(grid):
    rows = [("none", 0.0, 0), ("none", 0.0, 1), ("symmetric", 0.3, 1)]
    frame = pd.DataFrame(rows, columns=["noise", "rate", "seed"]).assign(
        dataset="d", title="D", method="contrastive", method_title="Contrastive",
        split="test", published_set=None, status="finished", recall_at_1=0.5,
    )  # fmt: skip
    (table,) = grid.grid_tables.make_tables("table2", frame, pd.DataFrame())
    assert table.notes[0] == "Mean ± deviation over 1 to 2 seeds, last epoch."
