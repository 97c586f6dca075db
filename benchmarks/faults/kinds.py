"""The kinds of faults: each does one case, from a generator, and says what became of it."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from faults.comparing import difference_of_runs, half_written
from faults.material import SMALL, TRAININGS, copied
from faults.mutating import mutated
from faults.process import SECONDS, Fork, Result, bspml

SURVIVED = "survived"
Case = Callable[[Path, Path, np.random.Generator], tuple[str, str]]  # (outcome, note)


class CannotTryError(Exception):
    """This machine cannot do such a case; the text says why."""


def judged(result: Result, accepted: str = "") -> tuple[str, str]:
    """A plain sentence and exit code 2, or an accepted input in which nothing is wrong."""
    if result.fault:
        return result.fault, result.said[-1500:]
    if result.code == 0:
        return ("wrong", accepted) if accepted else (SURVIVED, "accepted")
    lines = [line for line in result.said.splitlines() if line.startswith("bspml: ")]
    lines = [line for line in lines if not line.startswith("bspml: warning")]
    plain = len(lines) == 1 or "problem: " in result.said
    return (SURVIVED, "refused") if plain else ("traceback", result.said[-1500:])


# --- kills ----------------------------------------------------------------------------------------

_SIGNALS = (signal.SIGKILL,) * 3 + (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_seconds: dict[str, float] = {}  # that an undisturbed command took the last time


def _killed(start: Callable[[str], Fork], key: str, rng: np.random.Generator) -> Result:
    """Start a command and send it a signal at a moment of its time."""
    fork = start("killed")
    moment = rng.random() * 1.2 * _seconds.get(key, 15.0)
    while not fork.has_ended() and time.monotonic() - fork.started < moment:
        time.sleep(0.005)
    if not fork.has_ended():
        fork.send(_SIGNALS[rng.integers(len(_SIGNALS))])
    else:
        _seconds[key] = time.monotonic() - fork.started
    result = fork.wait()
    if result.code in (1, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, 130):
        traced = "Traceback (most recent call last)" in result.said
        result.code = 1 if traced else 0
    return result


def kill_training(name: str) -> Case:
    """Kill a training once to three times, go on, and compare with the undisturbed run."""

    def case(material: Path, folder: Path, rng: np.random.Generator) -> tuple[str, str]:
        run = folder / "run"
        new = ["train", "--output", "run", *TRAININGS[name]]
        for _ in range(rng.integers(1, 4)):
            begun = any(run.glob("checkpoint-*.pt"))
            arguments = ["train", "--resume", "run"] if begun else new
            result = _killed(lambda n, a=arguments: bspml(a, folder, name=n), f"train {name}", rng)
            if result.fault:
                return judged(result)
        if not any(run.glob("checkpoint-*.pt")):
            shutil.rmtree(run, ignore_errors=True)
            result = bspml(new, folder).wait()
        else:
            result = bspml(["train", "--resume", "run"], folder).wait()
        if result.code != 0 and "finished" not in result.said:
            return result.fault or "wrong", result.said[-1500:]
        wrong = difference_of_runs(material / f"run-{name}", run) or half_written(run)
        return ("wrong", wrong) if wrong else (SURVIVED, "equal")

    return case


def kill_audit(material: Path, folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Kill an audit, over an older one or not, and compare the next with the undisturbed one."""
    if rng.random() < 0.5:
        copied(material, "audit", folder)
    copied(material, "features.npz", folder)
    again = ["audit", "features.npz", "-o", "audit"]
    result = _killed(lambda n: bspml(again, folder, name=n), "audit", rng)
    if result.fault:
        return judged(result)
    if (folder / "audit" / "audit.npz").exists():
        result = bspml(["report", "audit"], folder).wait()
        if result.code != 0:
            return "wrong", "the audit left behind makes no page: " + result.said[-1000:]
    result = bspml(again, folder).wait()
    if result.code != 0:
        return result.fault or "wrong", result.said[-1500:]
    for path in (material / "audit").glob("*.csv"):
        if path.read_bytes() != (folder / "audit" / path.name).read_bytes():
            return "wrong", f"{path.name} differs"
    wrong = half_written(folder / "audit")
    return ("wrong", wrong) if wrong else (SURVIVED, "equal")


