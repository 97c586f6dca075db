"""A grid file (YAML) and the cells it stands for: data set x method x noise x seed, and settings.

name: table2
seeds: [0, 1, 2]
common: {...}            # of every cell: keys of an experiment, as in configs/glyphs.yaml
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
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_folders import data_folder

from bspml import methods
from bspml.data.labels.noise_lists import nominal_rate
from bspml.errors import ConfigError, InputError
from bspml.experiment.config import Config
from bspml.experiment.config.names import OWN_DATA
from bspml.experiment.config.reading import config_from_mapping, parse_yaml

UNTRAINED = "untrained"
TABLES = ("table1", "table2", "varied", "choice")

_KEYS = ("name", "seeds", "common", "datasets", "methods", "noise", "vary", "untrained", "tables")
_DATASET_KEYS = ("title", "root", "config", "chosen_by")
_METHOD_KEYS = ("name", "hyperparameters", "config", "vary")
_NOISE_KEYS = ("kind", "rates", "per_class", "list_file")
# What a result does not depend on, or by rounding only: it may change without a new run.
_NOT_LEARNED = (
    ("name",), ("device",), ("workers",), ("threads",), ("data", "root"), ("data", "cache"),
    ("data", "features_weights"), ("training", "checkpoint_every"),
)  # fmt: skip


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
    def digest(self) -> str:
        """Changes when the settings do; not with the machine, its folders or devices.

        Settings at their default are left out: a key that a later version adds starts no new run.
        """
        tree = _learned(self.config.model_dump(mode="json", exclude_defaults=True))
        words = json.dumps([self.method == UNTRAINED, tree], sort_keys=True)
        return hashlib.sha256(words.encode()).hexdigest()[:8]

    def same_settings(self, config: Config) -> bool:
        """Whether a run of `config` has this cell's result."""
        mine, theirs = (_learned(c.model_dump(mode="json")) for c in (self.config, config))
        return mine == theirs


