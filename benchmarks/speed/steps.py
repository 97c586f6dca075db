"""Training steps on the CPU: our miner and loss against pml's, SuperLoss against the plain loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pytorch_metric_learning.losses import MultiSimilarityLoss, TripletMarginLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner

import bspml
from bspml.functional import superloss_confidence
from speed.measuring import Row, alternate, row

BATCHES = (64, 128, 256, 512, 1024)
_TURNS = {64: 300, 128: 200, 256: 60, 512: 30, 1024: 15}
MINER_BAR = "<= 0.5 x pml's miner + loss, forward and backward"
SUPERLOSS_BAR = "<= 1.5 x the plain loss step"


def make_batch(size: int, dim: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings (B, D) of classes of four that overlap, and their labels."""
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(size) // 4
    centres = torch.randn(size // 4, dim, generator=draw)
    emb = 0.6 * centres[labels] + torch.randn(size, dim, generator=draw)
    return emb.to(device).requires_grad_(), labels.to(device)


def some_weights(labels: torch.Tensor) -> bspml.SampleWeights:
    """Weights in [0, 1], a fifth of them 0."""
    values = torch.rand(len(labels), generator=torch.Generator().manual_seed(1))
    values[::5] = 0
    weights = bspml.SampleWeights(labels.cpu())
    weights.update(values)
    return weights.to(labels.device)


def miner_steps(emb: torch.Tensor, labels: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """One step forward and backward: pml's; ours, miner inside the loss; ours in a plain loop."""
    weights = some_weights(labels)
    index = torch.arange(len(labels), device=labels.device)
    their_miner, their_loss = MultiSimilarityMiner(), MultiSimilarityLoss()
    miner, loss = bspml.BSPMLMiner(weights), bspml.BSPMLLoss(weights)
    inside = bspml.BSPMLLoss(weights, miner=miner)

    def reference() -> None:
        their_loss(emb, labels, their_miner(emb, labels)).backward()

    def plain_loop() -> None:
        pairs = miner(emb, labels, sample_index=index)
        loss(emb, labels, pairs, sample_index=index).backward()

    def mined_inside() -> None:
        inside(emb, labels, sample_index=index).backward()

    return {"reference": reference, "ours": mined_inside, "plain_loop": plain_loop}


def measure_miner_steps(quick: bool) -> list[Row]:
    """A line per batch size; weighted, with weights of 0 among them."""
    lines = []
    for size in BATCHES[:2] if quick else BATCHES:
        emb, labels = make_batch(size, 512)
        seconds = alternate(miner_steps(emb, labels), 5 if quick else _TURNS[size], 3)
        loop = row("", "", {**seconds, "ours": seconds["plain_loop"]}, None)
        lines.append(
            row(
                f"miner + loss step, batch {size}",
                MINER_BAR,
                seconds,
                0.5,
                plain_loop_s=loop["ours_s"],
                plain_loop_ratio=loop["ratio"],
            )
        )
    return lines


def superloss_steps(emb: torch.Tensor, labels: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """A multi-similarity step of pml and the same loss under SuperLoss; triplets likewise."""
    miner = MultiSimilarityMiner()
    plain, wrapped = MultiSimilarityLoss(), bspml.SuperLoss(MultiSimilarityLoss())
    triplets, wrapped_triplets = TripletMarginLoss(), bspml.SuperLoss(TripletMarginLoss())

    def step(loss: Any, mine: bool) -> Callable[[], None]:
        return lambda: loss(emb, labels, miner(emb, labels) if mine else None).backward()

    return {
        "reference": step(plain, True),
        "ours": step(wrapped, True),
        "loss_alone": step(plain, False),
        "loss_alone_wrapped": step(wrapped, False),
        "triplets": step(triplets, False),
        "triplets_wrapped": step(wrapped_triplets, False),
    }


def measure_superloss(quick: bool) -> list[Row]:
    """A line per batch size, and sigma itself against scipy's Lambert W in the details."""
    lines = []
    for size in (64,) if quick else (64, 256, 1024):
        emb, labels = make_batch(size, 512)
        repeats = 5 if quick else min(_TURNS[size], 100)
        calls = superloss_steps(emb, labels)
        if size > 256:  # B^3 triplets would not fit
            calls = {k: v for k, v in calls.items() if not k.startswith("triplets")}
        if size > 64 and "triplets" in calls:
            del calls["triplets"], calls["triplets_wrapped"]
        seconds = alternate(calls, repeats, 3)
        details = {
            f"{name}_ratio": _ratio(seconds, f"{name}_wrapped", name)
            for name in ("loss_alone", "triplets")
            if name in seconds
        }
        lines.append(row(f"SuperLoss step, batch {size}", SUPERLOSS_BAR, seconds, 1.5, **details))
    lines.append(measure_sigma(quick))
    return lines


def measure_sigma(quick: bool) -> Row:
    """The confidences of a million losses against scipy's Lambert W on the same arguments."""
    import numpy as np
    from scipy.special import lambertw

    n = 10_000 if quick else 1_000_000
    losses = 4 * torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    numbers = losses.numpy()

    def reference() -> Any:
        y = np.maximum(-2 / np.e, (numbers - 2) / 0.25) / 2
        return np.exp(-lambertw(y).real)

    seconds = alternate(
        {"ours": lambda: superloss_confidence(losses, 2.0, 0.25), "reference": reference},
        3 if quick else 7,
    )
    ours = superloss_confidence(losses, 2.0, 0.25).numpy()
    gap = float(np.nanmax(np.abs(ours - reference())))
    nan = int(np.isnan(reference()).sum())
    return row(
        f"sigma of {n:,} losses against scipy's lambertw",
        "no bar",
        seconds,
        None,
        largest_difference=gap,
        scipy_nan=nan,
    )


def _ratio(seconds: dict[str, list[float]], ours: str, reference: str) -> float:
    both = {"ours": seconds[ours], "reference": seconds[reference]}
    return row("", "", both, None)["ratio"]
