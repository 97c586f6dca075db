"""One way of training for the benchmarks that are not experiments of the command line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bspml.data.indexed import IndexedDataset, sample_index_getter
from bspml.data.sampler import PKSampler
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.networks import embed
from bspml.trainers.alternating import AlternatingTrainer
from bspml.trainers.curriculum import FixedCurriculum, SelfPacedCurriculum
from bspml.trainers.step import StepTrainer
from bspml.weights.state import SampleWeights

# Whole log-sums weighted (eq. 7 of [Zhang 2023]), its rho, and mining without weights.
PAPER_LOSS = {"base": 1.0, "weighting": "paper", "skip_zero": False}
OUR_LOSS = {"base": 0.5, "weighting": "inside", "skip_zero": True}


def make_trainer(
    network: nn.Module,
    inputs: Tensor,
    weights: SampleWeights,
    curriculum: SelfPacedCurriculum | FixedCurriculum | None,
    *,
    lr: float = 1e-3,
    weight_decay: float = 0.0,
    loss: dict[str, Any] = OUR_LOSS,
    seed: int = 0,
    embed_all: Callable[[], Tensor] | None = None,
    device: str = "cpu",
    step: dict[str, Any] | None = None,
    **options: Any,
) -> AlternatingTrainer:
    """Train `network` by AdamW on 16 x 4 batches of `inputs` with the labels of `weights`.

    `embed_all` replaces the embedding of all inputs; `step` are options of `StepTrainer`, `options`
    those of `AlternatingTrainer`.  Network, weights and embeddings go to `device`.
    """
    logging.getLogger("PML").setLevel(logging.ERROR)  # warns of an embedder without optimiser
    codes = weights.codes.cpu()
    network.to(device)
    weights.to(device)
    sampler = PKSampler(codes, seed=seed)
    miner = BSPMLMiner(weights, skip_zero=loss["skip_zero"])
    scales = {key: loss[key] for key in ("base", "weighting")}
    trainer = StepTrainer(
        models={"trunk": network, "embedder": nn.Identity()},
        optimizers={
            "trunk_optimizer": torch.optim.AdamW(
                network.parameters(), lr=lr, weight_decay=weight_decay
            )
        },
        batch_size=sampler.batch_size,
        loss_funcs={"metric_loss": BSPMLLoss(weights, miner=miner, **scales)},
        dataset=IndexedDataset(torch.utils.data.TensorDataset(inputs, codes)),
        data_device=torch.device(device),
        sampler=sampler,
        dataloader_num_workers=0,
        data_and_label_getter=sample_index_getter(weights),
        **(step or {}),
    )

    def embed_some(rows: Tensor | slice) -> Tensor:
        return embed(network, inputs[rows], output_device=device)

    return AlternatingTrainer(
        trainer,
        sampler,
        curriculum,
        (lambda: embed_some(slice(None))) if embed_all is None else embed_all,
        embed_rows=None if embed_all else embed_some,
        **options,
    )