def kill_report(material: Path, folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Kill the making of a page: the old one or the new one stands there."""
    run = copied(material, "run-bspml", folder)
    result = _killed(lambda n: bspml(["report", run.name], folder, name=n), "report", rng)
    if result.fault:
        return judged(result)
    for path in run.glob(".*.tmp"):
        path.unlink()  # the next training or audit in the folder would
    wrong = half_written(run) or difference_of_runs(material / run.name, run)
    return ("wrong", wrong) if wrong else (SURVIVED, "equal")


# --- readers --------------------------------------------------------------------------------------

_TABLES = ("features.npz", "features.csv", "features.tsv", "features.parquet")


def damaged_input(files: Sequence[str], *commands: Sequence[str]) -> Case:
    """Damage one of the files and give it to one of the commands; FILE stands for its name."""

    def case(material: Path, folder: Path, rng: np.random.Generator) -> tuple[str, str]:
        path = copied(material, files[rng.integers(len(files))], folder)
        for extra in ("x.npy", "y.npy", "labels.txt"):
            if path.name != extra:
                copied(material, extra, folder)
        path.write_bytes(mutated(path.read_bytes(), rng))
        words = commands[rng.integers(len(commands))]
        return judged(bspml([w.replace("FILE", path.name) for w in words], folder).wait())

    return case


def damaged_yaml(material: Path, folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Damage an experiment; it is only read, since whatever is accepted would be trained."""
    from bspml.cli.exit_codes import exit_code
    from bspml.experiment.config import load_experiment

    path = copied(material, "config.yaml", folder)
    path.write_bytes(mutated(path.read_bytes(), rng))

    def read() -> int:
        try:
            load_experiment(path)
        except Exception as err:
            return exit_code(err)
        return 0

    return judged(Fork(read, folder).wait())


def damaged_tree(material: Path, folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Damage a file, list or image, of a data set's tree, or remove it."""
    trees = ["folder", "cub", "sop", "in-shop", "cars196", "cifar10", "table"]
    name = trees[rng.integers(len(trees))]
    root = copied(material, "trees" if name == "table" else f"trees/{name}", folder)
    files = sorted(p for p in root.rglob("*") if p.is_file())
    lists = [p for p in files if p.suffix not in (".jpg", ".JPG", ".png", ".bmp")]
    if name == "table":
        lists = [root / "table.csv", root / "table.parquet"]
        root = lists[rng.integers(2)]
        lists = [root]
    chosen = lists if lists and rng.random() < 0.7 else files
    path = chosen[rng.integers(len(chosen))]
    if rng.random() < 0.05:
        path.unlink()
    else:
        path.write_bytes(mutated(path.read_bytes(), rng))
    return judged(
        bspml(
            ["data", "check", name, "--root", str(root), "--decode-all", "--subset"], folder
        ).wait()
    )


def damaged_run(material: Path, folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Damage a file of a run, then go on with it, evaluate it, or make its page."""
    run = copied(material, "run-bspml", folder)
    names = ["config.yaml", "records.jsonl", "checkpoint-bspml.pt", "summary.json", "weights.csv"]
    path = run / names[rng.integers(len(names))]
    path.write_bytes(mutated(path.read_bytes(), rng))
    choices = (
        ["train", "--resume", run.name], ["report", run.name], ["evaluate", run.name],
        ["embed", run.name, "-o", "e.npz"],
    )  # fmt: skip
    return judged(bspml(choices[rng.integers(len(choices))], folder).wait())


def damaged_audit(material: Path, folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Damage a file of an audit, then make its page again."""
    audit = copied(material, "audit", folder)
    files = sorted(p for p in audit.iterdir() if p.is_file())
    path = files[rng.integers(len(files))]
    path.write_bytes(mutated(path.read_bytes(), rng))
    return judged(bspml(["report", audit.name], folder).wait())


# --- disks ----------------------------------------------------------------------------------------


def _mounted(folder: Path, size: int) -> None:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise CannotTryError("mounting is not allowed")


def bad_disk(full: bool) -> Case:
    """Write onto a disk that is full after some kilobytes, or for reading only."""

    def case(material: Path, folder: Path, rng: np.random.Generator) -> tuple[str, str]:
        disk = folder / "disk"
        disk.mkdir()
        _mounted(disk, int(2 ** rng.uniform(13, 21)) if full else 64 << 20)
        try:
            copied(material, "features.npz", folder)
            copied(material, "labels.txt", folder)
            choices = [
                ["train", "--output", "disk/run", *SMALL, "training.methods=[bspml]"],
                ["audit", "features.npz", "-o", "disk/audit"],
                ["noise", "labels.txt", "-o", "disk/noisy.csv"],
            ]
            if not full:
                for name in ("run-bspml", "audit"):
                    copied(material, name, disk)
                choices += [["report", "disk/run-bspml"], ["report", "disk/audit"],
                            ["train", "--resume", "disk/run-bspml"],
                            ["audit", "features.npz", "-o", "disk/audit"],
                            ["embed", "disk/run-bspml", "-o", "disk/e.npz"]]  # fmt: skip
                subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            result = bspml(choices[rng.integers(len(choices))], folder).wait()
            outcome, note = judged(result, "" if full else "wrote onto a disk for reading only")
            wrong = half_written(disk)
            return ("wrong", wrong) if wrong and outcome == SURVIVED else (outcome, note)
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=False)

    return case


# --- pages ----------------------------------------------------------------------------------------

_HACK = "document.title='hacked'"
_HOSTILE = (
    f"<script>{_HACK}</script>", f"</script><script>{_HACK}</script>",
    f'<img src=x onerror="{_HACK}">',
    f"'\"><svg onload={_HACK}>", f"{{{{{_HACK}}}}}", f"${{{_HACK}}}", f"javascript:{_HACK}",
    "<!--<script>", "]]>", "a\u2028b\u2029c", "\u202eevil", "=1+1", "a" * 2000, "&lt;&amp;",
    "\\u003cb",
)  # fmt: skip


def hostile_page(material: Path, folder: Path, rng: np.random.Generator) -> tuple[str, str]:
    """Audit labels and names that are code, and open the page in a browser."""
    browser = shutil.which("chromium")
    if browser is None:
        raise CannotTryError("there is no chromium")
    x, y = np.load(material / "x.npy"), np.load(material / "y.npy")
    words = list(rng.permutation(np.array(_HOSTILE, dtype=object))[:6])
    labels = np.array([words[c] for c in y], dtype=str)
    names = np.array([_HOSTILE[i] for i in rng.integers(len(_HOSTILE), size=len(y))], dtype=str)
    names = np.array([f"{name}{i}" for i, name in enumerate(names)])
    np.savez(folder / "features.npz", x=x, y=labels, names=names)
    result = bspml(["audit", "features.npz", "-o", "audit"], folder).wait()
    if result.code != 0:
        return judged(result)
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--no-first-run", f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=3000",
         "--dump-dom", (folder / "audit" / "report.html").as_uri()],
        capture_output=True, timeout=10 * SECONDS, check=False,
    )  # fmt: skip
    title = done.stdout.decode("utf-8", "replace").partition("<title>")[2].partition("</title>")[0]
    if not title or title.strip() == "hacked":
        return "wrong", f"the title of the page is {title!r}"
    return SURVIVED, "shown as text"


