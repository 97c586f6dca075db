"""Speed of bspml against its references, by one command.

    python benchmarks/speed                            # everything
    python benchmarks/speed --rows steps superloss     # these rows
    python benchmarks/speed --rows features --root DIR # features of your own photos
    python benchmarks/speed --quick                    # small sizes: does it run?
    python benchmarks/speed --out speed.json --markdown speed.md

Every group of rows runs in a process of its own, so that its peak memory is its own; ours and its
reference alternate inside that process.  Without a CUDA device the GPU rows say so.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

# Group of rows: where its function is.  The function is told whether to be quick.
GROUPS = {
    "statistics": ("speed.statistics", "measure_statistics"),
    "million": ("speed.statistics", "measure_million"),
    "solve": ("speed.weights", "measure_solve"),
    "minima": ("speed.weights", "measure_minima"),
    "steps": ("speed.steps", "measure_miner_steps"),
    "superloss": ("speed.steps", "measure_superloss"),
    "epoch": ("speed.epoch", "measure_epochs"),
    "recall": ("speed.recall", "measure_recall"),
    "audit": ("speed.audit", "measure_audit"),
    "features": ("speed.features", "measure_features"),
    "ranks": ("speed.ranks", "measure_ranks"),
    "gpu": ("speed.device", "measure_device"),
    "profile": ("speed.epoch_profile", "measure_profile"),
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--quick", action="store_true", help="small sizes, a few repeats")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--root", type=Path, help="folder of photos, for the row features")
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    parser.add_argument("--only", choices=GROUPS, help=argparse.SUPPRESS)  # the child process
    args = parser.parse_args(arguments)
    if args.only:
        print(json.dumps(measure(args.only, args)))
        return
    result: dict[str, Any] = {"machine": None, "quick": args.quick, "rows": []}
    for number, group in enumerate(args.rows, 1):
        print(f"{number} of {len(args.rows)}: {group}", file=sys.stderr, flush=True)
        found = in_a_process(group, args)
        result["machine"] = result["machine"] or found["machine"]
        result["rows"] += found["rows"]
    if args.quick:
        result["rows"] = [without_verdict(line) for line in result["rows"]]
    text = render(result)
    print(text)
    if args.out:
        args.out.write_text(json.dumps(result, indent=2) + "\n")
    if args.markdown:
        args.markdown.write_text(text)


def in_a_process(group: str, args: argparse.Namespace) -> dict[str, Any]:
    """The rows of one group, measured by a child with the number of threads asked for."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, str(args.threads))}
    command = [sys.executable, str(Path(__file__).parent), "--only", group]
    command += ["--threads", str(args.threads), *(["--quick"] if args.quick else [])]
    command += ["--root", str(args.root)] if args.root else []
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"machine": None, "rows": [without(group, f"failed with code {done.returncode}")]}
    return json.loads(done.stdout.splitlines()[-1])


def measure(group: str, args: argparse.Namespace) -> dict[str, Any]:
    """The rows of one group, here."""
    import torch

    from speed.measuring import machine

    torch.set_num_threads(args.threads)
    module, function = GROUPS[group]
    call = getattr(importlib.import_module(module), function)
    rows = call(args.quick, args.root) if group == "features" else call(args.quick)
    return {"machine": machine(), "rows": rows if isinstance(rows, list) else [rows]}


def without(group: str, reason: str) -> dict[str, Any]:
    """A line that says why there are no figures."""
    return {"row": group, "bar": "", "met": None, "details": {"reason": reason}}


def without_verdict(line: dict[str, Any]) -> dict[str, Any]:
    """The line of a small size, of which the bars do not speak."""
    return {**line, "bar": "", "met": None}


def render(result: dict[str, Any]) -> str:
    """The machine and the table, as Markdown."""
    machine = ", ".join(f"{key} {value}" for key, value in (result["machine"] or {}).items())
    head = (
        "| what | bar | ours | reference | ratio | peak MB | met |\n|:--|:--|--:|--:|--:|--:|:--|"
    )
    lines = [table_line(line) for line in result["rows"]]
    tables = [line["details"]["table"] for line in result["rows"] if "table" in line["details"]]
    said = ["Small sizes, which the bars do not speak of: it runs.", ""] if result["quick"] else []
    return "\n".join([machine, "", *said, head, *lines, *tables]) + "\n"


def table_line(line: dict[str, Any]) -> str:
    """One row of the table; `reason` takes the place of missing figures."""
    met = {True: "yes", False: "NO", None: line["details"].get("reason", "")}[line.get("met")]
    figures = [
        _time(line.get("ours_s")),
        line["details"].get("reference_words") or _time(line.get("reference_s")),
        _number(line.get("ratio"), ".3g"),
        _number(line.get("peak_mb"), ",.0f"),
    ]
    return f"| {line['row']} | {line.get('bar', '')} | {' | '.join(figures)} | {met} |"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _number(value: float | None, how: str) -> str:
    return "" if value is None else format(value, how)
