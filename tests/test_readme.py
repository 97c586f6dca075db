"""Every Python block of the README and of the site runs, in order, as a reader would paste them."""

import importlib
import inspect
import logging
import re
from pathlib import Path

import pandas as pd
import pytest
import torch

import bspml
from bspml.auditing.folder import FILES
from bspml.auditing.photo_checks import PROBLEMS
from bspml.auditing.report import AuditReport
from bspml.data.images import SUFFIXES
from bspml.weights import coordinate, doubly_stochastic
from helpers.places import REPOSITORY

DOCS = REPOSITORY / "docs"
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
BLOCK = re.compile(r"```python\n(.*?)```", flags=re.DOTALL)
WITH_BLOCKS = [name for name, text in PAGES.items() if BLOCK.search(text)]


def run_blocks(text, name):
    blocks = BLOCK.findall(text)
    scope = {}
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"{name}, Python block {number}", "exec"), scope)
    return len(blocks)


def test_python_blocks_run_in_order(capsys):
    assert run_blocks(README, "README.md") >= 3
    assert "Recall@1" in capsys.readouterr().out


@pytest.mark.parametrize("name", WITH_BLOCKS)
def test_the_blocks_of_a_page_run_in_order_and_every_warning_is_explained(name, capsys, caplog):
    assert len(WITH_BLOCKS) >= 7
    caplog.set_level(logging.WARNING, logger="PML")
    page = PAGES[name].replace("20_000", "3_000")
    assert run_blocks(page, f"{name}.md") >= 1
    assert capsys.readouterr().out
    said = {record.getMessage() for record in caplog.records if record.name == "PML"}
    assert all(warning in " ".join(page.split()) for warning in said)


# Each block runs: here, or beside the tests of its framework, which read the same text.
@pytest.mark.parametrize(
    ("page", "part", "file"),
    [
        ("train-pml", "MetricLossOnly(", None),
        ("train-lightning", "pl.LightningModule", "lightning_curriculum"),
        ("integrations", "BatchAllTripletLoss(", "sentence_transformers_triplets"),
        ("integrations", "compute_loss_func=", "huggingface_trainer"),
        ("integrations", "ExtractorModule(", None),
    ],
)
def test_three_lines_are_added_to_a_frameworks_own_example_and_marked(page, part, file):
    found = re.findall(r"```py(?:thon)?\n(.*?)```", PAGES[page], flags=re.DOTALL)
    (block,) = [block for block in found if part in block]
    if file is not None:
        assert block == (DOCS / f"examples/{file}.py").read_text(encoding="utf-8")
    lines = re.sub(r'^""".*?"""', "", block, flags=re.DOTALL).splitlines()
    new = [line for line in lines if re.search("# (added|changed)", line)]
    assert len(new) == 3  # with the import, and one object made by a line of its own
    assert sum("bspml" in line for line in new) == 1
    own = [line for line in lines if not re.search("# (added|changed|in the place of )", line)]
    assert len(own) > 5
    assert not [line for line in own if "bspml" in line]


def test_the_readme_is_for_reading_in_one_go():
    assert len(README.splitlines()) < 200


def test_what_the_readme_links_to_is_there():
    links = [
        target.partition("#")
        for target in re.findall(r"\]\(([^)]+)\)", README)
        if "://" not in target
    ]
    assert len(links) > 15
    for path, _, anchor in links:
        file = REPOSITORY / path
        assert file.is_file(), path
        if anchor:
            heads = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


def test_every_exported_name_has_its_place_in_the_reference():
    shown = "\n".join(path.read_text(encoding="utf-8") for path in (DOCS / "api").glob("*.md"))
    entries = set(re.findall(r"^::: (bspml[.\w]+)$", shown, flags=re.MULTILINE))
    assert {f"{home}.{name}" for name, home in bspml._HOME.items()} - entries <= {
        "bspml.auditing.audit",  # listed where each is defined
        "bspml.trainers.SelfPacedCurriculum",
        "bspml.losses.reducers.SuperLoss",
        "bspml.losses.reducers.GradientRescaling",
        "bspml.losses.reducers.IMAE",
    }
    for entry in entries:
        if entry.startswith("bspml.integrations."):  # needs its framework
            continue
        module, _, name = entry.rpartition(".")
        assert hasattr(importlib.import_module(module), name), entry


