"""A grid file (YAML) and the cells it stands for: data set x method x noise x seed, and settings.

name: table2
seeds: [0, 1, 2]
common: {...}            # of every cell: keys of an experiment, see `bspml configs glyphs`
datasets:
  cub50:
    title: CUB-50
    root: cub50          # in --root, or --root itself; left out: data.root stands as it is
    chosen_by: the command that chose the settings below
    config: {...}        # of this data set's cells, over `common`
methods:                 # names of bspml.experiment.methods, plain or with hyper-parameters
  - contrastive
  - {name: rdml, hyperparameters: {eta: 2}, config: {...}, vary: {eta: [1, 2]}}
noise:
  - {kind: none}
  - {kind: symmetric, rates: [0.1, 0.3], per_class: true}
vary: {network.embedding_size: [64, 128]}   # dotted keys of an experiment, every combination
untrained: true          # a cell a data set that evaluates the features as they are
tables: [table1, table2] # see grid_tables.py
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from data_folders import data_folder
from pydantic import Field, model_validator

from bspml import methods
from bspml.data.images import SUFFIXES
from bspml.data.labels.noise_lists import nominal_rate
from bspml.errors import ConfigError, InputError, UserError
from bspml.experiment.build import CONFIGURED
from bspml.experiment.config import Config
from bspml.experiment.config.common import RunName, Seed, one_of
from bspml.experiment.config.names import OWN_DATA, USERS_DATA
from bspml.experiment.config.reading import config_from_mapping, read_tree, validated
from bspml.experiment.splits import read_data
from bspml.files.run import UNTRAINED
from bspml.trainers.settings import Fraction, Section

TABLES = ("table1", "table2", "varied", "choice")

# What a result does not depend on, or by rounding only: it may change without a new run.
_NOT_LEARNED = (
    ("name",), ("device",), ("workers",), ("threads",), ("data", "root"), ("data", "cache"),
    ("training", "checkpoint_every"),
)  # fmt: skip


Tree = dict[Any, Any]  # part of an experiment, checked with the cell
NotEmpty = Field(min_length=1, strict=False)
Values = Annotated[tuple[Any, ...], NotEmpty]
Listed = Field((), strict=False)  # YAML has lists, the models tuples


class GridSection(Section):
    """A part of a grid file; a key without a value is at its default."""

    @model_validator(mode="before")
    @classmethod
    def _leave_out_empty(cls, tree: Any) -> Any:
        if not isinstance(tree, Mapping):
            return tree
        return {key: value for key, value in tree.items() if value is not None}


class DatasetEntry(GridSection):
    """A data set, and the settings of its cells."""

    title: str | None = None
    root: str | None = None
    config: Tree = Field({})
    chosen_by: str | None = None


class MethodEntry(GridSection):
    """A method of bspml.methods; its name alone is an entry too."""

    name: str
    hyperparameters: Tree = Field({})
    config: Tree = Field({})
    vary: dict[str, Values] = Field({})

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, tree: Any) -> Any:
        return {"name": tree} if isinstance(tree, str) else tree


class NoiseEntry(GridSection):
    """A kind of noise at every rate."""

    kind: str
    rates: Annotated[tuple[Fraction, ...], NotEmpty] = (0,)
    per_class: bool = False
    list_file: str | None = None

    def sections(self) -> Iterator[Tree]:
        """Yield the section `noise` of an experiment for each rate."""
        for rate in self.rates:
            if rate:
                yield {**self.model_dump(exclude={"rates"}, exclude_unset=True), "rate": rate}
            else:  # no noise is no noise, of whatever kind
                yield {"kind": "none", **self.model_dump(include={"list_file"}, exclude_unset=True)}


class GridFile(GridSection):
    """A grid file as it is written."""

    name: RunName
    seeds: tuple[Seed, ...] = Listed
    common: Tree = Field({})
    datasets: Annotated[dict[RunName, DatasetEntry], Field(min_length=1)]
    methods: tuple[MethodEntry, ...] = Listed
    noise: tuple[NoiseEntry, ...] = Listed
    vary: dict[str, Values] = Field({})
    untrained: bool = False
    tables: tuple[Annotated[str, one_of(*TABLES)], ...] = Listed


@dataclass(frozen=True)
class Cell:
    """One run of a grid.

    Attributes:
        dataset, title: key and title of the data set in the grid file.
        method: a name of bspml.methods, or `UNTRAINED`.
        noise, rate: kind of noise, and share of labels changed.
        seed: of the experiment.
        varied: {dotted key: value} of what the grid varies beside.
        config: the whole experiment; of an `UNTRAINED` cell, what its data come from.
    """

    dataset: str
    title: str
    method: str
    noise: str
    rate: float
    seed: int
    config: Config
    varied: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its run folder: what it is, and a digest of all settings that its result depends on."""
        words = (self.dataset, self.method, self.noise, f"{self.rate:g}", str(self.seed))
        readable = "_".join(words).replace(":", "+").replace("/", "-")
        return f"{readable}-{self.digest}"

    @property
    def place(self) -> tuple[Any, ...]:
        """Where tables have it: all but the settings that they do not tell."""
        return self.dataset, self.method, self.noise, self.rate, self.seed, *self.varied.items()

    @property
    def digest(self) -> str:
        """Changes when the settings do; not with the machine, its folders or devices.

        Settings at their default are left out: a key that a later version adds starts no new run.
        """
        return digest_of(self.config, self.method == UNTRAINED)

    def same_settings(self, config: Config) -> bool:
        """Whether a run of `config` has this cell's result."""
        mine, theirs = (_learned(c.model_dump(mode="json")) for c in (self.config, config))
        return mine == theirs


