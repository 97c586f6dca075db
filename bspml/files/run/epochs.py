"""One record per round and method, one JSON line each, appended so that a kill costs one line."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bspml.errors import RunError
from bspml.files.atomic import changed_in_place
from bspml.files.opening import open_regular, refusals
from bspml.files.run.lock import NO_PERMISSION
from bspml.files.run.plain import parse_json, to_json

# In the place of a method: the features of a pretrained network as they are, or the network before
# its first step where there are none.
UNTRAINED = "untrained"

_LARGEST = 1e300
Number = float | int  # spelt out: the checker used in tests does not take 1 for a float


@dataclass(frozen=True)
class EpochRecord:
    """What is known after one round of one method.  None: not measured, or not a finite number.

    Attributes:
        method: name of the training run inside the experiment ('contrastive', 'auto:contrastive').
        epoch: passes over the data done, in data-set sizes (a round on one half counts 0.5);
            0 is the state before the first step.
        steps: optimiser steps done.
        seconds: wall time of this round, evaluation left out.
        loss: mean training loss of the round.
        phase: what the weight update did, in a word.
        recall_at_k: {k: fraction} on the test classes.
        map_at_r, r_precision, nmi, ami: on the test classes, fractions.
        recall_at_1_low, recall_at_1_high, map_at_r_low, map_at_r_high: 95 % intervals of two of
            them, over the test classes.
        age: the paper's lambda of this epoch's weight problem.
        maw, sdaw: mean and population standard deviation over classes of the mean weight.
        noise_rate, noise_rate_low, noise_rate_high: estimate with its 95 % interval, fractions.
        kept: share of samples with weight at least 0.5.
        changed: samples that crossed 0.5 in this update.
        objective_before, objective_after: of the weight problem.
        detection_auroc, detection_precision, detection_recall, false_alarm_rate: of
            'weight below 0.5' as a detector of noisy labels, where the truth is known; samples of
            no class that a label names (outliers) are left out.
        outlier_auroc, outlier_recall: of telling those from right labels, where there are any.
        notes: sentences for the user, such as a warning of a collapse.
        extra: anything else, JSON values.
    """

    method: str
    epoch: Number
    steps: int | None = None
    seconds: Number | None = None
    loss: Number | None = None
    phase: str | None = None
    recall_at_k: Mapping[int, Number | None] = field(default_factory=dict)
    map_at_r: Number | None = None
    r_precision: Number | None = None
    nmi: Number | None = None
    ami: Number | None = None
    recall_at_1_low: Number | None = None
    recall_at_1_high: Number | None = None
    map_at_r_low: Number | None = None
    map_at_r_high: Number | None = None
    age: Number | None = None
    maw: Number | None = None
    sdaw: Number | None = None
    noise_rate: Number | None = None
    noise_rate_low: Number | None = None
    noise_rate_high: Number | None = None
    kept: Number | None = None
    changed: int | None = None
    objective_before: Number | None = None
    objective_after: Number | None = None
    detection_auroc: Number | None = None
    detection_precision: Number | None = None
    detection_recall: Number | None = None
    false_alarm_rate: Number | None = None
    outlier_auroc: Number | None = None
    outlier_recall: Number | None = None
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_temporary(self) -> bool:
        """Say whether it is of a network that the curriculum threw away, for a fresh one."""
        return self.extra.get("temporary") is True

    def to_line(self) -> str:
        """Return the record as one line of JSON, without its line end; NaN and infinity as null."""
        return to_json(dataclasses.asdict(self))

    @classmethod
    def from_line(cls, line: str) -> EpochRecord:
        """Read a line back; keys that this version does not know go to `extra`.

        Raises:
            ValueError: not a JSON object, without a method and an epoch, or with a value of
                another kind than its field's.
        """
        values = parse_json(line)
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
        names = {f.name for f in dataclasses.fields(cls)}
        extra = dict(values.pop("extra", None) or {})
        extra |= {key: values.pop(key) for key in list(values) if key not in names}
        method, epoch = values.get("method"), values.get("epoch")
        if not (isinstance(method, str) and isinstance(epoch, int | float)):
            raise ValueError("no `method` text and `epoch` number")
        recalls = values.pop("recall_at_k", None) or {}
        notes = values.pop("notes", None) or ()
        for key, value in values.items():
            _check_kind(key, value)
        for k, recall in recalls.items():
            _check_kind(f"recall_at_k[{k}]", recall)
        for note in notes:
            if not isinstance(note, str):
                raise ValueError(f"`notes` must hold texts; got {note!r:.40}")
        return cls(
            **values,
            recall_at_k={int(k): recall for k, recall in recalls.items()},
            notes=tuple(notes),
            extra=extra,
        )


def _check_kind(key: str, value: Any) -> None:
    """Refuse a value of another kind than its field's, which would show only when a run ends."""
    if value is None:
        return
    text, whole = key in ("method", "phase"), key in ("steps", "changed")
    kinds: Any = str if text else int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds):
        expected_kind = "a text" if text else "a whole number" if whole else "a number"
        raise ValueError(f"`{key}` must be {expected_kind}; got {value!r:.40}")
    if not text and not abs(value) < _LARGEST:  # json reads 1e999 as infinity
        raise ValueError(f"`{key}` must be finite")


