"""Two processes: one tau for both."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper

from bspml.losses.reducers import SuperLoss
from bspml.losses.reducers.tau import RunningTau

BATCHES = [([2.0, 4.0], [9.0]), ([5.0], [7.0, 7.5, 8.0]), ([1.0], [])]  # (rank 0, rank 1)

# tests/distributed/test_batch.py has one running threshold on two ranks.
pytestmark = pytest.mark.slow


def on_a_rank(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2
    )
    found = {}
    for mode in ("ema", "mean"):
        tau = RunningTau(mode)
        found[mode] = [float(tau.update(torch.tensor(batch[rank]))) for batch in BATCHES]

    generator = torch.Generator().manual_seed(rank)
    embeddings = torch.randn(8, 4, generator=generator, requires_grad=True)
    wrapped = DistributedLossWrapper(SuperLoss(pml_losses.MultiSimilarityLoss()))
    wrapped(embeddings, torch.arange(8) // 2).backward()
    found["gathered"] = [float(wrapped.loss.reducer.tau)]

    # A rank without pairs must not keep the other one waiting.
    labels = torch.arange(8) if rank else torch.arange(8) // 2
    for shared in (True, False):
        local = SuperLoss(pml_losses.ContrastiveLoss(), shared_tau=shared)
        none = tuple(torch.zeros(0, dtype=torch.long) for _ in range(4)) if rank else None
        local(embeddings, labels, none)
        found[f"local {shared}"] = [
            float(local.reducer.state_dict()[k])
            for k in sorted(k for k in local.reducer.state_dict() if k.endswith("average"))
        ]
    torch.distributed.destroy_process_group()
    return found


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    # This file as a script: the test package cannot be imported by name everywhere.
    where = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), "."])}
    subprocess.run([sys.executable, __file__, str(folder)], env=where, timeout=120, check=True)
    # A file each: what two processes print at once may stand on one line.
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


def test_tau_is_the_same_on_both_ranks(ranks):
    assert ranks[0] == ranks[1]


def test_tau_is_that_of_one_process_with_the_joint_batch(ranks):
    for mode in ("ema", "mean"):
        tau = RunningTau(mode)
        expected = [float(tau.update(torch.tensor([*a, *b]))) for a, b in BATCHES]
        assert ranks[0][mode] == pytest.approx(expected, rel=1e-12)


if __name__ == "__main__":
    other = os.fork()  # after the imports, which take longest
    mine = 0 if other else 1
    folder = Path(sys.argv[1])
    (folder / f"{mine}.json").write_text(json.dumps(on_a_rank(mine, folder)))
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]) if other else 0)
