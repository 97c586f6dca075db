"""What is wrong with the files of a data set, a sentence for each kind of fault.

`load_retrieval` stops at the first fault.  This goes through all files and lists every one.  Each
image is opened, its header read and its end looked at: JPEG and PNG files say where they end, so a
truncated one shows without decoding; those of other kinds are decoded.  `decode_all` decodes every
image, which finds the rest.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bspml.data.catalogue import catalogue_entry, read_entry
from bspml.data.completeness import count_faults, missing_paths
from bspml.data.image_checks import Finding, look_at
from bspml.data.retrieval import RetrievalData
from bspml.data.split_copies import SplitCopies, split_copies
from bspml.errors import DataError
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import warn_of_missing
from bspml.words import counted

_SHOWN = 5  # files that a sentence names


@dataclass(frozen=True)
class Problem:
    """One kind of fault.

    Attributes:
        kind: "lists", "counts", "missing", "truncated" or "unreadable".
        sentence: what is wrong and what to do.
        files: the files it concerns, as the lists name them; all of them.
    """

    kind: str
    sentence: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckReport:
    """What `check_dataset` found.

    Attributes:
        name: as asked for.
        title: of the data set.
        root: as asked for.
        splits: name -> (images listed, classes).
        problems: what keeps the data set from being used as published; () if nothing does.
        notes: what is odd and no problem.
        source: where to get the data set.
        files_seen: image files that were opened; 0 for sets that are not read image by image.
        copies: samples that are in two splits, or twice in a test; not looked for among damage.
    """

    name: str
    title: str
    root: str
    splits: Mapping[str, tuple[int, int]]
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    source: str
    files_seen: int = 0
    copies: tuple[SplitCopies, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "name": self.name,
            "title": self.title,
            "root": self.root,
            "ok": self.ok,
            "files_seen": self.files_seen,
            "splits": {n: {"images": i, "classes": c} for n, (i, c) in self.splits.items()},
            "problems": [
                {"kind": p.kind, "sentence": p.sentence, "files": list(p.files)}
                for p in self.problems
            ],
            "notes": list(self.notes),
            "copies": [
                {"split": c.split, "source": c.source, "pairs": [list(pair) for pair in c.names]}
                for c in self.copies
            ],
            "source": self.source,
        }


def check_dataset(
    name: str,
    root: str | os.PathLike[str] | None,
    decode_all: bool = False,
    subset: bool = False,
    progress: Callable[[Iterable[Any], int], Iterable[Any]] | None = None,
    **options: Any,
) -> CheckReport:
    """Look at all files of a data set.

    Args:
        name: in the catalogue.
        root: its folder.
        decode_all: decode every image; minutes for the large sets.
        subset: images that are not there, and numbers below the published ones, are no problem.
        progress: given the findings to come and their number, shows how far it is.
        **options: as for `load_retrieval`.

    Raises:
        InputError: no such data set or option.
    """
    check_flags(decode_all=decode_all, subset=subset)
    entry = catalogue_entry(name)
    try:
        data = read_entry(entry, name, root, options)
    except DataError as err:
        # Without where to get the data set, which the report says once.
        problem = Problem("lists", str(err).replace(entry.source, "").strip())
        return CheckReport(name, entry.title, str(root), {}, (problem,), (), entry.source)
    problems = []
    if not subset and (faults := count_faults(data, entry.counts)):
        text = f"The numbers are not the published ones: {'; '.join(faults)}."
        problems.append(Problem("counts", text))
    if empty := [split.name for split in data.splits if len(split) == 0]:
        text = f"No image is listed for {' and '.join(empty)}. Unpack the lists again."
        problems.append(Problem("lists", text))
    for split in data.splits:
        warn_of_missing(split.labels, slice(None), f"{root}, {split.name}")
    notes = list(data.notes)
    missing = {split.name: missing_paths(split) for split in data.splits}
    absent = [path for paths in missing.values() for path in paths]
    bare = [s.name for s in data.splits if len(s) and len(missing[s.name]) == len(s)]
    if bare and subset:
        text = f"No image of {' and '.join(bare)} is there, in {_where(data)}; a subset needs some."
        problems.append(Problem("missing", text, tuple(absent)))
    elif absent and subset:
        notes.append(f"A subset: {_images(len(absent))} of those listed {_are(absent)} not there.")
    elif absent:
        text = _fault_sentence(absent, "missing", _where(data))
        problems.append(Problem("missing", text, tuple(absent)))
    findings = _examine(data, missing, decode_all, progress)
    problems += _problems(findings, _where(data))
    notes += _notes(findings)
    is_whole = not any(finding.fault for finding in findings)
    splits = {split.name: (len(split), len(split.classes)) for split in data.splits}
    return CheckReport(
        name=name,
        title=entry.title,
        root=str(root),
        splits=splits,
        problems=tuple(problems),
        notes=tuple(notes),
        source=entry.source,
        files_seen=len(findings),
        copies=split_copies(data) if is_whole else (),
    )


# --- files ----------------------------------------------------------------------------------------


def _examine(
    data: RetrievalData,
    missing: Mapping[str, list[str]],
    decode_all: bool,
    progress: Callable[[Iterable[Any], int], Iterable[Any]] | None,
) -> list[Finding]:
    jobs = []
    for split in data.splits:
        absent = set(missing[split.name])
        rows = [i for i, path in enumerate(split.paths or ()) if path not in absent]
        jobs += [(split, row) for row in rows]
    findings: Iterable[Finding] = look_at(jobs, decode_all)
    return list(findings if progress is None else progress(findings, len(jobs)))


# --- sentences ------------------------------------------------------------------------------------


def _problems(findings: list[Finding], where: str) -> list[Problem]:
    problems = []
    for kind in ("truncated", "unreadable"):
        faulty = [f for f in findings if f.fault == kind]
        if faulty:
            reasons = Counter(f.reason for f in faulty).most_common(2)
            why = "; ".join(reason for reason, _ in reasons)
            files = [f.path for f in faulty]
            problems.append(Problem(kind, _fault_sentence(files, kind, where, why), tuple(files)))
    return problems


def _notes(findings: list[Finding]) -> list[str]:
    notes = []
    grey = [f.path for f in findings if f.grey]
    # Where most are grey, grey is what the data set is.
    if grey and len(grey) <= len(findings) / 2:
        notes.append(
            f"{_images(len(grey))} {_are(grey)} greyscale and will be read as RGB: {_some(grey)}."
        )
    none = [f.path for f in findings if f.box_empty]
    if none:
        notes.append(
            f"{counted(len(none), 'box holds', 'boxes hold')} no pixel of "
            f"{'its' if len(none) == 1 else 'their'} image, which cannot be looked at by boxes "
            f"(data.crop_boxes) then: {_some(none)}."
        )
    out = [f.path for f in findings if f.box_leaves]
    if out:
        notes.append(
            f"{counted(len(out), 'box leaves its image', 'boxes leave their image')} and will be "
            f"cut at the border: {_some(out)}."
        )
    return notes


def _fault_sentence(files: list[str], state: str, where: str, why: str = "") -> str:
    remedy = "Unpack the archive again" if state == "missing" else "Replace it"
    if len(files) > 1 and state != "missing":
        remedy = "Replace them"
    because = f" ({why})" if why else ""
    what = f"{_images(len(files))} {_are(files)} {state} in {where}"
    return f"{what}: {_some(files)}{because}. {remedy}."


def _images(count: int) -> str:
    return counted(count, "image")


def _are(files: list[str]) -> str:
    return "is" if len(files) == 1 else "are"


def _some(files: list[str]) -> str:
    shown = ", ".join(files[:_SHOWN])
    return shown if len(files) <= _SHOWN else f"{shown}, ... ({len(files):,} in all)"


def _where(data: RetrievalData) -> str:
    return ", ".join(dict.fromkeys(str(split.root) for split in data.splits if split.root))
