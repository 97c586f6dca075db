"""From a YAML file and key=value overrides to a `Config`, and back to YAML.

Read as YAML 1.2: `5e-6` is a number; `yes`, `1_0` and dates are text.  So are `007`, `0x10` and
`+1`, as in files of labels.  The file's tree and the overrides are merged first and validated once,
so an override may supply what the file lacks.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML, SafeConstructor
from ruamel.yaml.error import YAMLError

from bspml.errors import ConfigError
from bspml.experiment.config.classification import ClassificationConfig
from bspml.experiment.config.messages import describe, shown, unknown_key, valid_keys
from bspml.experiment.config.names import TASKS
from bspml.experiment.config.schema import OPEN_SECTIONS, Config
from bspml.experiment.config.shipped import config_path, shipped_configs
from bspml.experiment.config.unread import MAY_STAND
from bspml.files.opening import open_regular, reason
from bspml.files.run.plain import check_nesting
from bspml.words import did_you_mean

COMMAND_LINE = "command line"
METRIC_LEARNING = "metric-learning"  # the task of a file that names none
_MOST = 100_000  # values in a config
_MAX_BYTES = 1 << 20  # a config of more than 1 MiB is some other file
_NO_NUMBER = re.compile(r".*_.*|[-+]?0([0-9b].*|[ox].+)|[+][0-9]+|-0")  # 1_0, 007, 0x1, +1
_NEXT_LINE = "\x85"  # a character like others to YAML 1.2, the end of a line to its reader

Experiment = TypeVar("Experiment", bound=BaseModel)


def load_config(
    path: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    unread_may_stand: bool = False,
) -> Config:
    """Read an experiment: the defaults, over them the file, over it the overrides.

    Args:
        path: a YAML file, the name of a shipped one ("glyphs"), or None for the defaults (the main
            job).
        overrides: `section.key=value` texts, the value in YAML (`optimizer.lr=5e-6`,
            `evaluation.ks=[1, 10]`, `curriculum.age=null`); a later one wins.
        unread_may_stand: accept a value that nothing reads, as the files of runs may hold it.

    Returns:
        The frozen, complete `Config`.

    Raises:
        ConfigError: one line with the file (or 'command line'), the dotted key, what was
            expected, what came, and the nearest valid name.

    Example:
        >>> load_config(overrides=["optimizer.lr=5e-6"]).optimizer.lr
        5e-06
    """
    config = load_experiment(path, overrides, unread_may_stand)
    if isinstance(config, ClassificationConfig):
        raise ConfigError(
            f"{path or COMMAND_LINE}: is a {config.task} experiment (its `task`), which has no "
            "embeddings; only `bspml train` and `bspml report` know what to do with one"
        )
    return config


def load_experiment(
    path: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    unread_may_stand: bool = False,
) -> Config | ClassificationConfig:
    """Read an experiment of any `task`: metric-learning (or none), classification, regression.

    Args:
        path: a YAML file, the name of a shipped one, or None for the defaults.
        overrides, unread_may_stand: as those of `load_config`.

    Raises:
        ConfigError: as `load_config`.

    Example:
        >>> load_experiment(overrides=["task=regression"]).noise.kind
        'uniform'
    """
    source = "defaults" if path is None else str(path)
    tree: dict[Any, Any] = {} if path is None else read_tree(config_path(path))
    parsed = [(*_parse_override(text), text) for text in overrides]
    origin = {".".join(keys): COMMAND_LINE for keys, _, _ in parsed}
    # The kind of experiment first: it decides which keys there are.
    tree |= {keys[0]: value for keys, value, _ in parsed if keys == ["task"]}
    root = _pop_kind(tree, origin.get("task", source))
    for keys, value, text in parsed:
        if keys != ["task"]:
            _assign(tree, keys, value, text, root)
    return validated(root, tree, source, origin, unread_may_stand)


def config_from_mapping(
    tree: Mapping[Any, Any], source: str = "config", unread_may_stand: bool = False
) -> Config:
    """Validate a nested mapping.

    Args:
        tree: {section: {key: value}}.
        source: where it comes from, for messages.
        unread_may_stand: as that of `load_config`.

    Raises:
        ConfigError: one line with the source, the key, what was expected and what came.

    Example:
        >>> config_from_mapping({"noise": {"rate": 0.1}}).noise.rate
        0.1
    """
    return validated(Config, tree, source, unread_may_stand=unread_may_stand)


def _pop_kind(tree: dict[Any, Any], source: str) -> type[Config] | type[ClassificationConfig]:
    """What `task` names; the key stays where the experiment has one."""
    task = tree.get("task", METRIC_LEARNING)
    if task == METRIC_LEARNING:
        tree.pop("task", None)
        return Config
    if task not in TASKS:
        names = (METRIC_LEARNING, *TASKS)
        raise ConfigError(
            f"{source}: `task` must be one of {', '.join(names)}; got {shown(task)}"
            f"{did_you_mean(task, names)}"
        )
    return ClassificationConfig


def validated(
    root: type[Experiment],
    tree: Mapping[Any, Any],
    source: str,
    origin: Mapping[str, str] | None = None,
    unread_may_stand: bool = False,
) -> Experiment:
    """Build the model that a nested mapping describes.

    Args:
        root: the model.
        tree: its keys.
        source: where the tree comes from, for messages.
        origin: {dotted key: source} of keys that come from elsewhere.
        unread_may_stand: as that of `load_config`.

    Raises:
        ConfigError: one line with the source, the key, what was expected and what came.
    """
    try:
        return root.model_validate(tree, context={MAY_STAND: unread_may_stand})
    except ValidationError as err:
        raise ConfigError(describe(err, source, origin or {}, root)) from None


def dump_config(config: BaseModel) -> str:
    """Return the complete experiment as YAML; `load_config` of it gives an equal `Config`.

    Example:
        >>> print(dump_config(load_config()).splitlines()[0])
        name: glyphs
    """
    # In JSON mode tuples are lists, which is how YAML knows them.
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # keep our order
    yaml.allow_unicode = _NEXT_LINE not in config.model_dump_json()  # else escaped
    text = io.StringIO()
    yaml.dump(config.model_dump(mode="json"), text)
    return text.getvalue()


def read_tree(path: Path) -> dict[Any, Any]:
    """Read the keys of a YAML file, unchecked.

    Raises:
        ConfigError: the file cannot be read, or holds no `key: value` lines.
    """
    hint = did_you_mean(path, shipped_configs()) or "; those of `bspml configs` have a name"
    missing = f"no such file{_near_file(path)}{hint}"
    with open_regular(path, "a YAML file", ConfigError, missing=missing) as file:
        raw = file.read(_MAX_BYTES + 1)
    if len(raw) > _MAX_BYTES or b"\0" in raw:
        raise ConfigError(f"{path}: is not a text file; expected YAML (`bspml configs glyphs`)")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as err:
        line = raw[: err.start].count(b"\n") + 1
        raise ConfigError(f"{path}: line {line} is not UTF-8; save the file as UTF-8") from None
    tree = parse_yaml(text, str(path))
    if tree is None:
        raise ConfigError(f"{path}: is empty; write `{{}}` for the defaults, or leave the file out")
    if not isinstance(tree, dict):
        kind = type(tree).__name__
        kind = {"list": "a list", "str": "plain text"}.get(kind, kind)
        raise ConfigError(
            f"{path}: expected `key: value` lines; got {kind}. "
            "A section is `optimizer:` with indented keys below it"
        )
    return tree


def parse_yaml(text: str, source: str) -> Any:
    """Return the safe YAML 1.2 value of a text.

    Args:
        text: YAML.
        source: where it comes from, for messages.

    Raises:
        ConfigError: one line with what the parser objects to.

    Example:
        >>> parse_yaml("[1, 5e-6, yes]", "example")
        [1, 5e-06, 'yes']
    """
    if _NEXT_LINE in text:
        raise ConfigError(f"{source}: holds U+0085; write it as \\N in double quotes")
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    try:
        value = yaml.load(text)
        check_nesting(value, _MOST)  # anchors and aliases can grow a line to terabytes
        return value
    except RecursionError:
        raise ConfigError(f"{source}: is nested too deeply to be a config") from None
    except YAMLError as err:
        raise ConfigError(f"{source}: {_yaml_fault(err)}") from None
    except Exception as err:  # broken dates, !!int tags: ruamel lets the converters' errors through
        raise ConfigError(f"{source}: is not valid YAML ({reason(err)})") from None


class _Constructor(SafeConstructor):
    """Of plain values."""

    def number(self, node: Any) -> Any:
        """Return the number of a scalar that looks like one, or its text."""
        if node.tag.endswith("timestamp") or _NO_NUMBER.fullmatch(node.value):
            return node.value
        return getattr(self, f"construct_yaml_{str(node.tag).rpartition(':')[2]}")(node)


for _kind in ("int", "float", "timestamp"):
    _Constructor.add_constructor(f"tag:yaml.org,2002:{_kind}", _Constructor.number)


def _yaml_fault(err: YAMLError) -> str:
    mark = getattr(err, "problem_mark", None)
    where = "" if mark is None else f"line {mark.line + 1}: "
    problem = getattr(err, "problem", None) or reason(err)
    if "duplicate key" in problem:
        return f"{where}{problem.removeprefix('found ').split(' with value')[0]}; keep one of them"
    if r"'\t'" in problem:
        return f"{where}a tab used as indentation; YAML wants spaces"
    return f"{where}is not valid YAML ({problem})"


def _near_file(path: Path) -> str:
    try:
        names = sorted(p.name for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml"))
    except OSError:
        return f"; nor is there a folder {path.parent}"
    return f"; {path.parent} has {', '.join(names[:8])}" if names else ""


def _parse_override(text: str) -> tuple[list[str], Any]:
    """Split `section.key=value` and read the value as YAML."""
    dotted, equals, value = text.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(
            f"{COMMAND_LINE}: expected key=value such as optimizer.lr=1e-3; got {text[:80]!r}"
        )
    return keys, parse_yaml(value, f"{COMMAND_LINE}: `{'.'.join(keys)}`")


def _assign(
    tree: dict[Any, Any], keys: list[str], value: Any, text: str, root: type[BaseModel]
) -> None:
    """Put `value` at `keys`, making the sections on the way."""
    *parents, last = keys
    _check_key(keys, text, root)
    for key in parents:
        section = tree.get(key, {})
        if not isinstance(section, dict):
            return  # the file has something else here; validation names it
        # A copy: YAML aliases share one mapping between sections.
        tree[key] = section = dict(section)
        tree = section
    tree[last] = value


def _check_key(keys: list[str], text: str, root: type[BaseModel]) -> None:
    """Refuse a key that is not there, or a section in place of one of its keys."""
    if keys[0] in OPEN_SECTIONS and keys[0] in valid_keys([], root):
        if len(keys) != 3:
            raise ConfigError(
                f"{COMMAND_LINE}: expected {keys[0]}.METHOD.NAME=VALUE; got {text[:60]!r}"
            )
        return  # whoever builds the method knows its names
    if keys[-1] not in valid_keys(keys[:-1], root):
        raise ConfigError(f"{COMMAND_LINE}: {unknown_key(keys, root)}")
    inner = valid_keys(keys, root)
    if inner:
        raise ConfigError(
            f"{COMMAND_LINE}: `{keys[-1]}` is a section; set one key of it at a time, such as "
            f"{keys[-1]}.{inner[0]}=..., not {text[:60]!r}"
        )
