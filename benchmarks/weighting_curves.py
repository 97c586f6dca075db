"""Which samples each loss emphasises: weight curves, focus and spread, and confidence losses.

    python benchmarks/weighting_curves.py --output docs

Prints the emphasis focus and spread of the members of the gradient-rescaling family beside the
published variances, and draws two figures: `weighting-curves.svg`, the L1 norm of a sample's
gradient at the logits over the probability p of its label [Wang GR 2019, figure 1; Wang IMAE 2019,
figure 1], and `confidence-losses.svg`, the confidence-aware losses and their gradients over the
confidence and the quantity they judge [Castells 2020, supplement figure 1].  Nothing is random.
"""

from __future__ import annotations

import argparse
import io
import math
import re
from collections.abc import Callable
from pathlib import Path

import matplotlib
import torch
from command import end
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from bspml.files.atomic import atomic_write
from bspml.functional import (
    WeightCurve,
    data_parameters_loss,
    introspection_loss,
    reliability_loss,
    superloss_confidence,
)

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (3, 2)))
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "bspml",
    "path.simplify_threshold": 0.3,
}
MEMBERS = {  # name: curve, published variance for p uniform in [0, 1]
    "cross-entropy": (WeightCurve.cross_entropy(), "0.33"),
    "MAE": (WeightCurve.mae(), "0.09"),
    "GCE, q = 0.7": (WeightCurve.gce(0.7), ""),
    "IMAE, T = 0.5": (WeightCurve.imae(0.5), ""),
    "IMAE, T = 8": (WeightCurve.imae(8), "4.55"),
    "IMAE, T = 16": (WeightCurve.imae(16), ""),
    "GR, β = 2, λ = 0": (WeightCurve(2, 0), ""),
    "GR, β = 8, λ = 0.5": (WeightCurve(8, 0.5), ""),
    "GR, β = 12, λ = 1": (WeightCurve(12, 1), ""),
    "GR, β = 20, λ = 2": (WeightCurve(20, 2), ""),
}
CLASSES = 10  # of the SuperLoss panel: tau = log C
SIZE = 48  # pixels of a side of each confidence panel

Loss = Callable[[Tensor, Tensor], Tensor]


def print_table() -> None:
    """Focus, largest weight and spread of each member."""
    print("| loss | focus | largest weight | spread, p uniform | published |")
    print("|:--|--:|--:|--:|--:|")
    for name, (curve, published) in MEMBERS.items():
        focus = curve.focus
        top = curve(torch.tensor(focus or 0.0, dtype=torch.float64)).item()
        print(f"| {name} | {focus:.3f} | {top:.2f} | {curve.spread():.4g} | {published} |")


def weight_panel(axes: Axes, title: str, curves: dict[str, Callable[[Tensor], Tensor]]) -> None:
    """Weights over p, with a dot at each curve's largest."""
    p = torch.linspace(0, 1, 201, dtype=torch.float64)
    for i, (name, curve) in enumerate(curves.items()):
        weights = curve(p)
        colour, dash = COLOURS[i % len(COLOURS)], DASHES[i % len(DASHES)]
        axes.plot(p, weights, color=colour, linestyle=dash, linewidth=1.4, label=name)
        if weights.max() > weights.min() + 1e-9:
            top = int(weights.argmax())
            axes.plot(p[top], weights[top], "o", color=colour, markersize=3.5)
    axes.set_title(title, loc="left")
    axes.set_xlim(0, 1)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.2)
    axes.legend(fontsize=7, frameon=False)


def superloss_on_cross_entropy(lam: float) -> Callable[[Tensor], Tensor]:
    """Gradient norm of SuperLoss around cross-entropy: sigma(-log p) 2 (1 - p)."""

    def weights(p: Tensor) -> Tensor:
        losses = -p.clamp(min=1e-300).log()
        return superloss_confidence(losses, math.log(CLASSES), lam) * WeightCurve.cross_entropy()(p)

    return weights


