"""Distance-weighted sampling whose draws depend on the batch alone."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from pytorch_metric_learning import miners as pml_miners

from bspml.shapes import Tensor
from bspml.tensors.checks import check_number, check_whole


class DistanceWeightedMiner(pml_miners.DistanceWeightedMiner):
    """pytorch-metric-learning's miner [Wu 2017], with draws that can be repeated.

    Each anchor gets random positives, and for each a negative drawn with probability inversely
    proportional to how many points of a sphere lie at its distance.  The parent draws from torch's
    global generator; here the generator is seeded with the batch itself, so the same embeddings
    give the same triplets, whatever ran before, and a resumed run needs no state of it.

    The distances of a batch are looked at on the CPU, in float32 at least: a copy of (B, D).

    Args:
        cutoff: smaller distances are treated as this one.
        nonzero_loss_cutoff: negatives at this distance or beyond are never drawn; an anchor that
            has no nearer one gets no triplet, positives included.
        seed: 0, 1, ...: other draws for the same batches.
        **kwargs: of the parent.

    Raises:
        InputError: a cutoff that is not above 0, or a negative seed.

    Example:
        >>> emb = torch.tensor([[1., 0.], [.96, .28], [.8, .6], [.6, .8]])
        >>> miner, labels = DistanceWeightedMiner(), torch.tensor([0, 0, 1, 1])
        >>> first, again = miner(emb, labels), miner(emb, labels)
        >>> all(torch.equal(a, b) for a, b in zip(first, again))
        True
    """

    def __init__(
        self,
        cutoff: float | int = 0.5,
        nonzero_loss_cutoff: float | int = 1.4,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            cutoff=check_number(cutoff, "cutoff", low=0.0, open_low=True),
            nonzero_loss_cutoff=check_number(
                nonzero_loss_cutoff, "nonzero_loss_cutoff", low=0.0, open_low=True
            ),
            **kwargs,
        )
        self.seed = check_whole(seed, "seed", low=0)

    def mine(
        self, embeddings: Tensor, labels: Tensor, ref_emb: Tensor, ref_labels: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return triplets (a, p, n) of rows, int64, on the device of `embeddings`.

        Args:
            embeddings: (B, D).
            labels: (B,).
            ref_emb: (R, D), `embeddings` itself without references.
            ref_labels: (R,).
        """
        device, dtype = embeddings.device, torch.promote_types(embeddings.dtype, torch.float32)
        emb, codes = embeddings.detach().to("cpu", dtype), labels.cpu()
        # The parent knows by identity that a batch is compared with itself.
        refs = emb if ref_emb is embeddings else ref_emb.detach().to("cpu", dtype)
        ref_codes = codes if ref_labels is labels else ref_labels.cpu()
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self._seed_of(emb, codes, refs, ref_codes))
            triplets = super().mine(emb, codes, refs, ref_codes)
        a, p, n = (part.to(device) for part in triplets)
        return a, p, n

    def _seed_of(self, *tensors: Tensor) -> int:
        digest = hashlib.blake2b(str(self.seed).encode(), digest_size=8)
        for tensor in tensors:
            digest.update(tensor.contiguous().numpy().tobytes())
        return int.from_bytes(digest.digest(), "big")