class RecordLog:
    """The file of records.  A line is either whole or, after a kill, the last one and torn.

    Attributes:
        path: the JSON-lines file; missing until the first record.
        torn_bytes: length of the torn last line that the latest `read` or `append` dropped.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.torn_bytes = 0

    def append(self, record: EpochRecord) -> None:
        """Add one line and force it to the disk.

        Raises:
            RunError: the disk is full or the file not writable; the file is as it was before.
        """
        line = record.to_line().encode("utf-8", "surrogatepass") + b"\n"
        safe = f"; the records before epoch {record.epoch:g} are safe. Free some space and resume"
        with (
            refusals(f"{self.path}: cannot be written", f"{safe} the run."),
            changed_in_place(self.path, "a+b") as file,
        ):
            end = self._drop_torn_line(file)
            try:
                _write_all(file.fileno(), line)
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), end)
                raise

    def read(self) -> list[EpochRecord]:
        """Return all whole records, oldest first; none if there is no file.

        Raises:
            RunError: a line in the middle is not a record, or a round of its method stands before
                it; names its number.
        """
        records, last = self._parse(self._whole_lines()), dict[str, Number]()
        for number, record in enumerate(records, start=1):
            if record.epoch <= last.get(record.method, -1):
                raise RunError(
                    f"{self.path}: line {number} is about epoch {record.epoch:g} of "
                    f"{record.method}, which is at {last[record.method]:g} before: was the file "
                    "edited? Remove the lines that stand twice, or start a new run."
                )
            last[record.method] = record.epoch
        return records

    def _parse(self, lines: list[bytes]) -> list[EpochRecord]:
        records = []
        for number, line in enumerate(lines, start=1):
            try:
                records.append(EpochRecord.from_line(line.decode("utf-8", "surrogatepass")))
            except (ValueError, TypeError, AttributeError, OverflowError) as err:
                raise RunError(
                    f"{self.path}: line {number} is not an epoch record ({err}). Was the file "
                    "edited? Remove the line, or start a new run."
                ) from err
        return records

    def truncate(self, keep: int) -> None:
        """Keep the first `keep` records: those that a checkpoint knows, before a run resumes.

        Raises:
            RunError: fewer than `keep` records are there, one of them is damaged, or the file is
                not writable; it is then as it was.
        """
        self.first(keep)
        lines = self._whole_lines()
        if self.path.exists():
            with (
                refusals(f"{self.path}: cannot be written", NO_PERMISSION),
                changed_in_place(self.path, "r+b") as file,
            ):
                file.truncate(sum(len(line) + 1 for line in lines[:keep]))
                os.fsync(file.fileno())

    def first(self, keep: int) -> list[EpochRecord]:
        """Return the first `keep` records.

        Raises:
            RunError: fewer are there, or one of them is damaged.
        """
        lines = self._whole_lines()
        if len(lines) < keep:
            raise RunError(
                f"{self.path}: holds {len(lines)} records, but the checkpoint was written after "
                f"{keep}. The two files are not of one run; start a new one."
            )
        return self._parse(lines[:keep])

    def __len__(self) -> int:
        return len(self._whole_lines())

    def _whole_lines(self) -> list[bytes]:
        """The lines that end in a line end; notes the length of what follows the last one."""
        content = b""
        try:
            with open_regular(self.path, "a file of records", RunError) as file:
                content = file.read()
        except RunError as err:
            if not isinstance(err.__cause__, FileNotFoundError):
                raise
        *lines, torn = content.split(b"\n")
        self.torn_bytes = len(torn)
        return lines

    def _drop_torn_line(self, file: io.FileIO) -> int:
        """Cut what a kill left after the last line end; returns the file's length then."""
        self.torn_bytes = 0
        size = file.seek(0, os.SEEK_END)
        if not size or (file.seek(size - 1), file.read(1))[1] == b"\n":
            return size
        length = sum(len(line) + 1 for line in self._whole_lines())
        os.ftruncate(file.fileno(), length)
        return length


def _write_all(descriptor: int, data: bytes) -> None:
    # The system may take a part first and refuse the rest only at the next call.
    while data:
        data = data[os.write(descriptor, data) :]