def test_every_reference_is_listed():
    sources = (REPOSITORY / "bspml").rglob("*.py")
    pages = [path for path in DOCS.glob("*.md") if path.name != "references.md"]
    text = README + "".join(path.read_text(encoding="utf-8") for path in [*sources, *pages])
    cited = set(re.findall(r"\[((?:[A-Z&][A-Za-zć-]* )+\d{4})\]", text))
    assert len(cited) > 30
    list_of_all = (DOCS / "references.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^- \[(.+?)\]", list_of_all, flags=re.MULTILINE))
    assert cited <= listed, cited - listed


def test_extras_are_quoted_since_zsh_takes_brackets_for_a_pattern():
    folders = ("bspml", "docs", "configs", "benchmarks")
    files = [
        *REPOSITORY.glob("*.md"),
        *(p for name in folders for p in (REPOSITORY / name).rglob("*.*")),
    ]
    read = [p for p in files if p.suffix in (".py", ".md", ".yaml")]
    text = "\n".join(p.read_text(encoding="utf-8") for p in read)
    lines = re.findall(r"pip install .*\[[a-z,-]+\]", text)
    assert len(lines) > 10
    assert not [line for line in lines if not re.search(r"'\S*\[[a-z,-]+\]$", line)]


def test_every_test_file_that_a_page_names_is_there():
    pages = [*REPOSITORY.glob("*.md"), *DOCS.glob("*.md")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    named = set(re.findall(r"\btests/[\w/]+\.py", text))
    assert len(named) > 5
    assert not [name for name in named if not (REPOSITORY / name).is_file()]


def test_every_file_figure_and_column_of_an_audit_is_explained(tmp_path):
    labels = torch.arange(3).repeat_interleave(4)
    report = bspml.audit(torch.eye(3)[labels] + 0.1 * torch.randn(12, 3), labels)
    report.save(tmp_path / "found")
    columns = [c for f in (tmp_path / "found").glob("*.csv") for c in pd.read_csv(f).columns]
    files = [*FILES, "audit.json"]
    own = (DOCS / "your-own-data.md").read_text(encoding="utf-8")
    assert not [key for key in [*report.summary(), *columns, *files] if f"`{key}`" not in own]
    words = re.findall(r'"([^"]+)",\n', inspect.getsource(AuditReport.verdicts))
    assert len(words) > 8
    assert not [word for word in [*words, *PROBLEMS.values()] if f"*{word}*" not in own]


def test_every_type_of_image_and_status_of_the_solver_is_explained():
    own = PAGES["your-own-data"]
    assert not [suffix for suffix in SUFFIXES if suffix not in own]
    words = ("local_minimum", "stationary", "precision_limit", "no_progress", "max_sweeps")
    solvers = "".join(Path(m.__file__).read_text() for m in (coordinate, doubly_stochastic))
    assert not [
        word for word in words if f'"{word}"' not in solvers or f"`{word}`" not in PAGES["formulas"]
    ]


def test_the_source_distribution_has_what_its_ci_reads():
    manifest = (REPOSITORY / "MANIFEST.in").read_text(encoding="utf-8")
    taken = {word for line in manifest.splitlines() for word in line.split()[1:]}
    taken |= {"README.md", "LICENSE", "pyproject.toml", "MANIFEST.in"}  # by setuptools itself
    read = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8") + "mkdocs.yml"
    there = {path.name for path in REPOSITORY.iterdir() if path.is_file()}
    named = {name for name in there if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", read)}
    assert {"check", "mkdocs.yml"} <= named <= taken
