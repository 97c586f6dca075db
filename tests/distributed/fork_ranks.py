"""Run `on_a_rank()` of test files on several processes: `fork_ranks.py OUT SIZES FILE...`.

The imports are done once; each rank is a fork of this process and joins its group as under
torchrun.  What rank r of W returned lies in OUT/STEM-all-W-r.pt.  Of a file with `CASES` and
`as_a_process(case, rank)` two ranks are run for each case, and join themselves.
"""

import gc
import importlib.util
import os
import signal
import sys
import traceback
from functools import partial
from pathlib import Path

import torch
import torch._dynamo  # by the first optimiser otherwise, in each of the forks

import bspml.experiment.run
import bspml.trainers.alternating  # before the forks, as all that they use
from bspml.distributed import joined

PATIENCE = 100  # seconds before a rank that hangs is ended


def main(out, sizes, files):
    torch.set_num_threads(1)
    gc.freeze()  # a sweep in a fork would write to, and so copy, every page it shares
    failed = run(compile_all, 1, Path(out) / "compiled", "all")
    for file in files:
        spec = importlib.util.spec_from_file_location(Path(file).stem, file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        out_of = Path(out) / spec.name
        for case in getattr(module, "CASES", ()):
            failed += run(partial(module.as_a_process, case), 2, out_of, case)
        for size in sizes if hasattr(module, "on_a_rank") else ():
            failed += run(partial(in_a_group, module.on_a_rank), size, out_of, "all")
    return failed


def compile_all(_rank):
    """In a process before them, what each rank would compile for itself, all at the same time."""
    labels = torch.arange(60) % 6
    rows = torch.randn(60, 8, generator=torch.Generator().manual_seed(0)) + 3 * torch.eye(8)[labels]
    for options in ({}, {"rule": "quadratic"}, {"preset": "paper", "target_maw": 0.7}):
        curriculum = bspml.SelfPacedCurriculum(bspml.SampleWeights(labels), **options)
        curriculum.update(rows.double())
    for search in ("exact", "neighbours"):
        bspml.audit(rows.numpy(), labels.numpy(), search=search)


def in_a_group(on_a_rank, _rank):
    with joined():
        return on_a_rank()


def run(function, size, out, case):
    """Number of ranks that failed; as under torchrun, the store belongs to none of them."""
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    children = [fork(function, rank, size, store.port, f"{out}-{case}") for rank in range(size)]
    ends = [os.waitpid(child, 0)[1] for child in children]
    return sum(end not in (0, signal.SIGKILL) for end in ends)  # some cases kill themselves


def fork(function, rank, size, port, out):
    child = os.fork()
    if child:
        return child
    signal.alarm(PATIENCE)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    code = 1
    try:
        torch.save(function(rank), f"{out}-{size}-{rank}.pt")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], [int(s) for s in sys.argv[2].split(",")], sys.argv[3:]))