def files_digest(config: Config) -> str | None:
    """Sixteen digits of the files that the settings name, whose paths alone are in `digest_of`.

    None where there are none, or one is missing.

    A known data set is the same everywhere if it is whole.  Of a file its content counts, of
    pictures in a folder or in a table's list the names and sizes, of those that a saved table names
    beside it the content.  The first eight digits are all that cells had before the other files of
    a folder, and a table's pictures, counted.
    """
    data, noise = config.data, config.noise
    of_user = data.name in USERS_DATA or data.incomplete
    files = (data.features_weights, noise.labels_file, noise.list_file, noise.decisions_file)
    named = [data.root if of_user else None, config.network.weights, *files]
    digest, more = hashlib.sha256(), hashlib.sha256()
    paths = [Path(name) for name in named if name is not None]
    if not paths or not all(path.exists() for path in paths):
        return None
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in (file for file in inside if file.is_file()):
            words, content = _named(file, file.relative_to(path)), ""
            if path.is_file() or file.suffix.lower() not in SUFFIXES:
                content = _content(file, words[1], file.stat().st_mtime_ns)
            digest.update(json.dumps([*words, content if path.is_file() else ""]).encode())
            more.update(content.encode())
    if data.name == "table" or (data.name == "huggingface" and Path(data.root or "").is_file()):
        try:
            for split in read_data(config).splits:
                if data.name == "huggingface":  # unpacked: the folder is named by their content
                    more.update(split.root.name.encode())
                listed = [_named(split.root / name, Path(name)) for name in split.paths]
                more.update(json.dumps(listed).encode())
        except (UserError, OSError):
            return None
    return digest.hexdigest()[:8] + more.hexdigest()[:8]


def _named(file: Path, name: Path) -> tuple[str, int]:
    return name.as_posix(), file.stat().st_size