# --- ranks ----------------------------------------------------------------------------------------


def bad_rank(kill: bool) -> Case:
    """Kill one of two ranks, or let one stand still for a while and go on."""

    def case(material: Path, folder: Path, rng: np.random.Generator) -> tuple[str, str]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
        words = ["train", "--output", "run", *TRAININGS["bspml"], "device=cpu"]
        forks = []
        for rank in range(2):
            place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
            place |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            forks.append(bspml(words, folder, environment=place, name=f"rank{rank}"))
        victim = int(rng.integers(2))
        time.sleep(rng.random() * 8)
        if kill:
            forks[victim].send(signal.SIGKILL)
        else:
            forks[victim].send(signal.SIGSTOP)
            time.sleep(3)
            forks[victim].send(signal.SIGCONT)
        results = [fork.wait() for fork in forks]
        for rank, result in enumerate(results):
            if result.hung or "Traceback" in result.said:
                return ("hang" if result.hung else "traceback"), result.said[-1500:]
            if not kill and result.code != 0:
                return "wrong", f"rank {rank}: {result.said[-1000:]}"
        other = results[1 - victim]
        if kill and other.code not in (0, 1, 2):
            return "wrong", other.said[-1000:]
        if any((folder / "run").glob("checkpoint-*.pt")):
            result = bspml(["train", "--resume", "run"], folder).wait()
            if result.code != 0 and "finished" not in result.said:
                return result.fault or "wrong", result.said[-1000:]
        return SURVIVED, "ended" if kill else "went on"

    return case


KINDS: dict[str, Case] = {
    **{f"kill train {name}": kill_training(name) for name in TRAININGS},
    "kill audit": kill_audit,
    "kill report": kill_report,
    "damaged yaml": damaged_yaml,
    "damaged features": damaged_input(
        [*_TABLES, "x.npy"], ["audit", "FILE", "-o", "audit"], ["evaluate", "FILE", "--ks", "1"],
        ["evaluate", "x.npy", "FILE", "--ks", "1"], ["data", "check", "features", "--root", "FILE"],
    ),
    "damaged labels": damaged_input(
        ["labels.txt", "y.npy", "features.csv", "features.parquet"],
        ["noise", "FILE", "-o", "noisy.csv"], ["evaluate", "x.npy", "FILE", "--ks", "1"],
    ),
    "damaged data set": damaged_tree,
    "damaged run": damaged_run,
    "damaged audit": damaged_audit,
    "full disk": bad_disk(full=True),
    "read-only disk": bad_disk(full=False),
    "hostile page": hostile_page,
    "dead rank": bad_rank(kill=True),
    "stopped rank": bad_rank(kill=False),
}  # fmt: skip
