"""A run folder around a training, and what is checked before an interrupted run goes on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel

from bspml.distributed import from_main, rank, wait_for_all
from bspml.errors import CheckpointError, ConfigError, UserError
from bspml.experiment.config import dump_config
from bspml.experiment.config.reading import read_tree
from bspml.files import checkpoints
from bspml.files.atomic import atomic_write
from bspml.files.checkpoints import State
from bspml.files.run import UNTRAINED, RecordLog, RunFolder

# What may differ between machines that train together.
_OF_A_MACHINE = ("name", "device", "workers", "data.root", "data.cache")

# What may differ when a run goes on: how long, where, and what is looked at; never what is learned.
CHANGEABLE = (
    *_OF_A_MACHINE,
    "training.epochs",
    "training.patience",
    "training.checkpoint_every",
    "observers",
    "evaluation",
)

# Counts the times that a name of `bspml.methods` came to mean another loss: 1 is "contrastive",
# whose margins were cosines before.
_LOSSES = 1

_KINDS = {"method": str, "trainer": dict, "records": int, "threads": int, "config": dict}
_LEAST = {"records": 0, "threads": 1}


def method_state(
    method: str, trainer: State, config: BaseModel, records: int, measured: str | None = None
) -> State:
    """Return what a checkpoint of one method holds, torch's number of threads included.

    Sums on a CPU are split by threads, so that a run goes on with as many.

    Args:
        method: its name.
        trainer: state of its trainer.
        config: the run's, of any task.
        records: lines in the log so far, of every method.
        measured: fingerprint of what is evaluated on, or None.
    """
    return {
        "method": method,
        "losses": _LOSSES,
        "trainer": trainer,
        "records": records,
        "measured": measured,
        "threads": torch.get_num_threads(),
        "config": config.model_dump(mode="json"),
    }


def load_method(folder: RunFolder, method: str, fingerprint: str | None = None) -> State:
    """Read the `method_state` in the checkpoint of a method; keys and kinds are checked.

    Args:
        folder: of the run.
        method: its name.
        fingerprint: of the data in hand; None leaves that check out.

    Raises:
        CheckpointError: missing, damaged, of other data, or of another method.
    """
    path = folder.checkpoint(method)
    state = checkpoints.load(path, fingerprint)
    for key, kind in _KINDS.items():
        value: Any = state.get(key)
        fits = type(value) is kind  # exactly: True is no number of records
        if not fits or (key in _LEAST and value < _LEAST[key]):
            raise CheckpointError(
                f"{path}: is no checkpoint of a run (`{key}` is "
                f"{'missing' if key not in state else f'{value!r:.40}'}). Start the run anew."
            )
    if state["method"] != method:
        raise CheckpointError(
            f"{path}: is a checkpoint of {state['method'][:40]!r}, not of {method!r}. Was the "
            "file renamed? Put the right one back, or start the run anew."
        )
    return state


def has_checkpoint(folder: RunFolder, method: str) -> bool:
    """Return whether there is anything under the name of the checkpoint.

    Args:
        folder: of the run.
        method: whose checkpoint.
    """
    return os.path.lexists(folder.checkpoint(method))


def check_unchanged(saved: Mapping[str, Any], config: BaseModel, file: Path) -> None:
    """Refuse to go on under another configuration than the checkpoint's, `CHANGEABLE` aside.

    The records would otherwise claim that all rounds were trained under the new one.

    Args:
        saved: `Config.model_dump(mode="json")` of the checkpoint.
        config: of the run folder now.
        file: which holds it.

    Raises:
        ConfigError: names the key and both values.
    """
    for key, then, now in _differences(saved, config):
        if key not in CHANGEABLE and key.partition(".")[0] not in CHANGEABLE:
            raise ConfigError(
                f"{file}: `{key}` is {now}, but the run was trained with {then} so far. Put that "
                f"back, or start a new run; a run that goes on may only change "
                f"{', '.join(CHANGEABLE[:-1])} and evaluation.*."
            )


def check_length(saved: Mapping[str, Any], config: Any, file: Path, why: str = "") -> None:
    """Refuse another length than a checkpoint's where it decided what was learned so far.

    Args:
        saved: configuration of the checkpoint, as plain values.
        config: of the run folder now.
        file: which holds it.
        why: the length decides, where it does by more than the schedule.

    Raises:
        ConfigError: names both lengths and the reason.
    """
    then, now = saved["training"]["epochs"], config.training.epochs
    if config.schedule.stretches:
        why = f"the {config.schedule.name} schedule stretches over all of them"
    if why and then != now:
        raise ConfigError(
            f"{file}: `training.epochs` is {now}, but the run was trained with {then} so far, and "
            f"{why}. Put that back, or start a new run."
        )


def check_ranks_agree(config: BaseModel, fingerprint: str) -> None:
    """Refuse ranks that would train something else than rank 0 does: another file or argument.

    Args:
        config: of this rank.
        fingerprint: of its data.

    Raises:
        ConfigError: names the key and both values, or says that the data differ.
    """
    theirs, data_there = from_main(lambda: (config.model_dump(mode="json"), fingerprint))
    for key, main_value, own_value in _differences(theirs, config):
        if key not in _OF_A_MACHINE:
            raise ConfigError(
                f"`{key}` is {own_value} on rank {rank()} and {main_value} on rank 0. Start all "
                "ranks with the same arguments and the same configuration file."
            )
    if fingerprint != data_there:
        raise ConfigError(
            f"rank {rank()} reads other images or labels than rank 0. Give every machine the same "
            "files."
        )
    wait_for_all()  # nothing is made while one may still refuse


def restore_records(
    log: RecordLog, folder: RunFolder, methods: Sequence[str], states: Mapping[str, State]
) -> None:
    """Bring the records to where the checkpoints stand, if they belong together.

    Records written after the last checkpoint will be written again, but none of a method that is
    no longer trained, as they could not be.  A method whose records other
    checkpoints know of must still have its own: it would be trained again, and its records would
    stand in the log twice.

    Args:
        log: of the run.
        folder: of the run.
        methods: its methods.
        states: `method_state` of those that have a checkpoint, their trainers' taken by a trainer.

    Raises:
        CheckpointError: the records are not of a checkpoint's rounds, or one is gone; names it.
        RunError: a record is damaged.
    """
    # With a checkpoint, its configuration was compared.
    others = {r.method for r in log.first(0 if states else len(log))} - {*methods, UNTRAINED}
    if others:
        raise CheckpointError(
            f"{log.path}: holds rounds of {min(others)!r}, which is no method of this run now. "
            "Put it back into `training.methods`, or start a new run."
        )
    count = max((state["records"] for state in states.values()), default=0)
    # Parsed now, not when the table is made of them hours later.
    records = log.first(count)
    for method in methods:
        state, file = states.get(method), folder.checkpoint(method)
        method_records = records if state is None else records[: state["records"]]
        # Before the first step there is a record, but no round.
        number = sum(record.method == method and record.steps != 0 for record in method_records)
        if state is None and number:
            raise CheckpointError(
                f"{file}: is missing, but the records hold {number} rounds of {method}. Put the "
                "file back, or start a new run."
            )
        rounds = number if state is None else state["trainer"]["position"]["round"]
        if number != rounds:
            raise CheckpointError(
                f"{file}: was written after {rounds} rounds, but the records hold {number} of "
                f"{method}. The two files are not of one run; start a new one."
            )
    log.truncate(count)


def _check_complete(file: Path, config: BaseModel, states: Mapping[str, State]) -> None:
    """Refuse a written configuration without some key: it would silently take its default.

    Keys that no checkpoint has either came after the run was begun, which had their defaults.
    """
    keys = {key for key, _ in _flat(read_tree(file))}
    known = [state["config"] for state in states.values()] or [config.model_dump(mode="json")]
    for key in dict(pair for saved in known for pair in _flat(saved)):
        if key not in keys:
            raise ConfigError(
                f"{file}: `{key}` is missing, which every run writes: the file was cut or edited. "
                "Put it back, or start a new run."
            )


@contextmanager
def run_folder(
    folder: RunFolder, config: BaseModel, methods: Sequence[str], resume: bool
) -> Iterator[None]:
    """Hold the folder while its methods are trained.

    A new run must find it unused, and leaves nothing if a user's mistake ends it before the first
    checkpoint.

    Args:
        folder: of the run.
        config: written into a new run's folder.
        methods: names of what is trained.
        resume: whether the run was started before.

    Raises:
        BusyRunError: another process is training this run.
        RunError: the folder is used, or something in that of an old run is a link.
    """
    if resume:
        folder.refuse_links()
    with folder.locked():
        if not resume:
            folder.refuse_if_used()
        try:
            if not resume:
                atomic_write(folder.config, dump_config(config))
            yield
        except UserError:
            if not resume and not any(has_checkpoint(folder, method) for method in methods):
                folder.discard()
            raise


def load_states(
    folder: RunFolder,
    methods: Sequence[str],
    config: BaseModel,
    fingerprint: str,
    check: Callable[[Mapping[str, Any], RunFolder], None],
    measured: str | None = None,
) -> dict[str, State]:
    """Read the state of every method that has a checkpoint, of this configuration and these data.

    Args:
        folder: of the run.
        methods: its methods.
        config: of the folder now.
        fingerprint: of the data.
        check: looks at each checkpoint's configuration, too, after `check_unchanged`.
        measured: fingerprint of what is evaluated on; None leaves that check out.

    Raises:
        ConfigError: the folder's configuration was cut, or is not that of a checkpoint.
        CheckpointError: a checkpoint is damaged, of other data, or evaluated on others.
    """
    folder.remove_leftovers()
    states = {m: load_method(folder, m) for m in methods if has_checkpoint(folder, m)}
    _check_complete(folder.config, config, states)
    for method, state in states.items():
        # Before the data: that the noise was changed, say, is clearer than "other data".
        check_unchanged(state["config"], config, folder.config)
        check(state["config"], folder)
        if state.get("losses", 0) < _LOSSES and method.rpartition(":")[2] == "contrastive":
            raise CheckpointError(
                f"{folder.checkpoint(method)}: was begun when contrastive had the margins that are "
                "now those of contrastive-paper, so it cannot go on. Finish the run with the "
                "version that began it, or start anew."
            )
        load_method(folder, method, fingerprint)
        before = state.get("measured")  # not before it was kept
        if None not in (before, measured) and before != measured:
            raise CheckpointError(
                f"{folder.checkpoint(method)}: was evaluated on other test samples or labels than "
                "those that are there now, so that its records would mix two tests. Put the first "
                "ones back, or start a new run."
            )
    return states


def set_threads(
    threads: int | None,
    one_is_faster: bool,
    states: Mapping[str, State],
    say: Callable[[str], None],
) -> None:
    """Give torch the threads asked for, or those of the checkpoints to go on from.

    Sums on a CPU are split by threads: the same bits need the same number of them.

    Args:
        threads: asked for, or None.
        one_is_faster: whether one is enough where None is asked for.
        states: of the interrupted methods.
        say: told where this machine has fewer.
    """
    if threads is not None or one_is_faster:
        torch.set_num_threads(threads or 1)
    for method, state in states.items():
        saved = state["threads"]  # at most what this machine has: torch crashes on thousands
        usable = min(saved, max(os.cpu_count() or 1, torch.get_num_threads()))
        if usable < saved:
            say(
                f"{method}: saved with {saved} threads, goes on with the {usable} of this machine; "
                "the last bits may differ"
            )
        torch.set_num_threads(usable)


def changed(saved: Mapping[str, Any], config: BaseModel, keys: str) -> list[str]:
    """Return the keys of a configuration that are others than a checkpoint's.

    Args:
        saved: of the checkpoint, as plain values.
        config: of the run folder now.
        keys: what those looked at begin with.
    """
    return [key for key, _, _ in _differences(saved, config) if key.startswith(keys)]


def _differences(saved: Mapping[str, Any], config: BaseModel) -> Iterator[tuple[str, str, str]]:
    """Yield (key, value then, value now), ready to be shown, wherever the two differ.

    A key that there was not yet then had its default, which does what was done before.
    """
    then = dict(_flat(type(config)().model_dump(mode="json"))) | dict(_flat(saved))
    now = dict(_flat(config.model_dump(mode="json")))
    for key in now | dict(_flat(saved)):
        if then.get(key) != now.get(key):
            yield key, _as_text(then.get(key)), _as_text(now.get(key))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _as_text(value: Any) -> str:
    text = "null" if value is None else f"{value!s:.60}"
    return text.lower() if isinstance(value, bool) else text
