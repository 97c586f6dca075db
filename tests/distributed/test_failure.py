"""One rank fails: all end, one message, the right exit code.

Each rank runs the command line as torchrun would start it; faults are put in by hand.
"""

import contextlib
import io
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from bspml import distributed
from bspml.cli import main
from bspml.errors import DataError
from bspml.experiment.engine import MethodRun

QUICK = ["train", "data.subset=8", "training.epochs=1", "training.methods=[multi-similarity]"]
QUICK += ["sampler.classes_per_batch=4", "evaluation.ks=[1]", "device=cpu"]


class Spoiled:
    """`MethodRun` that does `what` on rank `where` after the second step."""

    def __init__(self, where, what):
        self.where, self.what = where, what

    def __enter__(self):
        self.kept = kept = MethodRun.on_step

        def on_step(run, trainer, step, steps, loss):
            if step == 2 and distributed.rank() == self.where:
                self.what()
            kept(run, trainer, step, steps, loss)

        MethodRun.on_step = on_step

    def __exit__(self, *_):
        MethodRun.on_step = self.kept


def mistake():
    raise DataError("photo 7 is damaged; replace it.")


def fault():
    raise ZeroDivisionError("of ours")


def death():
    os.kill(os.getpid(), signal.SIGKILL)


CASES = {
    "death of 1": ([], Spoiled(1, death)),
    "mistake on 1": ([], Spoiled(1, mistake)),
    "mistake on 0": ([], Spoiled(0, mistake)),
    "fault on 1": ([], Spoiled(1, fault)),
    "bad setting": (["optimizer.lr=-1"], contextlib.nullcontext()),
    "bad option": (["--nonsense"], contextlib.nullcontext()),
    "another setting on 1": (["optimizer.lr=0.5"], contextlib.nullcontext()),
    "other labels on 1": (["data.subset=12"], contextlib.nullcontext()),
    "classifier": (["task=classification"], contextlib.nullcontext()),
}


def as_a_process(case, rank):
    """Exit code, stderr and stdout of one case on this rank, and whether the run left a folder."""
    extra, spoiled = CASES[case]
    extra = [] if case.endswith("on 1") and rank != 1 else extra
    folder = Path(tempfile.gettempdir()) / f"bspml-ranks-{os.environ['MASTER_PORT']}"
    command = [*(["train"] if case == "classifier" else QUICK), *extra, "-o", str(folder)]
    err, out = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(out), spoiled:
        code = main(command)
    left = folder.exists()
    if rank == 0 and left:
        shutil.rmtree(folder)
    return code, err.getvalue(), out.getvalue(), left


def said(found):
    """Lines of all ranks that begin like an error message."""
    return [line for _, err, *_ in found for line in err.splitlines() if line[:7] == "bspml: "]


@pytest.mark.parametrize("name", ["mistake on 1", "mistake on 0"])
def test_a_mistake_on_one_rank_ends_all_with_its_message_once(everyone, name):
    found = everyone(__file__, 2, name)
    assert [code for code, *_ in found] == [2, 2]
    assert said(found) == ["bspml: photo 7 is damaged; replace it."]
    assert all("Traceback" not in err for _, err, *_ in found)
    assert not found[0][3]  # nothing is left of a run that was not begun


def test_a_fault_on_one_rank_is_printed_where_it_is(everyone):
    found = everyone(__file__, 2, "fault on 1")
    assert [code for code, *_ in found] == [1, 1]
    assert "ZeroDivisionError: of ours" in found[1][1]
    assert len(said(found)) == 1
    assert "Traceback" not in found[0][1]


def test_a_rank_killed_is_named_by_the_first_that_lives(everyone):
    found = everyone(__file__, 2, "death of 1")
    assert found[1] is None
    code, err, *_ = found[0]
    assert code == 1
    assert "bspml: rank 1 of 2 is gone (killed, or out of memory?)" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bad setting", "optimizer.lr"),
        ("bad option", "--nonsense"),
        ("classifier", "trained by one process; got 2"),
    ],
)
def test_a_mistake_of_all_ranks_is_said_once(everyone, name, words):
    found = everyone(__file__, 2, name)
    assert [code for code, *_ in found] == [2, 2]
    (line,) = said(found)
    assert words in line


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("another setting on 1", "`optimizer.lr` is 0.5 on rank 1 and 0.001 on rank 0"),
        ("other labels on 1", "`data.subset` is 12 on rank 1 and 8 on rank 0"),
    ],
)
def test_ranks_that_were_told_different_things_do_not_train(everyone, name, words):
    found = everyone(__file__, 2, name)
    assert [code for code, *_ in found] == [2, 2]
    (line,) = said(found)
    assert words in line
    assert not any(left for *_, left in found)
