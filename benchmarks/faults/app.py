"""What a kill, a damaged file, a full disk, a hostile label or a dead rank does, tried by number.

    python benchmarks/faults --minutes 60 --seed 0            # every kind in turn, then a table
    python benchmarks/faults --only "kill audit" --case 17    # one case again, kept in --out

Each case follows from (seed, kind, number).  One that is not survived leaves its folder, what the
command said, and a line in --out/failures.jsonl.  Runs on Linux, in forks of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
import zlib
from collections import Counter
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"  # before torch: a fork has no other threads

OUTCOMES = ("survived", "traceback", "crash", "hang", "wrong")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar="KIND", default=[], help="these kinds")
    parser.add_argument("--case", type=int, help="this number only, and keep what it leaves")
    parser.add_argument("--out", type=Path, default=Path("faults"))
    args = parser.parse_args(arguments)
    import torch
    import torch._dynamo  # the first optimiser would import it in every fork

    import bspml.cli.audit
    import bspml.cli.data
    import bspml.cli.evaluate
    import bspml.cli.report
    import bspml.cli.train
    import bspml.experiment.run  # noqa: F401
    from faults.kinds import KINDS
    from faults.material import make_all

    torch.set_num_threads(1)
    unknown = [kind for kind in args.only if kind not in KINDS]
    if unknown:
        parser.error(f"no kind {unknown[0]!r}; there are {', '.join(KINDS)}")
    out = args.out.resolve()
    os.environ["BSPML_CACHE"] = str(out / "cache")
    material = out / "material"
    if not material.exists():
        print("making what the faults are done to", file=sys.stderr, flush=True)
        try:
            make_all(material)
        except BaseException:
            shutil.rmtree(material, ignore_errors=True)
            raise
    campaign = _Campaign(out, material, args.seed)
    kinds = args.only or list(KINDS)
    if args.case is not None:
        for kind in kinds:
            print(f"{kind} {args.case}: {' '.join(campaign.one(kind, args.case, keep=True))}")
        return 0
    deadline, spent, numbers = time.monotonic() + 60 * args.minutes, Counter[str](), Counter[str]()
    while time.monotonic() < deadline and len(campaign.skipped) < len(kinds):
        # The same time for every kind: where a case is cheap there are many.
        kind = min((k for k in kinds if k not in campaign.skipped), key=lambda k: spent[k])
        started = time.monotonic()
        campaign.one(kind, numbers[kind])
        spent[kind] += time.monotonic() - started
        numbers[kind] += 1
        (out / "table.md").write_text(campaign.table(kinds) + "\n")
    print(campaign.table(kinds))
    print(f"\npython benchmarks/faults --minutes {args.minutes:g} --seed {args.seed}")
    return int(any(campaign.counts[kind, o] for kind in kinds for o in OUTCOMES[1:]))


class _Campaign:
    """Cases, counted by kind and outcome."""

    def __init__(self, out: Path, material: Path, seed: int):
        self.out, self.material, self.seed = out, material, seed
        self.counts: Counter[tuple[str, str]] = Counter()
        self.notes: Counter[tuple[str, str]] = Counter()
        self.skipped: dict[str, str] = {}

    def one(self, kind: str, number: int, keep: bool = False) -> tuple[str, str]:
        """Do one case; return its outcome and a note."""
        import numpy as np

        from faults.kinds import KINDS, CannotTryError

        folder = self.out / "cases" / f"{kind.replace(' ', '-')}-{self.seed}-{number}"
        _remove(folder)
        folder.mkdir(parents=True)
        rng = np.random.default_rng([self.seed, zlib.crc32(kind.encode()), number])
        try:
            outcome, note = KINDS[kind](self.material, folder, rng)
        except CannotTryError as err:
            self.skipped[kind] = str(err)
            outcome, note = "skipped", str(err)
        self.counts[kind, outcome] += 1
        if outcome == "survived":
            self.notes[kind, note] += 1
        if outcome in OUTCOMES[1:]:
            line = {"kind": kind, "case": number, "seed": self.seed, "outcome": outcome}
            with (self.out / "failures.jsonl").open("a") as file:
                file.write(json.dumps({**line, "note": note}) + "\n")
            print(f"{kind} {number}: {outcome}: {note.strip()[-300:]}", file=sys.stderr, flush=True)
        elif not keep:
            _remove(folder)
        return outcome, note

    def table(self, kinds: list[str]) -> str:
        lines = ["| kind | tried | " + " | ".join(OUTCOMES) + " | survived how |",
                 "|:--|" + "--:|" * (len(OUTCOMES) + 1) + ":--|"]  # fmt: skip
        for kind in kinds:
            if kind in self.skipped:
                lines.append(
                    f"| {kind} | 0 |{' |' * len(OUTCOMES)} skipped: {self.skipped[kind]} |"
                )
                continue
            counts = [self.counts[kind, outcome] for outcome in OUTCOMES]
            how = ", ".join(f"{n} {note}" for (k, note), n in self.notes.items() if k == kind)
            cells = " | ".join(map(str, (sum(counts), *counts)))
            lines.append(f"| {kind} | {cells} | {how} |")
        totals = [sum(self.counts[kind, o] for kind in kinds) for o in OUTCOMES]
        lines.append(f"| all | {sum(totals)} | {' | '.join(map(str, totals))} | |")
        return "\n".join(lines)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for path in folder.parent.glob(f"{folder.name}.*.txt"):
        path.unlink()
