"""Many processes that train as one would: `torchrun --nproc-per-node 2 -m bspml train`.

A group of one process is a group like any other: every function here is then the identity, so a
program is written once.  `docs/distributed.md` has a training loop of one's own.

Example:
    >>> from bspml.distributed import is_main, rank, ranks
    >>> rank(), ranks(), is_main()  # one process, started without torchrun
    (0, 1, True)
"""

from bspml.distributed.batch import (
    gather_batch as gather_batch,
    gather_own_first as gather_own_first,
)
from bspml.distributed.batch_norm import synchronize_batch_norm as synchronize_batch_norm
from bspml.distributed.gradients import (
    add_gradients as add_gradients,
    average_gradients as average_gradients,
)
from bspml.distributed.group import (
    explained as explained,
    is_main as is_main,
    joined as joined,
    rank as rank,
    ranks as ranks,
    wait_for_all as wait_for_all,
)
from bspml.distributed.loss_wrapper import (
    DistributedLossWrapper as DistributedLossWrapper,
    announce_rows as announce_rows,
)
from bspml.distributed.main_rank import (
    from_main as from_main,
    main_first as main_first,
    sync_weights as sync_weights,
)
from bspml.distributed.pml_trainer import share_steps as share_steps
from bspml.distributed.rows import (
    computed_by_rows as computed_by_rows,
    gather_rows as gather_rows,
    share_of as share_of,
)
