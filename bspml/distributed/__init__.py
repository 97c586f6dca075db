"""Many processes that train as one would: `torchrun --nproc-per-node 2 -m bspml train`.

A group of one process is a group like any other: every function here is then the identity, so a
program is written once.  `docs/distributed.md` has a training loop of one's own.

Example:
    >>> from bspml.distributed import is_main, rank, ranks
    >>> rank(), ranks(), is_main()  # one process, started without torchrun
    (0, 1, True)
"""

from bspml.distributed.batch import gather_batch, gather_own_first
from bspml.distributed.batch_norm import synchronize_batch_norm
from bspml.distributed.gradients import add_gradients, average_gradients
from bspml.distributed.group import explained, is_main, joined, rank, ranks, wait_for_all
from bspml.distributed.loss_wrapper import DistributedLossWrapper
from bspml.distributed.main_rank import from_main, main_first, sync_weights
from bspml.distributed.pml_trainer import share_steps
from bspml.distributed.rows import computed_by_rows, gather_rows, share_of

__all__ = [
    "DistributedLossWrapper",
    "add_gradients",
    "average_gradients",
    "computed_by_rows",
    "explained",
    "from_main",
    "gather_batch",
    "gather_own_first",
    "gather_rows",
    "is_main",
    "joined",
    "main_first",
    "rank",
    "ranks",
    "share_of",
    "share_steps",
    "sync_weights",
    "synchronize_batch_norm",
    "wait_for_all",
]