def draw_weights() -> Figure:
    """Four panels: the classic losses, two sweeps of gradient rescaling, SuperLoss."""
    figure = Figure(figsize=(8.4, 5.6), layout="constrained")
    panels = figure.subplots(2, 2).ravel()
    names = ("cross-entropy", "MAE", "GCE, q = 0.7", "IMAE, T = 0.5")
    classic: dict[str, Callable[[Tensor], Tensor]] = {name: MEMBERS[name][0] for name in names}
    weight_panel(panels[0], "Cross-entropy, MAE, GCE, IMAE", classic)
    weight_panel(
        panels[1],
        "SuperLoss around cross-entropy, 10 classes, τ = log 10",
        {"cross-entropy": WeightCurve.cross_entropy()}
        | {f"λ = {lam:g}": superloss_on_cross_entropy(lam) for lam in (10, 1, 0.25)},
    )
    weight_panel(
        panels[2],
        "Gradient rescaling, λ = 0.5: β sets the spread",
        {f"β = {beta:g}": WeightCurve(beta, 0.5) for beta in (0, 2, 4, 6, 8)},
    )
    weight_panel(
        panels[3],
        "Gradient rescaling, β = 8: λ sets the focus",
        {f"λ = {lam:g}": WeightCurve(8, lam) for lam in (0.25, 0.5, 1, 2)},
    )
    for axes in panels[2:]:
        axes.set_xlabel("p, probability of the given label")
    for axes in panels[::2]:
        axes.set_ylabel("weight: L1 norm of the gradient")
    return figure


def two_class(sigma: Tensor, gap: Tensor) -> Tensor:
    """The log of the data-parameter loss with two classes: the loss cannot be negative."""
    logits = torch.stack([torch.zeros_like(gap), gap], 1)
    labels = torch.ones(len(gap), dtype=torch.long)
    return data_parameters_loss(logits, labels, sigma)


def confidence_losses() -> list[tuple[str, str, float, tuple[float, float], Loss]]:
    """Title, name of the y axis, largest sigma, range of y, loss."""
    lam, tau = 1.0, 0.0
    return [
        (
            "Introspection, y = 1", "similarity s", 10.0, (0.0, 1.0),
            lambda sigma, s: introspection_loss(s, torch.ones_like(s), sigma),
        ),
        (
            "R2D2 reliability", "average precision", 1.0, (0.0, 1.0),
            lambda sigma, ap: reliability_loss(ap, sigma),
        ),
        ("DataParams, two classes (log)", "Δz", 5.0, (-2.0, 2.0), two_class),
        (
            f"SuperLoss, τ = {tau:g}, λ = {lam:g}", "loss ℓ", math.e, (-2.0, 4.0),
            lambda sigma, loss: sigma * (loss - tau) + lam * sigma.log() ** 2,
        ),
    ]  # fmt: skip


def draw_confidence() -> Figure:
    """Each loss above the absolute gradient by its y axis; black lines of equal value."""
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    panels = figure.subplots(2, 4)
    for column, (title, name, widest, (low, high), loss) in enumerate(confidence_losses()):
        x = torch.linspace(widest / SIZE, widest, SIZE, dtype=torch.float64)
        y = torch.linspace(low, high, SIZE, dtype=torch.float64)
        sigma, judged = (v.flatten() for v in torch.meshgrid(x, y, indexing="xy"))
        judged.requires_grad_()
        value = loss(sigma, judged)
        (slope,) = torch.autograd.grad(value.sum(), judged)
        value = value.log() if "log" in title else value
        for axes, shown in zip(panels[:, column], (value, slope.abs()), strict=True):
            picture = shown.detach().reshape(SIZE, SIZE).numpy()
            axes.imshow(
                picture, origin="lower", aspect="auto", extent=(x[0], x[-1], y[0], y[-1]),
                cmap="viridis", interpolation="none",
            )  # fmt: skip
            axes.contour(x, y, picture, 7, colors="black", linewidths=0.5, linestyles="solid")
            axes.set_ylabel(name)
        if title.startswith("SuperLoss"):
            fine = torch.linspace(low, high, 400, dtype=torch.float64)
            best = superloss_confidence(fine, 0.0, 1.0)
            panels[0, column].plot(best, fine, color="white", linewidth=1.6)
            panels[0, column].text(1.05, 2.1, "σ*(ℓ)", color="white")
        panels[0, column].set_title(title)
        panels[1, column].set_title("|gradient|")
        panels[1, column].set_xlabel("confidence σ")
    return figure


def save_svg(figure: Figure, path: Path) -> None:
    """Write the figure the same on every run, coordinates to a hundredth of a point."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = re.sub(r"(?<=\.\d\d)\d+", "", buffer.getvalue())
    atomic_write(path, "\n".join(line.rstrip() for line in text.splitlines()) + "\n")
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    """Print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="folder for the two figures")
    options = parser.parse_args()
    print_table()
    if options.output is None:
        return
    options.output.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        save_svg(draw_weights(), options.output / "weighting-curves.svg")
        save_svg(draw_confidence(), options.output / "confidence-losses.svg")


if __name__ == "__main__":
    end(main)