def _learned(tree: dict[str, Any]) -> dict[str, Any]:
    """`tree` of a configuration without what a result does not depend on."""
    for *sections, key in _NOT_LEARNED:
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
        overrides: {dotted key: value} of every cell, over everything but what the grid varies.

    Raises:
        ConfigError: keys or values that are no grid's, or no experiment's; names the file.
    """
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"{path}: cannot be read ({err})") from None
    return expand(tree, str(path), root, overrides)


def expand(
    tree: Any, source: str, root: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> Grid:
    """The grid that the tree of a grid file stands for; see `read_grid`."""
    _check_tree(tree, source)
    tables = tuple(tree.get("tables") or ())
    found: dict[str, Cell] = {}
    for cell in _cells(tree, source, root, overrides or {}):
        found.setdefault(cell.name, cell)
    chosen = {
        key: entry["chosen_by"] for key, entry in tree["datasets"].items() if "chosen_by" in entry
    }
    return Grid(str(tree["name"]), tuple(found.values()), tables, chosen)


def _cells(
    tree: Mapping[str, Any], source: str, root: Path | None, overrides: Mapping[str, Any]
) -> Iterator[Cell]:
    noises = [n for entry in tree.get("noise") or [{"kind": "none"}] for n in _noise(entry, source)]
    entries = [_method(entry, source) for entry in tree.get("methods") or ()]
    axes = _combinations(tree.get("vary") or {})
    seeds = tree.get("seeds") or [0]
    for key, dataset in tree["datasets"].items():
        start = _merged(tree.get("common") or {}, dataset.get("config") or {})
        if dataset.get("root") is not None and root is not None:
            start = _merged(start, {"data": {"root": str(data_folder(root, dataset["root"]))}})
        for dotted, value in overrides.items():
            start = _merged(start, _nested(dotted, value))
        title = str(dataset.get("title", key))

        def cell(method: str, noise: Any, seed: int, settings: Any, varied: Any) -> Cell:
            kind, rate = _said(noise)
            trained = "multi-similarity" if method == UNTRAINED else method  # any: it is not read
            whole = _merged(
                settings, {"seed": seed, "noise": noise, "training": {"methods": [trained]}}
            )
            if method != UNTRAINED and noise == {"kind": "none"} and _is_own(whole):
                # A benchmark takes the labels of a table for right, which a person's need not be.
                whole["noise"] = {"kind": "symmetric", "rate": 0.0}
            # Common hyper-parameters of other methods are for other cells.
            hyper = whole.get("hyperparameters") or {}
            whole["hyperparameters"] = {k: v for k, v in hyper.items() if k == method}
            config = _config(whole, f"{source}: {key}, {method}")  # noqa: B023  # called at once
            return Cell(key, title, method, kind, rate, seed, config, varied)  # noqa: B023

        if tree.get("untrained"):
            yield cell(UNTRAINED, {"kind": "none"}, seeds[0], start, {})
        for noise, seed, entry, axis in itertools.product(noises, seeds, entries, axes):
            for own in _combinations(entry.get("vary") or {}):
                name = entry["name"]
                hyper = {**(entry.get("hyperparameters") or {}), **own}
                settings = _merged(start, entry.get("config") or {})
                if hyper:
                    settings = _merged(settings, {"hyperparameters": {name: hyper}})
                for dotted, value in axis.items():
                    settings = _merged(settings, _nested(dotted, value))
                varied = {f"hyperparameters.{name}.{k}": v for k, v in own.items()}
                yield cell(name, noise, seed, settings, {**axis, **varied})


def _is_own(tree: Mapping[str, Any]) -> bool:
    return (tree.get("data") or {}).get("name") in OWN_DATA


def _said(noise: Mapping[str, Any]) -> tuple[str, float]:
    """What a table calls the noise, and its rate: of a list, the one in its name, or 0."""
    if noise.get("list_file") is None:
        return noise["kind"], float(noise.get("rate", 0.0))
    file = Path(str(noise["list_file"])).name
    return f"list {file.split('.csv')[0]}", nominal_rate(file) or 0.0


def _config(tree: Mapping[str, Any], source: str) -> Config:
    config = config_from_mapping({**tree, "name": "cell"}, source)
    for method in config.training.methods:
        try:
            methods.check_method(method, config.hyperparameters.get(method))
        except InputError as err:
            raise ConfigError(f"{source}: {err}") from None
    return config


def _noise(entry: Any, source: str) -> Iterator[dict[str, Any]]:
    _check_keys(entry, _NOISE_KEYS, source, "an entry of `noise`")
    rest = {key: value for key, value in entry.items() if key != "rates"}
    if not isinstance(entry.get("kind"), str):
        raise ConfigError(f"{source}: an entry of `noise` needs `kind`, in a word")
    rates = entry.get("rates", [None])
    if "rates" in entry:
        _check_kind(rates, list, source, "`rates`", empty=False)
    for rate in rates:
        number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if rate is not None and not (number and 0 <= rate <= 1):
            raise ConfigError(f"{source}: `rates` must be in [0, 1]; got {rate!r:.40}")
        if not rate:  # no noise is no noise, of whatever kind
            yield {"kind": "none", **{k: v for k, v in rest.items() if k == "list_file"}}
        else:
            yield {**rest, "rate": rate}


def _method(entry: Any, source: str) -> dict[str, Any]:
    if isinstance(entry, str):
        return {"name": entry}
    _check_keys(entry, _METHOD_KEYS, source, "an entry of `methods`")
    if not isinstance(entry.get("name"), str):
        raise ConfigError(f"{source}: an entry of `methods` needs `name`, in a word")
    for key in ("hyperparameters", "config"):
        _check_kind(entry.get(key), Mapping, source, f"`{key}` of {entry['name']}")
    _check_axes(entry.get("vary"), source, f"`vary` of {entry['name']}")
    return dict(entry)


def _check_tree(tree: Any, source: str) -> None:
    """Keys and kinds of a grid file, down to what the configuration of a cell checks."""
    _check_keys(tree, _KEYS, source, "the grid")
    for key in ("name", "datasets"):
        if not tree.get(key):
            raise ConfigError(f"{source}: a grid needs `{key}`")
    _check_name(tree["name"], source, "`name`")
    _check_kind(tree.get("common"), Mapping, source, "`common`")
    for key in ("seeds", "methods", "noise", "tables"):
        _check_kind(tree.get(key), list, source, f"`{key}`")
    for seed in tree.get("seeds") or ():
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise ConfigError(f"{source}: `seeds` must be whole numbers; got {seed!r:.40}")
    _check_axes(tree.get("vary"), source, "`vary`")
    for table in tree.get("tables") or ():
        if table not in TABLES:
            raise ConfigError(f"{source}: `tables` has {table!r}; there are {', '.join(TABLES)}")
    _check_kind(tree["datasets"], Mapping, source, "`datasets`")
    for key, entry in tree["datasets"].items():
        _check_name(key, source, "a key of `datasets`")
        _check_keys(entry, _DATASET_KEYS, source, f"`datasets.{key}`")
        _check_kind(entry.get("config"), Mapping, source, f"`datasets.{key}.config`")
        for word in ("title", "root", "chosen_by"):
            _check_kind(entry.get(word), str, source, f"`datasets.{key}.{word}`")


def _check_name(name: Any, source: str, what: str) -> None:
    """Files and folders are called after it."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,60}", name):
        raise ConfigError(
            f"{source}: {what} must be letters, digits and _ . + -, since files are called after "
            f"it; got {name!r:.40}"
        )


def _check_kind(value: Any, kind: Any, source: str, what: str, empty: bool = True) -> None:
    """Refuse what is there and of another kind; None is not there."""
    if value is None and empty:
        return
    if not isinstance(value, kind) or not (empty or value):
        words = {list: "a list", str: "a text", Mapping: "`key: value` lines"}[kind]
        raise ConfigError(f"{source}: {what} must be {words}; got {value!r:.40}")


def _check_axes(axes: Any, source: str, what: str) -> None:
    _check_kind(axes, Mapping, source, what)
    for key, values in (axes or {}).items():
        _check_kind(key, str, source, f"a key of {what}")
        _check_kind(values, list, source, f"{what}, {key},", empty=False)


def _combinations(axes: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
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


def _nested(dotted: str, value: Any) -> dict[str, Any]:
    tree: Any = value
    for key in reversed(dotted.split(".")):
        tree = {key: tree}
    return tree


def _check_keys(tree: Any, known: tuple[str, ...], source: str, what: str) -> None:
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{source}: {what} must be `key: value` lines; got {tree!r:.40}")
    for key in tree:
        if key not in known:
            raise ConfigError(f"{source}: {what} has no key `{key}`; it has {', '.join(known)}")