@lru_cache
def _content(file: Path, size: int, changed: int) -> str:
    """Digest of a file of this size and time of its last change."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def digest_of(config: Config, *more: Any) -> str:
    """Eight digits of all settings that a result depends on, and of what else it does."""
    tree = _learned(config.model_dump(mode="json", exclude_defaults=True))
    words = json.dumps([*more, tree], sort_keys=True)
    return hashlib.sha256(words.encode()).hexdigest()[:8]


def _learned(tree: dict[str, Any]) -> dict[str, Any]:
    """`tree` of a configuration without what a result does not depend on.

    A user's own data are what lies at their root; a known data set is the same at any.
    """
    is_own = tree.get("data", {}).get("name") in USERS_DATA
    for *sections, key in _NOT_LEARNED:
        if is_own and (*sections, key) == ("data", "root"):
            continue
        section: dict[str, Any] = tree
        for part in sections:
            section = section.get(part, {})
        section.pop(key, None)
    return tree


@dataclass(frozen=True)
class Grid:
    """A grid file, expanded.

    Attributes:
        name: of the results' files.
        cells: in the order of the file, the first of equal ones.
        tables: which to make of the results.
        chosen_by: {data set: the command that chose its settings}.
    """

    name: str
    cells: tuple[Cell, ...]
    tables: tuple[str, ...]
    chosen_by: Mapping[str, str]


def read_grid(
    path: Path, root: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> Grid:
    """Read and expand a grid file.

    Args:
        path: the file.
        root: folder that the data sets' `root` start in, or the one of the only data set.
        overrides: {dotted key: value} of every cell, over everything but what the grid varies;
            `seeds` in the place of the file's.

    Raises:
        ConfigError: keys or values that are no grid's, or no experiment's; names the file.
    """
    return expand(read_tree(path), str(path), root, overrides)


def expand(
    tree: Any, source: str, root: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> Grid:
    """The grid that the tree of a grid file stands for; see `read_grid`."""
    settings = dict(overrides or {})
    if "seed" in settings:
        raise ConfigError("--set seed: a grid runs every one of its seeds; such as --set seeds=[0]")
    if "seeds" in settings:
        tree = {**tree, "seeds": settings.pop("seeds")}
    file = validated(GridFile, tree, source)
    of_data = [key for key in file.vary if key.startswith("data.")]
    if file.untrained and of_data:
        raise ConfigError(
            f"{source}: `vary` has {of_data[0]}, and `untrained` is one row for all of them. Write "
            "each as an entry of its own under `datasets`, or set `untrained` to false."
        )
    cells: dict[str, Cell] = {}
    told: dict[str, Cell] = {}
    for cell in _cells(file, source, root, settings):
        same = told.setdefault(repr(cell.place), cell)
        if same.name != cell.name:
            raise ConfigError(
                f"{source}: two cells of {cell.dataset} are {cell.method} under {cell.noise} "
                f"{cell.rate:g}, seed {cell.seed}, with other settings, and a table would call "
                "both the same. Write what differs under `vary`, of the grid or of the method; "
                "noise per class and not, or two lists of one name, into grids of their own."
            )
        cells.setdefault(cell.name, cell)
    chosen = {key: entry.chosen_by for key, entry in file.datasets.items() if entry.chosen_by}
    return Grid(file.name, tuple(cells.values()), file.tables, chosen)


def _cells(
    file: GridFile, source: str, root: Path | None, overrides: Mapping[str, Any]
) -> Iterator[Cell]:
    noises = [noise for entry in file.noise for noise in entry.sections()] or [{"kind": "none"}]
    axes = _combinations(file.vary)
    seeds = file.seeds or (0,)
    for key, dataset in file.datasets.items():
        start = _merged(file.common, dataset.config)
        if dataset.root is not None and root is not None:
            start = _merged(start, {"data": {"root": str(data_folder(root, dataset.root))}})
        start = _with_dotted(start, overrides)
        where, title = f"{source}: {key}", (dataset.title or key) + _changed(overrides)
        if file.untrained:
            # Any method: it is not read.
            clean = {"kind": "none"}
            config = _config(start, "multi-similarity", clean, seeds[0], f"{where}, {UNTRAINED}")
            yield Cell(key, title, UNTRAINED, "none", 0.0, seeds[0], config)
        for noise, seed, entry, axis in itertools.product(noises, seeds, file.methods, axes):
            for own in _combinations(entry.vary):
                name = entry.name
                hyper = {name: {**entry.hyperparameters, **own}}
                settings = _merged(_merged(start, entry.config), {"hyperparameters": hyper})
                settings = _with_dotted(settings, axis)
                varied = {**axis, **{f"hyperparameters.{name}.{k}": v for k, v in own.items()}}
                # A benchmark takes the labels of a table for right, which a user's need not be.
                own_data = (settings.get("data") or {}).get("name") in OWN_DATA
                right = own_data and noise == {"kind": "none"}
                planted = {"kind": "symmetric", "rate": 0.0} if right else noise
                config = _config(settings, name, planted, seed, f"{where}, {name}")
                yield Cell(key, title, name, *_noise_in_words(noise), seed, config, varied)


def _changed(overrides: Mapping[str, Any]) -> str:
    """What a title says of settings that are not the file's; nothing of those no result tells."""
    told = {k: v for k, v in overrides.items() if tuple(k.split(".")) not in _NOT_LEARNED}
    words = ", ".join(f"{key}={json.dumps(value, default=str)}" for key, value in told.items())
    return f" ({words})" if words else ""


def _noise_in_words(noise: Mapping[str, Any]) -> tuple[str, float]:
    """What a table calls the noise, and its rate: of a list, the one in its name, or 0."""
    if noise.get("list_file") is None:
        return noise["kind"], noise.get("rate", 0.0)
    file = Path(noise["list_file"]).name
    return f"list {file.split('.csv')[0]}", nominal_rate(file) or 0.0


def _config(tree: Tree, method: str, noise: Tree, seed: int, source: str) -> Config:
    """The experiment of one cell; `source` stands before what is wrong with it."""
    cell = {"name": "cell", "seed": seed, "noise": noise, "training": {"methods": [method]}}
    whole = _merged(tree, cell)
    # Common hyper-parameters, and a loss, of other methods are for other cells.
    hyper = (whole.get("hyperparameters") or {}).get(method)
    whole["hyperparameters"] = {method: hyper} if hyper else {}
    if method not in CONFIGURED:
        whole.pop("loss", None)
    # So are settings that a method, or a data set, does not read.
    config = config_from_mapping(whole, source, unread_may_stand=True)
    if 1 not in config.evaluation.ks:
        raise ConfigError(
            f"{source}: `evaluation.ks` must hold 1, which tables and curves are made of; got "
            f"{list(config.evaluation.ks)}"
        )
    try:
        methods.check_method(method, config.hyperparameters.get(method))
    except InputError as err:
        raise ConfigError(f"{source}: {err}") from None
    return config


def _combinations(axes: Mapping[str, tuple[Any, ...]]) -> list[dict[str, Any]]:
    """Every choice of a value for each key; one empty choice where there are no keys."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested mappings, `over` wins; neither is changed."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        # A kind of noise replaces another whole: its rate would be read under the new kind.
        merged[key] = _merged(below, value) if both and key != "noise" else value
    return merged


def _with_dotted(tree: Tree, settings: Mapping[str, Any]) -> Tree:
    """`tree` with each `section.key: value` of the settings in its place."""
    for dotted, value in settings.items():
        nested: Any = value
        for key in reversed(dotted.split(".")):
            nested = {key: nested}
        tree = _merged(tree, nested)
    return tree
