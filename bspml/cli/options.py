"""The options of the commands with most of them: names, types and help, once for all.

Typer reads the records as the signature of a command, which gets one of them filled in; see
`bspml.cli.app.taking`.  Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer


def _not_empty(name: str | None) -> str | None:
    """Refuse what an unset variable of a script leaves of `-o "$OUT"`."""
    if name == "":
        raise typer.BadParameter("it is empty; name one, or leave the option out.")
    return name


Seed = Annotated[int | None, typer.Option(help="Seed of everything random.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Workers = Annotated[int | None, typer.Option(help="Processes that load images.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Output = Annotated[
    str | None, typer.Option("--output", "-o", callback=_not_empty, help="File to write.")
]
Labels = Annotated[
    str | None,
    typer.Argument(help="Their labels (.npy, .npz, .csv, .parquet, .txt), if not inside."),
]
Method = Annotated[
    str | None,
    typer.Option(help="Of a run, such as auto:contrastive; default: its automatic, or only, one."),
]


@dataclass(frozen=True)
class TrainOptions:
    """The options of `bspml train`, in its order; None where one was left out."""

    config: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CONFIG] [key=value ...]",
            help="Experiment file, or a name of `bspml configs`, and settings over it; without "
            "any, the main job: glyphs with 30 % wrong labels, the contrastive loss alone and "
            "under the automatic curriculum.",
        ),
    ] = None
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on with an interrupted run.")
    ] = None
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", callback=_not_empty, help="Run folder; else runs/NAME."),
    ] = None
    seed: Seed = None
    device: Device = None
    workers: Workers = None
    json: Json = False
    quiet: Quiet = False

    @property
    def settings(self) -> list[str]:
        """The options that stand for a setting, as `key=value` texts."""
        common = {"seed": self.seed, "device": self.device, "workers": self.workers}
        return [f"{key}={value}" for key, value in common.items() if value is not None]


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of `bspml evaluate`, in its order; None where one was left out."""

    what: Annotated[str, typer.Argument(metavar="RUN_OR_EMBEDDINGS", help="Run folder, or file.")]
    labels: Labels = None
    gallery: Annotated[
        str | None,
        typer.Option(help="Embeddings to search in; default: the queries without themselves."),
    ] = None
    gallery_labels: Annotated[str | None, typer.Option(help="Labels of the gallery.")] = None
    ks: Annotated[
        str | None,
        typer.Option(help="The K of Recall@K; default: the run's own, of files 1,2,4,8,16,32."),
    ] = None
    ignore: Annotated[
        str | None,
        typer.Option(help="Labels that count nowhere, as a line of CSV: their rows are left out."),
    ] = None
    query_in_gallery: Annotated[
        bool,
        typer.Option("--query-in-gallery", help="Leave each query's own row of the gallery out."),
    ] = False
    method: Method = None
    seed: Seed = None
    device: Device = None
    json: Json = False


@dataclass(frozen=True)
class NoiseOptions:
    """The options of `bspml noise`, in its order; None where one was left out."""

    labels: Annotated[str, typer.Argument(help="File of labels.")]
    kind: Annotated[str, typer.Option(help="Kind of noise.")] = "symmetric"
    rate: Annotated[float, typer.Option(help="Share of labels to change.")] = 0.3
    per_class: Annotated[bool, typer.Option(help="The same share of every class.")] = False
    keep_original: Annotated[
        bool, typer.Option("--keep-original", help="A drawn label may come out as it was.")
    ] = False
    by_chance: Annotated[
        bool, typer.Option("--by-chance", help="Draw each sample with probability RATE.")
    ] = False
    output: Output = None
    seed: Seed = None
    json: Json = False


@dataclass(frozen=True)
class AuditOptions:
    """The options of `bspml audit`, in its order; None where one was left out."""

    what: Annotated[
        str,
        typer.Argument(
            metavar="EMBEDDINGS",
            help="Embeddings (.npy, .npz, .csv, .parquet), a folder of images, or one that "
            "`datasets` saved, with --backbone, a run folder, or the folder of an earlier audit.",
        ),
    ]
    labels: Labels = None
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Folder to write [default: NAME-audit].")
    ] = None
    apply: Annotated[
        str | None,
        typer.Option(metavar="DECISIONS.csv", help="Put the page's decisions into the labels."),
    ] = None
    copy_to: Annotated[
        str | None,
        typer.Option(
            metavar="NEW", help="With decisions: copy photos to NEW/LABEL/NAME, less those dropped."
        ),
    ] = None
    decisions: Annotated[
        str | None,
        typer.Option(
            metavar="EARLIER.csv",
            help="Earlier decisions, or labels-corrected.csv: used, by name, and not asked again.",
        ),
    ] = None
    export: Annotated[
        str | None,
        typer.Option(
            metavar="TOOL", help="Suspects for label-studio, cvat or fiftyone, to FOLDER/to-TOOL."
        ),
    ] = None
    flag: Annotated[
        int | None,
        typer.Option(metavar="N", help="Flag the N most suspect labels, whatever their chances."),
    ] = None
    flag_precision: Annotated[
        float | None,
        typer.Option(metavar="P", help="Flag as many as are wrong with this mean probability."),
    ] = None
    fail_above: Annotated[
        float | None,
        typer.Option(metavar="RATE", help="Exit with 3 above this estimate, with 2 without any."),
    ] = None
    images: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Images for the page; names are its files.")
    ] = None
    names: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Names, and texts, of the samples (.txt, .csv, .npz)."),
    ] = None
    map: Annotated[str | None, typer.Option(help="Of the page: pca, or umap of bspml[map].")] = None
    search: Annotated[
        str | None,
        typer.Option(help="exact; neighbours, approximate; or auto, exact below 200,000 samples."),
    ] = None
    backbone: Annotated[
        str | None,
        typer.Option(help="For images: efficientnet-lite0, torchvision:MODEL or timm:MODEL."),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="State dict of a torchvision or timm backbone."),
    ] = None
    seed: Seed = None
    device: Device = None
    workers: Workers = None
    json: Json = False
    quiet: Quiet = False

    @property
    def hushed(self) -> bool:
        """Whether stderr shows no progress."""
        return self.quiet or self.json


def flags_of(options: EvaluateOptions | AuditOptions, *names: str) -> list[str]:
    """Return how the command line calls those of the options that it was given.

    Args:
        options: of a command.
        names: their fields; 0 counts as left out.

    Example:
        >>> flags_of(AuditOptions("x.npy", "y.npy", workers=2), "labels", "workers", "seed")
        ['LABELS', '--workers']
    """
    used = [name for name in names if getattr(options, name) not in (None, 0)]
    return ["LABELS" if name == "labels" else f"--{name.replace('_', '-')}" for name in used]
